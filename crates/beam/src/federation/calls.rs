//! Calls to peers. Each of them passes the address guard, and none follows a redirect.

use std::time::Duration;

use http::HeaderName;

use crate::outbound::{CallLimits, OutboundError, OutboundRequest, OutboundResponse, TargetUrl};
use crate::service::Beam;

/// How long a peer may take for a read.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(5);
/// The longest description of one agent.
pub(super) const AGENT_BYTES_MAX: usize = 64 * 1024;
/// The longest list of agents.
pub(super) const LIST_BYTES_MAX: usize = 1024 * 1024;

impl Beam {
    /// Reads a route of a peer.
    pub(super) async fn read_peer(
        &self,
        peer_url: &str,
        route: &str,
        response_bytes_max: usize,
    ) -> Result<OutboundResponse, OutboundError> {
        let request = self.with_directory_headers(OutboundRequest::get())?;
        let limits = CallLimits {
            connect: READ_LIMIT,
            total: READ_LIMIT,
            response_bytes_max,
        };
        let url = route_of(peer_url, route)?;
        self.inner.outbound.call_peer(&url, request, limits).await
    }

    /// Hands an intent to a peer, which returns its result.
    pub(crate) async fn post_to_peer(
        &self,
        peer_url: &str,
        frame: String,
        hops: u32,
        time: Duration,
    ) -> Result<OutboundResponse, OutboundError> {
        let request = self.with_directory_headers(OutboundRequest::post_json(frame))?;
        let hop_count = HeaderName::from_static("x-beam-hop-count");
        let request = request.header(hop_count, &hops.to_string())?;
        let url = route_of(peer_url, "/federation/relay")?;
        let limits = CallLimits::relay(time);
        self.inner.outbound.call_peer(&url, request, limits).await
    }

    fn with_directory_headers(
        &self,
        request: OutboundRequest,
    ) -> Result<OutboundRequest, OutboundError> {
        let settings = self.settings();
        let source = HeaderName::from_static("x-beam-source-directory");
        let request = request.header(source, &settings.directory_url)?;
        match &settings.federation_secret {
            Some(secret) => {
                let name = HeaderName::from_static("x-beam-federation-secret");
                request.secret_header(name, secret.reveal())
            }
            None => Ok(request),
        }
    }
}

fn route_of(peer_url: &str, route: &str) -> Result<TargetUrl, OutboundError> {
    let url = TargetUrl::parse(peer_url).and_then(|url| url.join(route));
    url.map_err(|error| OutboundError::Refused(error.into()))
}
