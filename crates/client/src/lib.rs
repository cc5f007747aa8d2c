//! The HTTP client that the command line, the load generator, the payment rails and tests use.
//!
//! It speaks HTTP/1.1 to one server, signs requests the way the Intent Protocol asks, and offers
//! one typed call per route. Invariants: a request is repeated only when nothing of it was sent; no
//! key appears in `Debug` or in an error; every answer has a size limit and every call a time
//! limit. It follows no redirects (a key must not travel to a host nobody named), speaks no HTTP/2,
//! and holds no rules about intents.

mod address;
mod admin;
mod call;
mod client;
mod connection;
mod error;
mod events;
mod intents;
mod key;
mod kv;
mod operator;
mod query;
mod settle;
mod sign;
mod tls;
mod wire;

pub use address::Address;
pub use client::{ANSWER_BYTES_MAX, Client, Options, Response};
pub use error::Error;
pub use events::{Event, Events};
pub use intents::{Claim, Output, Publish, PublishItem};
pub use key::Key;
pub use operator::ListFilter;
pub use query::encode as percent_encode;
pub use settle::{ClaimNext, ItemOutcome, Settled, Settlement};
pub use sign::{canonical_query, signature};
pub use wire::{
    Claimed, Extended, Fact, IntentResult, IntentStatus, KeyInfo, ListPage, NewKey, NodeInfo,
    Published, ServerError, Timeline,
};

pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
pub use hyper::body::Bytes;
