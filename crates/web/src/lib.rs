//! The HTTP server code that all faces share: listener, TLS, bodies, credentials and the layers around every router.
//!
//! Invariant: this crate knows no routes and no error bodies of a protocol; protocol-specific parts are passed in as
//! values, or by a [`shell::Mount`]. It does not read configuration: each part takes an `Options` value or plain arguments.

pub mod access_log;
pub mod body;
pub mod body_budget;
pub mod channel_body;
pub mod credentials;
pub mod cross_site;
pub mod empty;
pub mod error_status;
pub mod headers;
pub mod html;
pub mod http_meter;
pub mod json_out;
pub mod layers;
pub mod listener_policy;
pub mod openapi;
pub mod operator;
pub mod operator_guard;
pub mod panic;
pub mod presence;
pub mod proxy;
pub mod rate_limit;
pub mod reject;
pub mod request_id;
pub mod secret_text;
pub mod server;
pub mod shell;
pub mod sse;
pub mod throttle;
pub mod tls;
pub mod unix;
pub mod websocket;

mod connections;
mod linger;
mod stall;
mod unreadable;
