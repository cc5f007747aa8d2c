//! The feed on a shared ledger: the facts of intents, whichever node stored them.
//!
//! Invariant: one task of a node reads for all of its readers, and only while there are some. Each fact is reported once, in
//! the order of an agent's facts; the order between agents is not defined.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Error, EventFilter};
use consign_kernel::fact::Event;
use consign_kernel::ids::FactSeq;
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::lifecycle;
use crate::relay::{IntentRow, NAMESPACE};
use crate::service::Beam;

const PAGE_FACTS: u32 = 100;
/// Agents with news are read once more after this time, because a fact of a slow commit may become visible later.
const READ_AGAIN: Duration = Duration::from_millis(500);
/// Agents whose positions are remembered.
const POSITIONS_MAX: usize = 10_000;

/// What the task has read.
struct FeedFollower {
    beam: Beam,
    owners: Receiver<Arc<BTreeSet<String>>>,
    /// Where the reading of an agent begins that has no position yet.
    start: FactSeq,
    positions: HashMap<String, FactSeq>,
    /// Agents to read once more.
    again: BTreeSet<String>,
}

/// Where a new reader of the feed begins.
#[derive(Debug)]
pub(crate) struct FeedPosition {
    owners: Receiver<Arc<BTreeSet<String>>>,
    start: FactSeq,
}

impl Beam {
    /// The current position on a shared ledger; none for a node that is alone.
    pub(crate) async fn feed_position(&self) -> Result<Option<FeedPosition>, Error> {
        if !self.inner.node.shared {
            return Ok(None);
        }
        // Subscribed first, so that no news is missed.
        let owners = self.engine().follow_owners();
        let start = self.engine().last_fact().await?;
        Ok(Some(FeedPosition { owners, start }))
    }

    /// Starts the task that reports the facts of all nodes, unless it runs. Called when the reader is registered, because the
    /// task ends without readers.
    pub(crate) fn follow_feed_from(&self, position: Option<FeedPosition>) {
        let Some(FeedPosition { owners, start }) = position else {
            return;
        };
        if self.inner.sockets.begin_following() {
            let follower = FeedFollower {
                beam: self.clone(),
                owners,
                start,
                positions: HashMap::new(),
                again: BTreeSet::new(),
            };
            tokio::spawn(follower.run());
        }
    }
}

impl FeedFollower {
    async fn run(mut self) {
        let mut next_again = Instant::now() + READ_AGAIN;
        while !self.beam.inner.sockets.ends_following() {
            match tokio::time::timeout_at(next_again, self.owners.recv()).await {
                Ok(Ok(owners)) if !owners.is_empty() => {
                    for owner in owners.iter().filter(|owner| owner.contains('@')) {
                        self.read(owner).await;
                        self.again.insert(owner.clone());
                    }
                }
                // Which agents have news is unknown; of others, the next news will show it.
                Ok(Ok(_) | Err(RecvError::Lagged(_))) => {
                    self.again.extend(self.positions.keys().cloned());
                }
                Ok(Err(RecvError::Closed)) => return,
                Err(_) => {
                    next_again = Instant::now() + READ_AGAIN;
                    for owner in std::mem::take(&mut self.again) {
                        self.read(&owner).await;
                    }
                }
            }
        }
    }

    /// Reports the new facts of an agent.
    async fn read(&mut self, owner: &str) {
        loop {
            let after = self.positions.get(owner).copied().unwrap_or(self.start);
            let filter = EventFilter {
                face: Face::Beam,
                owner: owner.to_owned(),
                after,
                limit: PAGE_FACTS,
            };
            let page = match self.beam.engine().events(filter).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(%error, owner, "the facts of an agent cannot be read");
                    self.again.insert(owner.to_owned());
                    return;
                }
            };
            self.remember(owner, page.seen);
            for event in &page.events {
                self.report(event).await;
            }
            if !page.more {
                return;
            }
        }
    }

    fn remember(&mut self, owner: &str, seen: FactSeq) {
        if self.positions.len() >= POSITIONS_MAX && !self.positions.contains_key(owner) {
            // An agent without a position is read from the latest of the forgotten ones on.
            self.start = self.positions.values().copied().fold(self.start, Ord::max);
            self.positions.clear();
        }
        self.positions.insert(owner.to_owned(), seen);
    }

    async fn report(&self, event: &Event) {
        let to = event.fact.to;
        let is_end = lifecycle::is_terminal(to);
        let is_shown = is_end || matches!(to, State::Dispatched | State::Delivered);
        let is_step = event.namespace == NAMESPACE && event.fact.from != Some(to);
        if !is_shown || !is_step {
            return;
        }
        let row = self.beam.engine().observe(event.id).await;
        let Some(row) = row.ok().flatten() else {
            return;
        };
        let Some(mut view) = IntentRow::of(&row) else {
            return;
        };
        view.state = to;
        if !is_end {
            // The row may have ended since.
            view.latency_ms = None;
            view.error_code = None;
        }
        self.beam.send_to_feeds(&view);
    }
}
