//! Beam: a directory of agents, signed intents between them, and a message bus, over the ledger.

pub mod api_key;
pub mod did;
pub mod frame;
pub mod keys;
pub mod signed_text;
pub mod text;
pub mod timestamp;
