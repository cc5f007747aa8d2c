//! A directory with its relay and its message bus, over one ledger.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_engine::Engine;
use consign_kernel::command::Recover;
use consign_web::rate_limit::RateLimit;

use crate::bus::BusState;
use crate::counters::BeamCounters;
use crate::directory::agent_index::AgentIndex;
use crate::federation::{SENDERS_PER_SOURCE, UnknownAgents};
use crate::observe::agents::KeptAgentCounts;
use crate::outbound::{Outbound, OutboundOptions};
use crate::presence::AgentsElsewhere;
use crate::relay::{Unwaited, Waiters};
use crate::sender_rate::SenderRate;
use crate::settings::BeamSettings;
use crate::sockets::Sockets;

/// The node that serves: leases under its name from earlier starts are recovered.
#[derive(Clone, Debug)]
pub struct BeamNode {
    /// Its number on the ledger, new with every start.
    pub id: i64,
    /// Unique on the ledger, and the same after a restart.
    pub name: String,
    /// Unique among the starts of this node.
    pub start: String,
    /// Other nodes may use the ledger.
    pub shared: bool,
}

impl BeamNode {
    /// The name of this start in the holders of leases. It begins with the number of the node, by which other nodes see
    /// whether it still runs.
    pub(crate) fn start_of_holder(&self) -> String {
        format!("{}-{}", self.id, self.start)
    }

    /// The number of the node in the name of a holder. `None` for the holder of an import, a worker or an older version.
    pub(crate) fn id_of_holder(holder: &str) -> Option<i64> {
        let (_, start) = holder.rsplit_once('/')?;
        start.split_once('-')?.0.parse().ok()
    }
}

/// The domain of Beam. Cheap to clone.
#[derive(Clone)]
pub struct Beam {
    pub(crate) inner: Arc<BeamState>,
}

pub(crate) struct BeamState {
    pub(crate) engine: Engine,
    pub(crate) settings: BeamSettings,
    pub(crate) node: BeamNode,
    pub(crate) outbound: Outbound,
    pub(crate) sockets: Sockets,
    pub(crate) elsewhere: AgentsElsewhere,
    pub(crate) waiters: Waiters,
    pub(crate) unwaited: Unwaited,
    /// Intents per minute and sender.
    pub(crate) sender_rate: SenderRate,
    /// Intents per minute and client address that are not counted for their sender.
    pub(crate) uncharged_rate: SenderRate,
    /// Bytes per minute and client address of what strangers may have stored.
    pub(crate) stranger_bytes: RateLimit,
    pub(crate) bus: BusState,
    pub(crate) unknown_agents: UnknownAgents,
    pub(crate) agent_index: AgentIndex,
    pub(crate) agent_counts: KeptAgentCounts,
    pub(crate) counters: BeamCounters,
    started: Instant,
    /// Intents per minute and source directory.
    pub(crate) source_rate: SenderRate,
    /// Held while a number is drawn: many tasks that change one record at a time would exceed the tries of an update.
    pub(crate) numbering: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Beam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Beam")
    }
}

impl Beam {
    pub fn new(
        engine: Engine,
        settings: BeamSettings,
        node: BeamNode,
    ) -> Result<Self, consign_client::Error> {
        Ok(Self {
            inner: Arc::new(BeamState {
                outbound: Outbound::new(settings.guard.clone(), &OutboundOptions::default())?,
                sockets: Sockets::default(),
                elsewhere: AgentsElsewhere::default(),
                waiters: Waiters::default(),
                unwaited: Unwaited::default(),
                sender_rate: SenderRate::new(settings.rate_per_minute),
                uncharged_rate: SenderRate::new(
                    settings.rate_per_minute.saturating_mul(SENDERS_PER_SOURCE),
                ),
                stranger_bytes: RateLimit::new(0, settings.write_bytes_per_minute),
                bus: BusState::new(&settings.bus),
                unknown_agents: UnknownAgents::default(),
                agent_index: AgentIndex::default(),
                agent_counts: KeptAgentCounts::default(),
                counters: BeamCounters::default(),
                started: Instant::now(),
                source_rate: SenderRate::new(
                    settings.rate_per_minute.saturating_mul(SENDERS_PER_SOURCE),
                ),
                numbering: tokio::sync::Mutex::default(),
                engine,
                settings,
                node,
            }),
        })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub fn settings(&self) -> &BeamSettings {
        &self.inner.settings
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.inner.started.elapsed()
    }

    /// The holder of this node's leases.
    pub(crate) fn holder(&self) -> String {
        Recover::holder(&self.inner.node.name, &self.inner.node.start_of_holder())
    }

    /// The wall clock in milliseconds, which signatures and records show.
    pub(crate) fn now_ms(&self) -> i64 {
        self.engine().wall().0 / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_names_the_number_of_its_node() {
        let node = BeamNode {
            id: 7_000_000_001,
            name: "node-1".to_owned(),
            start: "00ff-2".to_owned(),
            shared: true,
        };
        let holder = Recover::holder(&node.name, &node.start_of_holder());
        assert_eq!(BeamNode::id_of_holder(&holder), Some(node.id));
        for other in ["imported/upstream", "k_0123456789abcdef", "node-1/00ff", ""] {
            assert_eq!(BeamNode::id_of_holder(other), None, "{other}");
        }
    }
}
