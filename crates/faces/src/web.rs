//! The ground all HTTP faces stand on: listener, TLS, bodies, credentials and the layers around
//! every router.
//!
//! Invariant: nothing in here knows a protocol's routes or error bodies; what must differ per
//! protocol is passed in as a value. It does not read configuration either: each part takes an
//! `Options` value or plain arguments.

pub mod access_log;
pub mod body;
pub mod body_budget;
pub mod channel_body;
pub mod credentials;
pub mod cross_site;
pub mod empty;
pub mod headers;
pub mod layers;
pub mod listener_policy;
pub mod panic;
pub mod presence;
pub mod proxy;
pub mod request_id;
pub mod secret_text;
pub mod server;
pub mod throttle;
pub mod tls;
pub mod unix;

mod connections;
mod linger;
mod stall;
mod unreadable;
