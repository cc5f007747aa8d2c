//! Beam: a directory of agents, signed intents between them, and a message bus, over the ledger.
//!
//! The rules of the protocol are plain values and functions: identifiers, frames and signatures, the lifecycle, the
//! catalog, access rules. [`service::Beam`] applies them to the ledger: `directory` keeps agents, `relay` delivers intents,
//! `bus` keeps and retries messages.
//! Wire formats and status codes are in [`http`] alone.

pub mod acl;
pub mod api_key;
pub mod beam_id;
pub mod bus;
pub mod catalog;
mod counters;
pub mod did;
pub mod directory;
pub mod federation;
mod feed;
pub mod frame;
mod housekeeping;
pub mod http;
pub mod import;
pub mod keys;
pub mod lifecycle;
pub mod observe;
pub mod outbound;
pub mod overview;
mod presence;
pub mod problem;
mod reads;
pub mod relay;
pub mod replay;
pub mod retryable;
mod sender_rate;
pub mod service;
pub mod sessions;
pub mod settings;
pub mod signed_text;
mod sockets;
pub mod text;
pub mod timestamp;
pub mod trust;
