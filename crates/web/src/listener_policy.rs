//! The access rules of a listener that apply to every face: HTTPS only, and maintenance.
//!
//! Each face decides which requests are exempt and how the refusal looks.

use http::{Extensions, HeaderMap};

use super::proxy::Origin;
use super::server::Peer;

#[derive(Clone, Copy, Debug, Default)]
pub struct ListenerPolicy {
    /// Whether one hop of forwarding headers is trusted.
    pub trust_proxy: bool,
    pub enforce_https: bool,
    pub maintenance: bool,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    PlainHttp,
    Maintenance,
}

impl ListenerPolicy {
    /// Whether any request can be refused.
    pub const fn restricts_access(self) -> bool {
        self.enforce_https || self.maintenance
    }

    /// Where HTTPS is enforced, a request must be encrypted or come from this machine.
    pub fn check_transport(
        self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<(), Closed> {
        let origin = || {
            let peer = extensions.get::<Peer>()?;
            Some(Origin::of(*peer, headers, self.trust_proxy))
        };
        if self.enforce_https && !origin().is_some_and(|origin| origin.https || origin.loopback) {
            return Err(Closed::PlainHttp);
        }
        Ok(())
    }

    pub const fn check_open(self) -> Result<(), Closed> {
        if self.maintenance {
            return Err(Closed::Maintenance);
        }
        Ok(())
    }
}
