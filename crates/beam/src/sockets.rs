//! The agents and the readers of the intent feed that are connected to this node.
//!
//! Invariant: an agent has at most one socket; a new one replaces the old one, which is closed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_web::websocket::{CloseCode, SocketSender};

/// The code for a client that breaks a rule of the protocol.
pub(crate) const POLICY_VIOLATION: CloseCode = CloseCode(1008);
/// The code for a socket that the server gives up.
const GOING_AWAY: CloseCode = CloseCode(1001);
/// The code for a client that reads too slowly.
const TRY_AGAIN_LATER: CloseCode = CloseCode(1013);

#[derive(Debug, Default)]
pub(crate) struct Sockets {
    last: AtomicU64,
    agents: Mutex<HashMap<String, AgentSocket>>,
    feeds: Mutex<HashMap<u64, FeedReader>>,
}

#[derive(Debug)]
struct AgentSocket {
    connection: u64,
    sender: SocketSender,
}

#[derive(Debug)]
struct FeedReader {
    sender: SocketSender,
    /// The agent whose intents it sees; all intents if there is none.
    only: Option<String>,
}

/// The agent has no socket here, or reads too slowly to get more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotConnected;

impl Sockets {
    /// Connects an agent. The greeting is its first message, and when the agent reads it, it is connected.
    pub(crate) fn connect(
        &self,
        beam_id: &str,
        connection: u64,
        sender: SocketSender,
        greeting: String,
    ) -> Result<(), NotConnected> {
        let mut agents = self.agents();
        sender.try_send(greeting).map_err(|_| NotConnected)?;
        let socket = AgentSocket { connection, sender };
        let replaced = agents.insert(beam_id.to_owned(), socket);
        drop(agents);
        if let Some(replaced) = replaced {
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

    /// Closes the socket of an agent that was deleted.
    pub(crate) fn remove_agent(&self, beam_id: &str) {
        if let Some(socket) = self.agents().remove(beam_id) {
            socket
                .sender
                .close(POLICY_VIOLATION, "The agent was deleted");
        }
    }

    pub(crate) fn is_connected(&self, beam_id: &str) -> bool {
        let agents = self.agents();
        agents
            .get(beam_id)
            .is_some_and(|socket| !socket.sender.is_closed())
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
    pub(crate) fn send(&self, beam_id: &str, text: String) -> Result<(), NotConnected> {
        let sender = match self.agents().get(beam_id) {
            Some(socket) => socket.sender.clone(),
            None => return Err(NotConnected),
        };
        sender.try_send(text).map_err(|_| {
            sender.close_now(TRY_AGAIN_LATER, "Slow reader");
            NotConnected
        })
    }

    /// Adds a reader of the intent feed. Without an agent it sees all intents.
    pub(crate) fn add_feed(&self, sender: SocketSender, only: Option<String>) -> u64 {
        let number = self.next();
        self.feeds().insert(number, FeedReader { sender, only });
        number
    }

    pub(crate) fn remove_feed(&self, number: u64) {
        self.feeds().remove(&number);
    }

    pub(crate) fn feed_count(&self) -> usize {
        self.feeds().len()
    }

    pub(crate) fn has_feeds(&self) -> bool {
        !self.feeds().is_empty()
    }

    /// Sends an event about an intent between these two to the readers that may see it.
    pub(crate) fn publish(&self, from: &str, to: &str, text: &Arc<str>) {
        let mut feeds = self.feeds();
        feeds.retain(|_, reader| {
            let sees = |only: &String| only == from || only == to;
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

    fn feeds(&self) -> MutexGuard<'_, HashMap<u64, FeedReader>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
