//! The messages of one recipient, oldest first. Reading them changes nothing.

use std::time::Duration;

use consign_engine::{Error, MessagesOf, SeqPage};
use consign_kernel::error::Code;
use consign_kernel::ids::{Micros, Seq};
use consign_kernel::state::State;

use super::message::BusMessage;
use super::scan::ScanStep;
use crate::problem::BeamProblem;
use crate::service::Beam;

/// Requests that wait for messages of one recipient, and of all.
const WAITS_PER_AGENT_MAX: usize = 32;
const WAITS_MAX: usize = 4_096;
/// Correctness rests on reading again; wakes only reduce latency.
const POLL_EVERY: Duration = Duration::from_secs(5);

/// Which messages a recipient reads.
#[derive(Clone, Debug)]
pub struct PollFilter {
    pub agent: String,
    pub state: State,
    /// Only messages that were created later.
    pub since: Option<Micros>,
    pub limit: u32,
}

impl Beam {
    pub async fn poll_messages(&self, filter: &PollFilter) -> Result<Vec<BusMessage>, Error> {
        let of = if filter.state == State::Delivered {
            MessagesOf::AwaitingAck(filter.agent.clone())
        } else {
            MessagesOf::Recipient(filter.agent.clone())
        };
        let after = match filter.since {
            Some(since) => self.position_before(&of, since).await?,
            None => Seq(0),
        };
        let step = |row: &consign_kernel::intent::Intent| {
            let is_later = filter.since.is_none_or(|since| row.created_at > since);
            if row.state == filter.state && is_later {
                ScanStep::Keep
            } else {
                ScanStep::Skip
            }
        };
        let page = SeqPage::After(after);
        let rows = self.scan_messages(&of, page, filter.limit, step).await?;
        Ok(rows.iter().filter_map(BusMessage::of).collect())
    }

    /// The same, and waits for a message if there is none. The wait ends with `leave`.
    pub async fn poll_messages_waiting(
        &self,
        filter: &PollFilter,
        wait: Duration,
        leave: impl Future<Output = ()>,
    ) -> Result<Vec<BusMessage>, BeamProblem> {
        let deadline = tokio::time::Instant::now() + wait;
        let mut news = self.engine().follow_publisher(&filter.agent);
        let found = self.poll_messages(filter).await?;
        if !found.is_empty() || wait.is_zero() {
            return Ok(found);
        }
        let waits = &self.inner.bus.waits;
        let slot = waits.take(&filter.agent, WAITS_PER_AGENT_MAX, WAITS_MAX);
        let _slot = slot.ok_or_else(|| {
            let text = "Too many requests wait for messages; try again later";
            BeamProblem::new(Code::RateLimited, text)
        })?;
        let mut stopping = self.bus_stopping();
        tokio::pin!(leave);
        loop {
            let until = deadline.min(tokio::time::Instant::now() + POLL_EVERY);
            tokio::select! {
                _ = tokio::time::timeout_at(until, news.changed()) => {}
                _ = stopping.wait_for(|stopping| *stopping) => return Ok(Vec::new()),
                () = &mut leave => return Ok(Vec::new()),
            }
            news.mark_unchanged();
            let found = self.poll_messages(filter).await?;
            if !found.is_empty() || tokio::time::Instant::now() >= deadline {
                return Ok(found);
            }
        }
    }
}
