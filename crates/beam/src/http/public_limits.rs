//! Rate limits of public routes per address and minute. They are off unless the operator switches them on, except that of the
//! login, which always applies to other machines.

use consign_kernel::error::Code;
use consign_web::rate_limit::RateLimit;
use http::request::Parts;

use super::access::BeamAccess;
use super::problem_response::BeamProblemResponse;
use super::{BeamFace, local_failures};
use crate::sender_rate::SenderRate;

const REGISTRATIONS: u32 = 10;
const SEARCHES: u32 = 30;
const BROWSES: u32 = 30;
const LOOKUPS: u32 = 120;
const DID_LOOKUPS: u32 = 120;
const INTENTS: u32 = 30;
const LOGINS: u32 = 6;
/// Per agent, not per address.
const KEY_CHANGES: u32 = 10;

/// The routes that share a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PublicRoute {
    Register,
    Search,
    Browse,
    Lookup,
    Did,
    SendIntent,
    Login,
}

#[derive(Debug)]
pub(crate) struct PublicLimits {
    is_on: bool,
    register: RateLimit,
    search: RateLimit,
    browse: RateLimit,
    lookup: RateLimit,
    did: RateLimit,
    send_intent: RateLimit,
    login: RateLimit,
    key_changes: SenderRate,
    /// Wrong credentials of programs on this machine.
    pub(super) local_failures: SenderRate,
}

impl PublicLimits {
    pub(crate) fn new(is_on: bool) -> Self {
        let per_minute = |requests| RateLimit::new(requests, 0);
        Self {
            is_on,
            register: per_minute(REGISTRATIONS),
            search: per_minute(SEARCHES),
            browse: per_minute(BROWSES),
            lookup: per_minute(LOOKUPS),
            did: per_minute(DID_LOOKUPS),
            send_intent: per_minute(INTENTS),
            login: per_minute(LOGINS),
            key_changes: SenderRate::new(KEY_CHANGES),
            local_failures: SenderRate::new(local_failures::FAILURES_PER_MINUTE),
        }
    }

    fn of(&self, route: PublicRoute) -> &RateLimit {
        match route {
            PublicRoute::Register => &self.register,
            PublicRoute::Search => &self.search,
            PublicRoute::Browse => &self.browse,
            PublicRoute::Lookup => &self.lookup,
            PublicRoute::Did => &self.did,
            PublicRoute::SendIntent => &self.send_intent,
            PublicRoute::Login => &self.login,
        }
    }
}

impl BeamFace {
    /// Counts a request of its address.
    pub(crate) fn charge(
        &self,
        route: PublicRoute,
        parts: &Parts,
    ) -> Result<(), BeamProblemResponse> {
        let is_always_on =
            matches!(route, PublicRoute::Login) && !BeamAccess::of(self, parts).loopback;
        if !self.limits.is_on && !is_always_on {
            return Ok(());
        }
        let limit = self.limits.of(route);
        let trust_proxy = self.policy.trust_proxy;
        let taken = limit.take(&parts.extensions, &parts.headers, trust_proxy, 0);
        taken.map(|_| ()).map_err(|_| too_many())
    }

    /// Counts a change of the keys of an agent.
    pub(crate) fn charge_key_change(&self, beam_id: &str) -> Result<(), BeamProblemResponse> {
        if !self.limits.is_on || self.limits.key_changes.charge(beam_id) {
            return Ok(());
        }
        Err(too_many())
    }
}

fn too_many() -> BeamProblemResponse {
    BeamProblemResponse::new(Code::RateLimited, "Too many requests")
}
