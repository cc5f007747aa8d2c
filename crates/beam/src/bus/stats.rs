//! Counters of the bus.
//!
//! Invariant: the work of a request does not grow with the number of messages; commits maintain the counters.

use std::collections::BTreeMap;

use consign_engine::{Error, MessageTally, MessagesOf, Operator, SeqPage};
use consign_kernel::ids::{DAY_US, Micros};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::state::State;

use super::NAMESPACE;
use crate::service::Beam;

/// Senders, and recipients, that the statistics show.
const AGENTS_MAX: u32 = 10_000;
/// More than the intervals of a day.
const INTERVALS_MAX: u32 = 1_000;
const PAGE_ROWS: u32 = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusStats {
    pub by_state: BTreeMap<State, u64>,
    pub by_agent: BTreeMap<String, AgentTraffic>,
    /// Messages that were created in the last day. Of those that are about a day old, a limited number is examined; the
    /// others count for up to ten minutes more.
    pub last_day: u64,
}

/// How many messages an agent has sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentTraffic {
    pub sent: u64,
    pub received: u64,
}

impl Beam {
    pub async fn bus_stats(&self) -> Result<BusStats, Error> {
        let turn = self.inner.bus.stats.acquire().await;
        let _turn = turn.map_err(|_| Error::Internal("the bus has ended".to_owned()))?;
        let mut stats = BusStats::default();
        let counts = self.engine().counts(Operator::vouched(), Face::Beam);
        for count in counts.await? {
            if count.namespace == NAMESPACE {
                *stats.by_state.entry(count.state).or_default() += count.count;
            }
        }
        for (name, count) in self.tallied(MessageTally::Sender, "", AGENTS_MAX).await? {
            stats.by_agent.entry(name).or_default().sent = count;
        }
        for (name, count) in self
            .tallied(MessageTally::Recipient, "", AGENTS_MAX)
            .await?
        {
            stats.by_agent.entry(name).or_default().received = count;
        }
        stats.last_day = self
            .messages_since(self.engine().now().minus(DAY_US))
            .await?;
        Ok(stats)
    }

    /// The number of messages that were created after a moment: whole intervals, without the earlier part of the first one.
    async fn messages_since(&self, at: Micros) -> Result<u64, Error> {
        let first = MessageTally::interval_of(at);
        let intervals = self
            .tallied(MessageTally::Interval, &first, INTERVALS_MAX)
            .await?;
        let whole: u64 = intervals.iter().map(|(_, count)| count).sum();
        if intervals.first().is_none_or(|(name, _)| *name != first) {
            return Ok(whole);
        }
        let mut earlier = 0;
        let start = Micros(at.0 - at.0.rem_euclid(MessageTally::INTERVAL_US));
        let after = self.position_before(&MessagesOf::All, start).await?;
        let count = |row: Intent| {
            earlier += u64::from(row.created_at >= start && row.created_at <= at);
            // Clocks of nodes differ, so a few later rows may come before an earlier one.
            row.created_at.0 <= at.0 + super::scan::CLOCK_MARGIN_US
        };
        self.visit_messages(&MessagesOf::All, SeqPage::After(after), PAGE_ROWS, count)
            .await?;
        Ok(whole.saturating_sub(earlier))
    }

    async fn tallied(
        &self,
        tally: MessageTally,
        from: &str,
        limit: u32,
    ) -> Result<Vec<(String, u64)>, Error> {
        let counts = self.engine().message_counts(Face::Beam, tally, from, limit);
        let counts = counts.await?.into_iter();
        Ok(counts.map(|count| (count.name, count.count)).collect())
    }
}
