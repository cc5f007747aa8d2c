//! Outgoing HTTP calls to addresses that agents, peers or the operator chose.
//!
//! [`TargetUrl`] reads a URL in one way only, and [`AddressGuard`] decides whether it may be called and at which addresses.

mod guard;
mod public;
mod resolve;
mod url;

pub use guard::{AddressGuard, AllowedTargets, AllowedTargetsError, CheckedTarget, GuardError};
pub use resolve::{LookupFuture, NameResolver, SystemResolver};
pub use url::{TargetAuthority, TargetHost, TargetUrl, UrlError};
