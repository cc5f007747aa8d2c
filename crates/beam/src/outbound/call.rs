//! One outgoing call: a slot, the address guard, the exchange, all within one time limit.
//!
//! Invariant: an error says whether the target may have received the request. A response of any status, redirects
//! included, is a response; its meaning is the caller's.

use std::path::PathBuf;
use std::time::Duration;

use consign_client::{Bytes, ExchangeLimits, PinnedClient, PinnedRequest, PinnedTarget};
use http::{HeaderMap, HeaderName, StatusCode};

use super::guard::{AddressGuard, CheckedTarget, GuardError};
use super::request::OutboundRequest;
use super::slots::{CallSlots, CallTarget};
use super::url::TargetUrl;

/// The longest response of a relay that is read.
pub const RELAY_RESPONSE_BYTES_MAX: usize = 1024 * 1024;

/// The limit for a slot and for each connection attempt, unless the call has less time.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct OutboundOptions {
    /// Calls to endpoints of agents, and for each of their targets.
    pub endpoint_calls_max: usize,
    pub calls_per_endpoint_max: usize,
    /// The same for peers and configured directories, which hanging endpoints must not delay.
    pub peer_calls_max: usize,
    pub calls_per_peer_max: usize,
    /// A PEM file with authorities to trust in addition to the public ones.
    pub ca_file: Option<PathBuf>,
}

impl Default for OutboundOptions {
    fn default() -> Self {
        Self {
            endpoint_calls_max: 768,
            calls_per_endpoint_max: 32,
            peer_calls_max: 256,
            calls_per_peer_max: 64,
            ca_file: None,
        }
    }
}

/// The limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLimits {
    /// For a free slot, and again for each connection attempt with its TLS handshake.
    pub connect: Duration,
    /// For the whole call.
    pub total: Duration,
    pub response_bytes_max: usize,
}

impl CallLimits {
    /// The limits of a relay that may take this long.
    pub fn relay(total: Duration) -> Self {
        Self {
            connect: total.min(CONNECT_LIMIT),
            total,
            response_bytes_max: RELAY_RESPONSE_BYTES_MAX,
        }
    }
}

/// A complete response with any status.
#[derive(Debug, Clone)]
pub struct OutboundResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why a call has no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The address guard refuses the URL. No connection was opened.
    #[error(transparent)]
    Refused(GuardError),
    #[error("header {name} cannot be sent with this value")]
    Header { name: HeaderName },
    /// The request cannot be expressed in HTTP.
    #[error("request cannot be sent: {0}")]
    Request(String),
    /// Too many calls are running, to this target or in total. Nothing was sent.
    #[error("too many outgoing calls are running")]
    Busy,
    /// There is no address, no connection or no trusted certificate. Nothing was sent.
    #[error("{0}")]
    Connect(String),
    #[error("no complete response within {} ms", .after.as_millis())]
    Timeout { after: Duration },
    #[error("the response is larger than {limit_bytes} bytes")]
    TooLarge { limit_bytes: usize },
    #[error("the response is not HTTP: {0}")]
    Malformed(String),
    /// The connection ended before the response was complete.
    #[error("{0}")]
    Broken(String),
}

impl OutboundError {
    /// Whether the target may have received the request.
    pub fn may_be_sent(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Header { .. }
            | Self::Request(_)
            | Self::Busy
            | Self::Connect(_) => false,
            Self::Timeout { .. } | Self::TooLarge { .. } | Self::Malformed(_) | Self::Broken(_) => {
                true
            }
        }
    }
}

impl From<GuardError> for OutboundError {
    fn from(error: GuardError) -> Self {
        if error.is_refusal() {
            Self::Refused(error)
        } else {
            Self::Connect(error.to_string())
        }
    }
}

/// Calls targets, as many at a time as its options allow.
#[derive(Debug)]
pub struct Outbound {
    guard: AddressGuard,
    client: PinnedClient,
    endpoint_slots: CallSlots,
    peer_slots: CallSlots,
}

impl Outbound {
    pub fn new(
        guard: AddressGuard,
        options: &OutboundOptions,
    ) -> Result<Self, consign_client::Error> {
        Ok(Self {
            guard,
            client: PinnedClient::new(options.ca_file.as_deref())?,
            endpoint_slots: CallSlots::new(
                options.endpoint_calls_max,
                options.calls_per_endpoint_max,
            ),
            peer_slots: CallSlots::new(options.peer_calls_max, options.calls_per_peer_max),
        })
    }

    pub fn guard(&self) -> &AddressGuard {
        &self.guard
    }

    /// Calls a URL of an agent if the address guard allows it.
    pub async fn call(
        &self,
        url: &TargetUrl,
        request: OutboundRequest,
        limits: CallLimits,
    ) -> Result<OutboundResponse, OutboundError> {
        let resolve = self.guard.resolve(url);
        self.run(&self.endpoint_slots, resolve, request, limits)
            .await
    }

    /// Calls a URL of a peer if the address guard allows it.
    pub async fn call_peer(
        &self,
        url: &TargetUrl,
        request: OutboundRequest,
        limits: CallLimits,
    ) -> Result<OutboundResponse, OutboundError> {
        let resolve = self.guard.resolve(url);
        self.run(&self.peer_slots, resolve, request, limits).await
    }

    /// Calls a URL that the operator configured, without the address guard.
    pub async fn call_configured(
        &self,
        url: &TargetUrl,
        request: OutboundRequest,
        limits: CallLimits,
    ) -> Result<OutboundResponse, OutboundError> {
        let resolve = self.guard.resolve_configured(url);
        self.run(&self.peer_slots, resolve, request, limits).await
    }

    async fn run(
        &self,
        slots: &CallSlots,
        resolve: impl Future<Output = Result<CheckedTarget, GuardError>>,
        request: OutboundRequest,
        limits: CallLimits,
    ) -> Result<OutboundResponse, OutboundError> {
        let whole = async {
            let target = resolve.await?;
            let slot = tokio::time::timeout(limits.connect, slots.take(CallTarget::of(&target)));
            let Ok(Some(_slot)) = slot.await else {
                return Err(OutboundError::Busy);
            };
            self.exchange(&target, request, limits).await
        };
        tokio::time::timeout(limits.total, whole)
            .await
            .unwrap_or(Err(OutboundError::Timeout {
                after: limits.total,
            }))
    }

    async fn exchange(
        &self,
        target: &CheckedTarget,
        request: OutboundRequest,
        limits: CallLimits,
    ) -> Result<OutboundResponse, OutboundError> {
        let pinned = PinnedTarget {
            server: target.url().server(),
            sockets: target.sockets().to_vec(),
        };
        let request = PinnedRequest {
            method: request.method,
            path_and_query: target.url().path_and_query().to_owned(),
            headers: request.headers,
            body: request.body,
        };
        let exchange_limits = ExchangeLimits {
            connect: limits.connect,
            total: limits.total,
            response_bytes_max: limits.response_bytes_max,
        };
        match self.client.request(&pinned, request, exchange_limits).await {
            Ok(response) => Ok(OutboundResponse {
                status: response.status,
                headers: response.headers,
                body: response.body,
            }),
            Err(error) => Err(failure(&error)),
        }
    }
}

fn failure(error: &consign_client::Error) -> OutboundError {
    use consign_client::Error as Cause;
    if let Cause::TimedOut { after, .. } = error {
        return OutboundError::Timeout { after: *after };
    }
    if let Cause::TooLarge { limit_bytes, .. } = error {
        return OutboundError::TooLarge {
            limit_bytes: *limit_bytes,
        };
    }
    if let Cause::Broken { cause, .. } = error {
        return if cause.is_parse() || cause.is_parse_status() || cause.is_parse_too_large() {
            OutboundError::Malformed(cause.to_string())
        } else {
            OutboundError::Broken(error.to_string())
        };
    }
    if matches!(error, Cause::Unreachable { .. }) {
        return OutboundError::Connect(error.to_string());
    }
    OutboundError::Request(error.to_string())
}

#[cfg(test)]
mod tests;
