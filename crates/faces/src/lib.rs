//! Inbound HTTP: a folder per protocol, and the HTTP server code that they share.
//!
//! Invariant: a face parses and authorises a request, makes one engine call and renders the result; the rules are in
//! the kernel. Faces never import each other.

pub mod automation;
pub mod intent;
pub mod transaction;
pub mod web;
