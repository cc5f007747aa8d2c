//! The two switches of a server that hold for every face: HTTPS alone, and maintenance.
//!
//! Which requests they do not concern is each face's own to say, and so is how a refusal looks.

use http::{Extensions, HeaderMap};

use super::proxy::Origin;
use super::server::Peer;

#[derive(Clone, Copy, Debug, Default)]
pub struct ListenerPolicy {
    /// Whether one hop of forwarding headers is believed.
    pub trust_proxy: bool,
    pub enforce_https: bool,
    pub maintenance: bool,
}

/// Why nobody looked at the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    PlainHttp,
    Maintenance,
}

impl ListenerPolicy {
    /// Whether it ever refuses anybody.
    pub const fn restricts_access(self) -> bool {
        self.enforce_https || self.maintenance
    }

    /// Where HTTPS is enforced, a request must be encrypted, or from a program on this machine.
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
