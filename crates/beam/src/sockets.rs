//! The agents and the readers of the intent feed that are connected to this node.
//!
//! Invariant: an agent has at most one socket; a new one replaces the old one, which is closed.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_kernel::plant::{self, Plant};
use consign_web::websocket::{CloseCode, SocketSender};

use crate::directory::records::Agent;

/// The code for a client that breaks a rule of the protocol.
pub(crate) const POLICY_VIOLATION: CloseCode = CloseCode(1008);
/// The code for a socket that the server gives up.
const GOING_AWAY: CloseCode = CloseCode(1001);
/// The code for a client that reads too slowly.
pub(crate) const TRY_AGAIN_LATER: CloseCode = CloseCode(1013);

const OUTDATED: &str = "The agent or its API key was replaced";

#[derive(Debug, Default)]
pub(crate) struct Sockets {
    last: AtomicU64,
    agents: Mutex<HashMap<String, AgentSocket>>,
    /// The numbers of connections that are being made: other nodes may know of them already.
    connecting: Mutex<BTreeSet<u64>>,
    feeds: Mutex<FeedReaders>,
}

#[derive(Debug, Default)]
struct FeedReaders {
    readers: HashMap<u64, FeedReader>,
    /// A task reads the facts of all nodes for them.
    is_followed: bool,
}

/// The agent of a connection, as it was registered when the connection opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectedAgent {
    pub(crate) beam_id: String,
    /// See [`Agent::since_us`].
    pub(crate) since_us: i64,
    /// The digest of the API key that it presented.
    pub(crate) api_key_hash: Option<String>,
}

impl ConnectedAgent {
    pub(crate) fn of(agent: &Agent, by_api_key: bool) -> Self {
        Self {
            beam_id: agent.beam_id.clone(),
            since_us: agent.since_us,
            api_key_hash: agent.api_key_hash.clone().filter(|_| by_api_key),
        }
    }

    /// Whether the connection may go on: the agent was not deleted and registered anew, and its API key was not replaced.
    fn is_still(&self, agent: &Agent) -> bool {
        let is_same_key = self.api_key_hash.is_none() || self.api_key_hash == agent.api_key_hash;
        self.beam_id == agent.beam_id && self.since_us == agent.since_us && is_same_key
    }
}

#[derive(Debug)]
struct AgentSocket {
    connection: u64,
    agent: ConnectedAgent,
    sender: SocketSender,
}

#[derive(Debug)]
struct FeedReader {
    sender: SocketSender,
    /// The agent whose intents it sees; all intents if there is none.
    only: Option<ConnectedAgent>,
}

/// A connection that is being made, until this is dropped.
#[derive(Debug)]
pub(crate) struct Connecting<'a> {
    sockets: &'a Sockets,
    number: u64,
}

impl Connecting<'_> {
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.sockets.connecting().remove(&self.number);
    }
}

/// The agent has no socket here, or reads too slowly to get more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotConnected;

impl Sockets {
    pub(crate) fn begin_connecting(&self) -> Connecting<'_> {
        let number = self.next();
        self.connecting().insert(number);
        Connecting {
            sockets: self,
            number,
        }
    }

    pub(crate) fn is_connecting(&self, connection: u64) -> bool {
        self.connecting().contains(&connection)
    }

    /// Connects an agent. The greeting is its first message, and when the agent reads it, it is connected.
    pub(crate) fn connect(
        &self,
        agent: ConnectedAgent,
        connection: u64,
        sender: SocketSender,
        greeting: String,
    ) -> Result<(), NotConnected> {
        let mut agents = self.agents();
        sender.try_send(greeting).map_err(|_| NotConnected)?;
        let beam_id = agent.beam_id.clone();
        let socket = AgentSocket {
            connection,
            agent,
            sender,
        };
        let replaced = agents.insert(beam_id, socket);
        drop(agents);
        if let Some(replaced) = replaced.filter(|_| !plant::on(Plant::ReplacedSocketStays)) {
            let reason = "Replaced by new connection";
            replaced.sender.close(GOING_AWAY, reason);
        }
        Ok(())
    }

    /// Returns whether the connection was still the current one of the agent.
    pub(crate) fn disconnect(&self, beam_id: &str, connection: u64) -> bool {
        let mut agents = self.agents();
        let current = agents.get(beam_id);
        let is_current = current.is_some_and(|socket| socket.connection == connection);
        if is_current {
            agents.remove(beam_id);
        }
        is_current
    }

    /// Closes the socket of an agent that has connected to another node, unless it has a newer one here.
    pub(crate) fn replace_by_other_node(&self, beam_id: &str, connection: u64) {
        let mut agents = self.agents();
        if let Some(socket) = agents.get(beam_id)
            && socket.connection == connection
        {
            socket
                .sender
                .close(GOING_AWAY, "Replaced by new connection");
            agents.remove(beam_id);
        }
    }

    /// Closes the connections of an agent that was deleted.
    pub(crate) fn remove_agent(&self, beam_id: &str) {
        self.close_of(beam_id, "The agent was deleted", |_| true);
    }

    /// Closes the connections of earlier agents with this id, and those that were opened with an API key that has been
    /// replaced.
    pub(crate) fn close_outdated(&self, agent: &Agent) {
        self.close_of(&agent.beam_id, OUTDATED, |connected| {
            !connected.is_still(agent)
        });
    }

    fn close_of(&self, beam_id: &str, reason: &str, is_over: impl Fn(&ConnectedAgent) -> bool) {
        let mut agents = self.agents();
        if let Some(socket) = agents.get(beam_id)
            && is_over(&socket.agent)
        {
            socket.sender.close(POLICY_VIOLATION, reason);
            agents.remove(beam_id);
        }
        drop(agents);
        self.feeds().readers.retain(|_, reader| {
            let only = reader.only.as_ref();
            let is_closed = only.is_some_and(|only| only.beam_id == beam_id && is_over(only));
            if is_closed {
                reader.sender.close(POLICY_VIOLATION, reason);
            }
            !is_closed
        });
    }

    /// The agents with a connection here, of either kind.
    pub(crate) fn connected_ids(&self) -> BTreeSet<String> {
        let mut ids: BTreeSet<String> = self.agents().keys().cloned().collect();
        let feeds = self.feeds();
        let followed = feeds.readers.values();
        ids.extend(followed.filter_map(|reader| Some(reader.only.as_ref()?.beam_id.clone())));
        ids
    }

    pub(crate) fn is_connected(&self, beam_id: &str) -> bool {
        let agents = self.agents();
        agents
            .get(beam_id)
            .is_some_and(|socket| !socket.sender.is_closed())
    }

    /// The number of the agent's connection.
    pub(crate) fn connection_of(&self, beam_id: &str) -> Option<u64> {
        Some(self.agents().get(beam_id)?.connection)
    }

    /// Whether the connection is still that of the agent.
    pub(crate) fn is_current(&self, beam_id: &str, connection: u64) -> bool {
        self.connection_of(beam_id) == Some(connection)
    }

    /// The agents and the numbers of their connections.
    pub(crate) fn connections(&self) -> Vec<(String, u64)> {
        let agents = self.agents();
        let each = agents.iter();
        each.map(|(beam_id, socket)| (beam_id.clone(), socket.connection))
            .collect()
    }

    pub(crate) fn agent_count(&self) -> usize {
        self.agents().len()
    }

    /// Queues a message for an agent. A client that does not read is disconnected.
    pub(crate) fn send(&self, recipient: &Agent, text: String) -> Result<(), NotConnected> {
        self.close_outdated(recipient);
        let sender = match self.agents().get(&recipient.beam_id) {
            Some(socket) => socket.sender.clone(),
            None => return Err(NotConnected),
        };
        sender.try_send(text).map_err(|_| {
            sender.close_now(TRY_AGAIN_LATER, "Slow reader");
            NotConnected
        })
    }

    /// Adds a reader of the intent feed. Without an agent it sees all intents.
    pub(crate) fn add_feed(&self, sender: SocketSender, only: Option<ConnectedAgent>) -> u64 {
        let number = self.next();
        let reader = FeedReader { sender, only };
        self.feeds().readers.insert(number, reader);
        number
    }

    pub(crate) fn remove_feed(&self, number: u64) {
        self.feeds().readers.remove(&number);
    }

    pub(crate) fn feed_count(&self) -> usize {
        self.feeds().readers.len()
    }

    pub(crate) fn has_feeds(&self) -> bool {
        !self.feeds().readers.is_empty()
    }

    /// Whether the caller has to follow the facts for the readers; false if another task does.
    pub(crate) fn begin_following(&self) -> bool {
        !std::mem::replace(&mut self.feeds().is_followed, true)
    }

    /// Whether the task that follows the facts may end, because there is no reader.
    pub(crate) fn ends_following(&self) -> bool {
        let mut feeds = self.feeds();
        if feeds.readers.is_empty() {
            feeds.is_followed = false;
        }
        feeds.readers.is_empty()
    }

    /// Sends an event about an intent between these two to the readers that may see it.
    pub(crate) fn publish(&self, from: &str, to: &str, text: &Arc<str>) {
        let mut feeds = self.feeds();
        feeds.readers.retain(|_, reader| {
            let sees = |only: &ConnectedAgent| only.beam_id == from || only.beam_id == to;
            if reader.only.as_ref().is_some_and(|only| !sees(only)) {
                return true;
            }
            let sent = reader.sender.try_send(Arc::clone(text));
            if sent.is_err() {
                reader.sender.close_now(TRY_AGAIN_LATER, "Slow reader");
            }
            sent.is_ok()
        });
    }

    /// The number of a new connection.
    pub(crate) fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn agents(&self) -> MutexGuard<'_, HashMap<String, AgentSocket>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connecting(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        let connecting = self.connecting.lock();
        connecting.unwrap_or_else(PoisonError::into_inner)
    }

    fn feeds(&self) -> MutexGuard<'_, FeedReaders> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
