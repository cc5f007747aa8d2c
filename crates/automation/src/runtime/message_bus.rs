//! The message bus that steps send to and whose messages start pipelines, as far as the runtime needs it.
//!
//! Protocols do not know each other: the binary implements this trait with the message bus of Beam. What a message became is
//! read from the ledger.

use std::fmt;
use std::pin::Pin;

use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;

/// The result of [`MessageBus::send`].
pub type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<IntentId, SendError>> + Send + 'a>>;

/// Keeps and delivers messages between agents.
pub trait MessageBus: fmt::Debug + Send + Sync {
    /// Whether the bus has the key of this sender. Messages of others would be refused.
    fn signs_for(&self, sender: &str) -> bool;

    /// Stores a message, attempts its delivery once, and returns its row. The same message with the same nonce is stored and
    /// delivered once, and returns the same row; another message with that nonce is [`SendError::Refused`].
    fn send(&self, message: OutgoingMessage) -> SendFuture<'_>;

    /// Where the messages of this agent are claimed; `None` if they cannot be.
    fn inbox(&self, agent: &str) -> Option<MessageInbox>;

    /// A claimed row as a message; `None` if it is none.
    fn read(&self, row: &Intent) -> Option<IncomingMessage>;
}

/// The rows of the messages of one agent, whose owner is the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageInbox {
    pub face: Face,
    /// The namespace of the rows.
    pub namespace: String,
    /// The reserved namespace for which a claim needs a grant.
    pub granted: String,
}

/// What a message has besides the columns of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingMessage {
    pub sender: String,
    /// A JSON object.
    pub payload: String,
    pub nonce: String,
    pub trace_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingMessage {
    pub sender: String,
    pub recipient: String,
    pub intent: String,
    /// A JSON object.
    pub payload: String,
    pub nonce: String,
    pub trace_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The message is invalid, and so is every repetition of it.
    #[error("{0}")]
    Refused(String),
    /// The message was not stored; the same message can be sent later.
    #[error("{0}")]
    Unavailable(String),
}
