//! Beam: a directory of agents, signed intents between them, and a message bus, over the ledger.

pub mod acl;
pub mod api_key;
pub mod beam_id;
pub mod catalog;
pub mod keys;
pub mod lifecycle;
pub mod outbound;
pub mod overview;
pub mod replay;
pub mod retryable;
pub mod text;
pub mod timestamp;
pub mod trust;
