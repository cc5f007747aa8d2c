//! The message bus that steps send to and whose messages start pipelines, and the meshes whose topics and queues do, as far as
//! the runtime needs them.
//!
//! Protocols do not know each other: the binary implements these traits with the message bus of Beam and the broker of the
//! mesh. What a message became is read from the ledger.

use std::fmt;
use std::pin::Pin;

use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use serde_json::Value;

use crate::config::model::MeshSource;

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

/// The result of [`MeshWork::open`] and [`MeshWork::close_others`]; an error is for the log.
pub type MeshFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Keeps the posts to topics and the items of named queues until they are claimed.
pub trait MeshWork: fmt::Debug + Send + Sync {
    /// Where the items of this source are claimed; `None` if they cannot be.
    fn inbox(&self, source: &MeshSource) -> Option<MessageInbox>;

    /// From now on, the inbox gets every item of the source. Once it does, repeating this has no effect.
    fn open<'a>(&'a self, source: &'a MeshSource) -> MeshFuture<'a>;

    /// Ends what `open` began for all other sources.
    fn close_others<'a>(&'a self, sources: &'a [MeshSource]) -> MeshFuture<'a>;

    /// The members of a claimed item; `None` if it does not belong to the source.
    fn read(&self, row: &Intent, source: &MeshSource) -> Option<Value>;
}

/// Rows of one owner that are messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageInbox {
    pub face: Face,
    /// The namespace of the rows.
    pub namespace: String,
    pub owner: String,
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
