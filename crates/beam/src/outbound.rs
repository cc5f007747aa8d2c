//! Outgoing HTTP calls to addresses that agents, peers or the operator chose.
//!
//! [`TargetUrl`] reads a URL in one way only.

mod url;

pub use url::{TargetAuthority, TargetHost, TargetUrl, UrlError};
