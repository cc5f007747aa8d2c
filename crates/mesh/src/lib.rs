//! The mesh: messages between hosts through a broker, accepted once and sealed by their senders.
//!
//! [`broker`] and [`daemon`] do the work; everything else are rules as plain values and functions, which read no clock, no
//! file, no socket and no ledger. [`fingerprint`] and [`accept`] decide what the broker accepts, [`outbox`] what the daemon
//! answers, [`features`] whether they work together; [`nacl`] encrypts. Frames of the WebSocket are in [`frame`], the broker's
//! routes in [`http`], the bodies of the daemon's local interface in [`ipc`].

pub mod accept;
pub mod audience;
pub mod body;
pub mod broker;
pub mod client_message_id;
pub mod close;
pub mod concurrent;
pub mod config;
pub mod daemon;
pub mod destination;
pub mod environment;
pub mod features;
pub mod fingerprint;
pub mod frame;
pub mod hello;
pub mod hook_event;
pub mod host_fingerprint;
pub mod http;
pub mod id;
pub mod invite;
pub mod ipc;
pub mod joined;
pub mod key_files;
pub mod keys;
pub mod limits;
pub mod max_age;
pub mod mention;
pub mod meta;
pub mod nacl;
pub mod outbox;
pub mod priority;
pub mod query;
pub mod reconnect;
pub mod requeue;
pub mod role;
pub mod rotation;
pub mod signed_text;
pub mod topic_key;
pub mod ulid;
