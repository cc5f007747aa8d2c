//! Outgoing HTTP calls to addresses that agents, peers or the operator chose.
//!
//! [`TargetUrl`] reads a URL in one way only, [`AddressGuard`] decides whether it may be called and at which addresses, and
//! [`Outbound`] calls it within limits on time, size and number. Invariant: without a [`CheckedTarget`] no connection is
//! opened. Redirects are not followed, and nothing is retried here.

mod call;
mod guard;
mod public;
mod request;
mod resolve;
mod slots;
mod url;

pub use call::{
    CallLimits, Outbound, OutboundError, OutboundOptions, OutboundResponse,
    RELAY_RESPONSE_BYTES_MAX,
};
pub use guard::{AddressGuard, AllowedTargets, AllowedTargetsError, CheckedTarget, GuardError};
pub use request::OutboundRequest;
pub use resolve::{LookupFuture, NameResolver, SystemResolver};
pub use url::{TargetAuthority, TargetHost, TargetUrl, UrlError};
