//! The state changes of the messages of one recipient, as they happen.

use consign_engine::{Error, EventFilter, Slot};
use consign_kernel::error::Code;
use consign_kernel::fact::Event;
use consign_kernel::ids::{FactSeq, IntentId, Micros};
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use tokio::sync::watch;

use super::NAMESPACE;
use crate::problem::BeamProblem;
use crate::service::Beam;

const PAGE_FACTS: u32 = 50;
/// Event streams of one recipient, and of all.
const STREAMS_PER_AGENT_MAX: usize = 32;
const STREAMS_MAX: usize = 1_024;

/// A message of the recipient has another state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageEvent {
    pub position: FactSeq,
    pub id: IntentId,
    pub intent: String,
    pub state: State,
    pub previous: Option<State>,
    pub at: Micros,
}

/// Reads the events of one recipient page by page. It occupies one of the slots for streams.
#[derive(Debug)]
pub struct MessageEventReader {
    beam: Beam,
    filter: EventFilter,
    new_facts: watch::Receiver<()>,
    _slot: Slot<String>,
}

impl Beam {
    /// The events after a position; new ones only if there is none. A position that this ledger has not issued counts as its
    /// beginning.
    pub async fn message_events(
        &self,
        agent: &str,
        after: Option<FactSeq>,
    ) -> Result<MessageEventReader, BeamProblem> {
        let agent = agent.to_owned();
        let streams = &self.inner.bus.streams;
        let slot = streams.take(&agent, STREAMS_PER_AGENT_MAX, STREAMS_MAX);
        let slot = slot.ok_or_else(|| {
            let text = "Too many event streams are open; close one first";
            BeamProblem::new(Code::RateLimited, text)
        })?;
        let engine = self.engine();
        let after = match after {
            Some(after) if engine.has_issued_fact(after).await? => after,
            Some(_) => FactSeq(0),
            None => engine.last_fact().await?,
        };
        Ok(MessageEventReader {
            beam: self.clone(),
            new_facts: engine.follow_publisher(&agent),
            filter: EventFilter {
                face: Face::Beam,
                owner: agent,
                after,
                limit: PAGE_FACTS,
            },
            _slot: slot,
        })
    }
}

impl MessageEventReader {
    pub fn position(&self) -> FactSeq {
        self.filter.after
    }

    /// The next events, and whether more are available now.
    pub async fn next_page(&mut self) -> Result<(Vec<MessageEvent>, bool), Error> {
        self.new_facts.mark_unchanged();
        let page = self.beam.engine().events(self.filter.clone()).await?;
        self.filter.after = page.seen;
        let events = page.events.into_iter().filter_map(message_event).collect();
        Ok((events, page.more))
    }

    /// Completes when there may be a new page; false if there will be none.
    pub async fn changed(&mut self) -> bool {
        self.new_facts.changed().await.is_ok()
    }
}

/// `None` for a fact of the directory, or one that changed no state.
fn message_event(event: Event) -> Option<MessageEvent> {
    let fact = &event.fact;
    let is_change = event.namespace == NAMESPACE && fact.from != Some(fact.to);
    is_change.then(|| MessageEvent {
        position: fact.seq,
        id: event.id,
        state: fact.to,
        previous: fact.from,
        at: fact.time_of_day(),
        intent: event.goal,
    })
}
