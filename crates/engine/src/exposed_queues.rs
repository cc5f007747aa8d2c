//! Queues of other protocols that workers of the Intent Protocol may serve, each under a reserved namespace.
//!
//! A protocol that owns such queues implements [`ExposedQueues`]; the Intent Protocol asks it which rows a claim takes and how
//! a worker sees them. Neither knows the other. Who may claim is a matter of grants, see [`crate::GrantInfo`].

use std::fmt::Debug;

use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};

/// The queues of one protocol.
pub trait ExposedQueues: Debug + Send + Sync {
    /// What the namespaces of all of them begin with, such as `beam.`.
    fn prefix(&self) -> &'static str;

    /// The rows under a namespace that begins with the prefix.
    fn find(&self, namespace: &str) -> Result<ExposedQueue, InvalidQueueName>;

    /// Whether a row belongs to one of them.
    fn owns(&self, profile: ProfileId) -> bool;

    /// A claimed row as a worker sees it.
    fn item(&self, row: &Intent) -> ExposedItem;
}

/// The rows that a claim takes: those of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExposedQueue {
    pub face: Face,
    /// The namespace in which the rows are stored.
    pub namespace: String,
    pub owner: String,
}

/// No queue can have this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidQueueName(pub String);

/// What a worker sees of a row instead of its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExposedItem {
    /// The reserved namespace.
    pub namespace: String,
    /// JSON.
    pub payload: String,
    /// Where the row comes from: names and texts. A text that is absent is `None`.
    pub source: Vec<(&'static str, Option<String>)>,
}
