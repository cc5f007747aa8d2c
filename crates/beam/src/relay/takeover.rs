//! What a killed node left, taken over by the other nodes of its ledger.
//!
//! Each node looks every second which nodes have a current heartbeat. Invariant: a node counts as dead only if this node has
//! read the ledger all the time meanwhile, so an outage of the database, during which no node can write, kills none. A node
//! that was only slow loses its leases, and with their tokens the right to store an outcome.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use consign_engine::{Error, Lease, Versioned};
use consign_kernel::command::Settlement;
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::ProfileId;
use consign_kernel::record::Kind;
use consign_kernel::state::State;
use serde_json::json;

use super::RelayError;
use super::handoff::Handover;
use crate::directory::records::PAGE;
use crate::lifecycle;
use crate::service::{Beam, BeamNode};

/// How often the heartbeats are read.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For how long a node must have no current heartbeat: longer than the interval of heartbeats.
const GRACE: Duration = Duration::from_secs(3);
/// Rows of one read.
const ROWS: u32 = 500;

/// Which nodes were seen alive, and since when this node looks without a gap.
#[derive(Debug, Default)]
struct NodeWatch {
    looking: Option<Gapless>,
    alive: HashMap<i64, Instant>,
    /// What earlier nodes left was taken over.
    has_begun: bool,
}

#[derive(Clone, Copy, Debug)]
struct Gapless {
    since: Instant,
    last: Instant,
}

impl NodeWatch {
    /// Stores which nodes are alive now.
    fn look(&mut self, live: &HashSet<i64>, now: Instant) {
        let gapless = self
            .looking
            .filter(|looking| now.duration_since(looking.last) < GRACE);
        self.looking = Some(Gapless {
            since: gapless.map_or(now, |looking| looking.since),
            last: now,
        });
        self.alive.extend(live.iter().map(|id| (*id, now)));
    }

    /// The nodes could not be read.
    fn interrupt(&mut self) {
        self.looking = None;
    }

    fn is_dead(&self, id: i64, now: Instant) -> bool {
        let is_past = |at: Instant| now.duration_since(at) >= GRACE;
        let has_looked = self.looking.is_some_and(|looking| is_past(looking.since));
        has_looked && self.alive.get(&id).is_none_or(|at| is_past(*at))
    }

    /// Whether a node has died since the last time, or nothing was taken over since the start.
    fn has_dead(&self, now: Instant) -> bool {
        let has_looked = self
            .looking
            .is_some_and(|looking| now.duration_since(looking.since) >= GRACE);
        has_looked && (!self.has_begun || self.alive.keys().any(|id| self.is_dead(*id, now)))
    }

    fn forget_dead(&mut self, now: Instant) {
        let alive = self.alive.keys().copied();
        let dead: Vec<i64> = alive.filter(|id| self.is_dead(*id, now)).collect();
        for id in dead {
            self.alive.remove(&id);
        }
        self.has_begun = true;
    }
}

/// What was taken over.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    messages: usize,
    intents: usize,
    handovers: usize,
}

impl Beam {
    /// Takes over what other nodes leave, until the process ends. A ledger in a file has no other nodes.
    pub async fn watch_nodes_forever(self) {
        if !self.inner.node.shared {
            return;
        }
        let mut watch = NodeWatch::default();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(error) = self.look_for_dead_nodes(&mut watch).await {
                watch.interrupt();
                tracing::debug!(%error, "what other nodes left was not taken over; trying again");
            }
        }
    }

    async fn look_for_dead_nodes(&self, watch: &mut NodeWatch) -> Result<(), Error> {
        // With a wrong clock, it is unknown which heartbeats are current.
        if self.engine().has_wrong_clock() {
            watch.interrupt();
            return Ok(());
        }
        let live = self.engine().live_nodes().await?;
        let now = Instant::now();
        watch.look(&live, now);
        if !watch.has_dead(now) {
            return Ok(());
        }
        let taken = self.take_over(|id| watch.is_dead(id, now)).await?;
        watch.forget_dead(now);
        let Taken {
            messages,
            intents,
            handovers,
        } = taken;
        if messages + intents + handovers > 0 {
            tracing::info!(
                messages,
                intents,
                handovers,
                "took over what a node that no longer runs has left"
            );
        }
        if messages > 0 {
            self.inner.bus.due.notify_one();
        }
        Ok(())
    }

    async fn take_over(&self, is_dead: impl Fn(i64) -> bool) -> Result<Taken, Error> {
        let is_left = |row: &Intent| {
            let holder = row.holder.as_deref().unwrap_or_default();
            BeamNode::id_of_holder(holder).is_some_and(&is_dead)
        };
        let mut taken = Taken::default();
        for row in self
            .left_rows(ProfileId::BeamBus, State::Dispatched, is_left)
            .await?
        {
            taken.messages += usize::from(self.queue_again(&row).await?);
        }
        for row in self
            .left_rows(ProfileId::BeamDirectory, State::Dispatched, is_left)
            .await?
        {
            self.fail_interrupted(&row).await?;
            taken.intents += 1;
        }
        for row in self
            .left_rows(ProfileId::BeamDirectory, State::Delivered, is_left)
            .await?
        {
            if let Some(end) = self.end_of_wait(&row).await? {
                self.leave_to_sweep(&row, end);
                taken.intents += 1;
            }
        }
        taken.handovers = self.take_over_handovers(&is_dead).await?;
        Ok(taken)
    }

    /// The rows that nodes left. A node that has begun since the heartbeats were read has left none.
    async fn left_rows(
        &self,
        profile: ProfileId,
        state: State,
        is_left: impl Fn(&Intent) -> bool,
    ) -> Result<Vec<Intent>, Error> {
        let (mut left, mut after) = (Vec::new(), Seq(0));
        loop {
            let rows = self
                .engine()
                .active_rows(profile, state, after, ROWS)
                .await?;
            let Some(last) = rows.last() else {
                break;
            };
            after = last.seq;
            left.extend(rows.into_iter().filter(&is_left));
        }
        if left.is_empty() {
            return Ok(left);
        }
        let live = self.engine().live_nodes().await?;
        left.retain(|row| {
            let holder = row.holder.as_deref().unwrap_or_default();
            BeamNode::id_of_holder(holder).is_some_and(|id| !live.contains(&id))
        });
        Ok(left)
    }

    /// Makes an interrupted message due. The attempt does not count, as after a restart. False if another node was faster.
    async fn queue_again(&self, row: &Intent) -> Result<bool, Error> {
        let settle = Lease::of(row).settle(Settlement::GiveBack);
        match self.engine().settle(settle).await {
            Ok(_) => Ok(true),
            Err(Error::Refused(Refusal::LeaseLost | Refusal::IllegalState | Refusal::NotFound)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Fails an intent that was not delivered, as a restart does.
    async fn fail_interrupted(&self, row: &Intent) -> Result<(), Error> {
        let details = json!({
            "transport": "recovery",
            "previousStatus": lifecycle::state_word(row.state),
            "recoveryAction": "fail_interrupted_intent",
            "errorCode": "DELIVERY_FAILED",
        });
        let text = "the node that relayed it no longer runs";
        let error = RelayError::DeliveryFailed(text.to_owned());
        let failed = self.fail_undelivered(row, &details, &error).await;
        failed.map_err(|error| Error::Internal(error.to_string()))
    }

    /// Leaves the intents to the sweep for whose end a dead node waited, and which no node may have claimed.
    async fn take_over_handovers(&self, is_dead: impl Fn(i64) -> bool) -> Result<usize, Error> {
        let (mut found, mut after) = (0, String::new());
        loop {
            let kind = Kind::BeamHandover;
            let page = self.engine().records(kind, "", &after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                after.clone_from(&record.key.name);
                let Ok(id) = record.key.name.parse::<IntentId>() else {
                    continue;
                };
                let record = Versioned::<Handover>::read(record)?;
                if let Some(end) = record.expires_at
                    && is_dead(record.value.node)
                {
                    self.leave_handover_to_sweep(id, record.value.wait_end(end));
                    found += 1;
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_without_a_heartbeat_is_dead_after_the_grace_and_once() {
        let (mut watch, start) = (NodeWatch::default(), Instant::now());
        let both = HashSet::from([1, 2]);
        let one = HashSet::from([1]);
        for second in 0..3 {
            watch.look(&both, at(start, second));
            assert!(
                !watch.has_dead(at(start, second)),
                "it has not looked for long"
            );
        }
        watch.look(&both, at(start, 3));
        assert!(watch.has_dead(at(start, 3)), "nodes before its start");
        assert!(watch.is_dead(7, at(start, 3)) && !watch.is_dead(2, at(start, 3)));
        watch.forget_dead(at(start, 3));
        for second in 4..6 {
            watch.look(&one, at(start, second));
            assert!(!watch.has_dead(at(start, second)), "{second}");
        }
        watch.look(&one, at(start, 6));
        assert!(watch.has_dead(at(start, 6)));
        assert!(watch.is_dead(2, at(start, 6)) && !watch.is_dead(1, at(start, 6)));
        watch.forget_dead(at(start, 6));
        watch.look(&one, at(start, 7));
        assert!(!watch.has_dead(at(start, 7)));
    }

    #[test]
    fn an_outage_of_the_ledger_kills_no_node() {
        let (mut watch, start) = (NodeWatch::default(), Instant::now());
        let both = HashSet::from([1, 2]);
        for second in 0..5 {
            watch.look(&both, at(start, second));
        }
        watch.forget_dead(at(start, 4));
        // Nobody could read or write for a minute, and the other node writes its heartbeat a little later.
        watch.interrupt();
        let none = HashSet::from([1]);
        watch.look(&none, at(start, 64));
        assert!(!watch.has_dead(at(start, 64)) && !watch.is_dead(2, at(start, 64)));
        watch.look(&both, at(start, 65));
        for second in 66..70 {
            watch.look(&both, at(start, second));
            assert!(!watch.has_dead(at(start, second)));
        }
        // A gap in which this process did not run is no different.
        watch.look(&none, at(start, 80));
        assert!(!watch.has_dead(at(start, 80)));
    }
}
