//! Inbound HTTP: a folder per protocol, and the web ground they share.
//!
//! Invariant: a face parses and authorises, makes one engine call and renders; rules live in the kernel.
//! Faces never import each other.

pub mod automation;
pub mod intent;
pub mod transaction;
pub mod web;
