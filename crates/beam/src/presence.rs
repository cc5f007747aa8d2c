//! To which node an agent is connected, for the other nodes of the ledger.
//!
//! Invariant: the records of a node that runs agree with its sockets, or become so with the next read: a record whose write
//! failed is written then, and one whose removal failed is removed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use consign_engine::{Error, Versioned};
use consign_kernel::record::Kind;
use consign_web::websocket::SocketSender;
use tokio::sync::watch;

use crate::directory::records::{Agent, BeamPresence, PAGE};
use crate::service::Beam;
use crate::sockets::ConnectedAgent;

/// How often this node reads where agents are connected.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// The share of its time that it reads at most: a read that took a second is followed by twenty without one.
const PAUSE_PER_READ: u32 = 20;

/// The agents that are connected to other nodes, as of the last read. Empty if the ledger belongs to one node.
#[derive(Debug, Default)]
pub(crate) struct AgentsElsewhere(Mutex<Arc<HashSet<String>>>);

impl AgentsElsewhere {
    pub(crate) fn current(&self) -> Arc<HashSet<String>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, agents: HashSet<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(agents);
    }
}

/// Where agents are connected, as of one read.
#[derive(Debug, Default)]
struct PresenceRead {
    /// The agents that are connected to other live nodes.
    elsewhere: HashSet<String>,
    /// The records of this node.
    own: HashMap<String, Versioned<BeamPresence>>,
}

/// A connection of an agent to this node.
#[derive(Debug)]
pub(crate) struct AgentPresence {
    number: u64,
    /// Ends the claims for the agent.
    _left: watch::Sender<()>,
}

impl Beam {
    /// Connects an agent and greets it. `None` if it has left already.
    pub(crate) async fn connect_agent(
        &self,
        agent: &ConnectedAgent,
        sender: SocketSender,
        greeting: String,
    ) -> Option<AgentPresence> {
        let beam_id = &agent.beam_id;
        let sockets = &self.inner.sockets;
        let connecting = sockets.begin_connecting();
        let number = connecting.number();
        if self.inner.node.shared
            && let Err(error) = self.put_presence(beam_id, number).await
        {
            tracing::warn!(%error, beam_id, "other nodes do not know yet where an agent is connected");
        }
        sockets
            .connect(agent.clone(), number, sender, greeting)
            .ok()?;
        drop(connecting);
        let (left, leave) = watch::channel(());
        if self.inner.node.shared {
            let (beam, beam_id) = (self.clone(), beam_id.clone());
            tokio::spawn(async move { beam.serve_lane(&beam_id, leave).await });
        }
        Some(AgentPresence {
            number,
            _left: left,
        })
    }

    pub(crate) async fn disconnect_agent(&self, beam_id: &str, connection: AgentPresence) {
        let was_current = self.inner.sockets.disconnect(beam_id, connection.number);
        if self.inner.node.shared
            && was_current
            && let Err(error) = self.remove_presence(beam_id, connection.number).await
        {
            tracing::warn!(%error, beam_id, "an agent that left is still recorded as connected");
        }
    }

    async fn put_presence(&self, beam_id: &str, connection: u64) -> Result<(), Error> {
        let presence = BeamPresence {
            node: self.inner.node.id,
            connection,
        };
        let key = BeamPresence::key(beam_id);
        self.engine()
            .put(consign_engine::new_put(key, &presence))
            .await?;
        Ok(())
    }

    async fn remove_presence(&self, beam_id: &str, connection: u64) -> Result<(), Error> {
        let own = BeamPresence {
            node: self.inner.node.id,
            connection,
        };
        let key = BeamPresence::key(beam_id);
        self.engine()
            .update(key, |presence: &mut BeamPresence| -> Result<(), Error> {
                if *presence == own {
                    *presence = BeamPresence::default();
                }
                Ok(())
            })
            .await
    }

    /// Whether an agent is connected to any node.
    pub(crate) async fn is_agent_connected(&self, beam_id: &str) -> Result<bool, Error> {
        if self.inner.sockets.is_connected(beam_id) {
            return Ok(true);
        }
        self.has_presence_elsewhere(beam_id).await
    }

    /// Whether another live node has the socket of an agent.
    pub(crate) async fn has_presence_elsewhere(&self, beam_id: &str) -> Result<bool, Error> {
        if !self.inner.node.shared {
            return Ok(false);
        }
        let key = BeamPresence::key(beam_id);
        match self.engine().load::<BeamPresence>(key).await? {
            Some(presence) => self.is_at_other_node(&presence.value).await,
            None => Ok(false),
        }
    }

    async fn is_at_other_node(&self, presence: &BeamPresence) -> Result<bool, Error> {
        let is_other = presence.node != 0 && presence.node != self.inner.node.id;
        Ok(is_other && self.engine().is_node_beating(presence.node).await?)
    }

    /// Whether an agent is connected to any node, as of a few seconds ago for other nodes.
    pub(crate) fn was_agent_connected(&self, beam_id: &str) -> bool {
        self.inner.sockets.is_connected(beam_id) || self.inner.elsewhere.current().contains(beam_id)
    }

    /// The number of agents that are connected to any node, as of a few seconds ago for other nodes.
    pub(crate) fn connected_agents(&self) -> usize {
        let here = self.inner.sockets.agent_count();
        let elsewhere = self.inner.elsewhere.current();
        let sockets = &self.inner.sockets;
        let others = elsewhere.iter().filter(|id| !sockets.is_connected(id));
        here + others.count()
    }

    /// Reads again and again where agents are connected, closes sockets whose agents have connected to another node since,
    /// and corrects the records of this node. Runs until the process ends.
    pub async fn watch_presence(self) {
        if !self.inner.node.shared {
            return;
        }
        loop {
            let began = Instant::now();
            // Listed before the read: a connection that is made meanwhile may have an older record.
            let connections = self.inner.sockets.connections();
            match self.read_presence().await {
                Ok(read) => {
                    for (beam_id, connection) in &connections {
                        if read.elsewhere.contains(beam_id) {
                            let sockets = &self.inner.sockets;
                            sockets.replace_by_other_node(beam_id, *connection);
                        }
                    }
                    if let Err(error) = self.correct_presence(&read, &connections).await {
                        tracing::debug!(%error, "other nodes do not know yet where agents are connected");
                    }
                    self.inner.elsewhere.replace(read.elsewhere);
                }
                Err(error) => {
                    tracing::debug!(%error, "it is unknown where agents are connected");
                }
            }
            if let Err(error) = self.close_outdated_connections().await {
                tracing::debug!(%error, "it is unknown whether connected agents were deleted");
            }
            let pause = began.elapsed() * PAUSE_PER_READ;
            tokio::time::sleep(pause.max(CHECK_EVERY)).await;
        }
    }

    /// Writes the records of this node's connections that are missing, and removes those of connections that are gone. A record
    /// that was changed since it was read is left to the next read.
    async fn correct_presence(
        &self,
        read: &PresenceRead,
        connections: &[(String, u64)],
    ) -> Result<(), Error> {
        let sockets = &self.inner.sockets;
        for (beam_id, connection) in connections {
            let own = BeamPresence {
                node: self.inner.node.id,
                connection: *connection,
            };
            let is_recorded = read
                .own
                .get(beam_id)
                .is_some_and(|stored| stored.value == own);
            if is_recorded || read.elsewhere.contains(beam_id) {
                continue;
            }
            // It is read again, because the records of connections that are over are not among those that were read.
            let key = BeamPresence::key(beam_id);
            let stored = self.engine().load_or_default::<BeamPresence>(key).await?;
            let is_taken = sockets.is_connecting(stored.value.connection)
                && stored.value.node == own.node
                || self.is_at_other_node(&stored.value).await?;
            if !is_taken && sockets.is_current(beam_id, *connection) {
                self.correct_record(beam_id, stored.version, &own).await?;
            }
        }
        for (beam_id, stored) in &read.own {
            // In this order: a connection that is no longer being made has its socket by now, or has ended.
            let is_needed = sockets.is_connecting(stored.value.connection)
                || sockets.connection_of(beam_id).is_some();
            if !is_needed {
                let none = BeamPresence::default();
                self.correct_record(beam_id, stored.version, &none).await?;
            }
        }
        Ok(())
    }

    async fn correct_record(
        &self,
        beam_id: &str,
        version: u64,
        presence: &BeamPresence,
    ) -> Result<(), Error> {
        let mut record = Versioned::new(BeamPresence::key(beam_id), presence);
        record.version = version;
        self.engine().put_if_unchanged(record.put()).await?;
        Ok(())
    }

    /// Closes connections of agents that another node has deleted, or whose API key it has replaced.
    async fn close_outdated_connections(&self) -> Result<(), Error> {
        let ids: Vec<String> = self.inner.sockets.connected_ids().into_iter().collect();
        for ids in ids.chunks(PAGE as usize) {
            let keys = ids.iter().map(|id| Agent::key(id)).collect();
            let found = self.engine().records_by_key(keys).await?;
            let mut gone: BTreeSet<&String> = ids.iter().collect();
            for record in found {
                let agent = Versioned::<Agent>::read(record)?.value;
                gone.remove(&agent.beam_id);
                self.inner.sockets.close_outdated(&agent);
            }
            for beam_id in gone {
                self.inner.sockets.remove_agent(beam_id);
            }
        }
        Ok(())
    }

    /// Reads the records of all agents.
    async fn read_presence(&self) -> Result<PresenceRead, Error> {
        let (mut read, mut after) = (PresenceRead::default(), String::new());
        let mut alive: HashMap<i64, bool> = HashMap::new();
        loop {
            let kind = Kind::BeamPresence;
            let page = self.engine().records(kind, "", &after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                after.clone_from(&record.key.name);
                let beam_id = record.key.name.clone();
                let presence = Versioned::<BeamPresence>::read(record)?;
                let node = presence.value.node;
                if node == self.inner.node.id {
                    read.own.insert(beam_id, presence);
                    continue;
                }
                let mut is_alive = alive.get(&node).copied();
                if is_alive.is_none() {
                    is_alive = Some(self.is_at_other_node(&presence.value).await?);
                    alive.insert(node, is_alive == Some(true));
                }
                if is_alive == Some(true) {
                    read.elsewhere.insert(beam_id);
                }
            }
            if is_last {
                return Ok(read);
            }
        }
    }
}
