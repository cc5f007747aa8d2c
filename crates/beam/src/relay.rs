//! The relay: a signed intent is checked, stored, handed to its recipient, and answered with the recipient's result.
//!
//! Invariant: an intent is stored before any part of it leaves this server, and its result is stored before the sender
//! sees it. Every step is a legal one of the directory's profile, with a fact that holds the details of its transport.

mod begin;
mod check;
mod details;
mod endpoint;
mod handoff;
mod late;
mod local;
mod peer;
mod recover;
mod route;
mod rows;
mod takeover;
mod unwaited;
mod waiters;

use std::sync::Arc;
use std::time::Duration;

use consign_engine::Error;
use consign_kernel::error::Code;

pub(crate) use begin::{ATTEMPTS_MAX, NAMESPACE, NONCE_LIFETIME_US, fingerprint, nonce_key};
pub(crate) use details::repeated_at;
pub use rows::{IntentRow, StoredEnd, StoredHead};
pub(crate) use rows::{error_code, relay_code};
pub(crate) use unwaited::Unwaited;
pub(crate) use waiters::Waiters;

use crate::counters::{RelayOutcome, RelayPath};
use crate::frame::IntentFrame;
use crate::problem::BeamProblem;
use crate::service::Beam;

/// How often an intent may pass from one directory to another.
pub const HOPS_MAX: u32 = 3;

/// How an intent arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ingress {
    Http,
    /// From another directory.
    Federation {
        source: String,
        hops: u32,
    },
    Socket {
        beam_id: String,
        /// The digest of the API key that the socket presented. While it is the key of the agent, intents need no
        /// signature.
        api_key_hash: Option<String>,
    },
}

impl Ingress {
    /// The word in the details of a trace.
    pub(crate) const fn transport(&self) -> &'static str {
        match self {
            Self::Http | Self::Federation { .. } => "http",
            Self::Socket { .. } => "ws",
        }
    }

    /// How many directories the intent has passed.
    pub(crate) const fn hops(&self) -> u32 {
        match self {
            Self::Federation { hops, .. } => *hops,
            Self::Http | Self::Socket { .. } => 0,
        }
    }
}

/// Why an intent got no result frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    #[error("agent_offline")]
    Offline,
    #[error("Intent timed out waiting for result ({ms}ms)")]
    Timeout { ms: u64 },
    /// The frame lacks a part.
    #[error("{0}")]
    Shape(String),
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("Rate limit exceeded for {0}")]
    RateLimited(String),
    #[error("Intent with nonce {0} is already being processed")]
    InProgress(String),
    #[error("{0}")]
    DeliveryFailed(String),
    #[error("Failed to relay intent")]
    Ledger(BeamProblem),
}

impl From<Error> for RelayError {
    fn from(error: Error) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<BeamProblem> for RelayError {
    fn from(problem: BeamProblem) -> Self {
        Self::Ledger(problem)
    }
}

impl RelayError {
    /// The code over HTTP.
    pub const fn code(&self) -> Code {
        match self {
            Self::Offline => Code::Offline,
            Self::Timeout { .. } => Code::RelayTimeout,
            Self::Shape(_) | Self::BadRequest(_) => Code::InvalidIntent,
            Self::Forbidden(_) => Code::Forbidden,
            Self::RateLimited(_) => Code::RateLimited,
            Self::InProgress(_) => Code::InProgress,
            Self::DeliveryFailed(_) => Code::DeliveryFailed,
            Self::Ledger(problem) => {
                if matches!(problem.code, Code::StoreUnavailable) {
                    Code::StoreUnavailable
                } else {
                    Code::RelayError
                }
            }
        }
    }
}

impl Beam {
    /// Relays an intent and returns the text of the result frame. It is completed even if the caller stops waiting.
    pub async fn relay(&self, frame: IntentFrame, ingress: Ingress) -> Result<String, RelayError> {
        self.relay_of(frame, ingress, None).await
    }

    /// The same for a client of this address, which has a limit for intents that are not counted for their sender.
    pub async fn relay_of(
        &self,
        frame: IntentFrame,
        ingress: Ingress,
        address: Option<&str>,
    ) -> Result<String, RelayError> {
        let path = RelayPath::of(&ingress);
        self.relay_from(path, frame, ingress, address).await
    }

    /// The same for an intent that is counted under another path than that of its ingress.
    pub(crate) async fn relay_from(
        &self,
        path: RelayPath,
        frame: IntentFrame,
        ingress: Ingress,
        address: Option<&str>,
    ) -> Result<String, RelayError> {
        let beam = self.clone();
        let address = address.map(str::to_owned);
        let relayed = tokio::spawn(async move {
            let began = tokio::time::Instant::now();
            let frame = Arc::new(frame);
            let relayed = beam.relay_now(frame, ingress, address.as_deref()).await;
            let outcome = RelayOutcome::of(&relayed);
            let counters = &beam.inner.counters;
            counters.relayed(path, outcome, began.elapsed());
            relayed.map(Relayed::into_text)
        });
        match relayed.await {
            Ok(result) => result,
            Err(panicked) => {
                tracing::error!(%panicked, "the relay of an intent panicked");
                let counters = &self.inner.counters;
                counters.relayed(path, RelayOutcome::Error, Duration::ZERO);
                let problem = BeamProblem::new(Code::RelayError, "Failed to relay intent");
                Err(RelayError::Ledger(problem))
            }
        }
    }

    async fn relay_now(
        &self,
        frame: Arc<IntentFrame>,
        ingress: Ingress,
        address: Option<&str>,
    ) -> Result<Relayed, RelayError> {
        let checked = self.check_intent(&frame, &ingress, address).await?;
        let timeout = self.result_timeout(&ingress);
        let ended = match self.begin_intent(&frame, &ingress, &checked).await? {
            begin::Begun::Known(result) => return Ok(Relayed::Repeated(result)),
            begin::Begun::Dispatched(row) => {
                let end = self.wait_end(timeout);
                let routed = self.route(&frame, &ingress, &checked, &row).await;
                if matches!(routed, Err(RelayError::Ledger(_))) {
                    self.leave_to_sweep(&row, end);
                }
                routed
            }
            begin::Begun::HandedOver(id) => {
                self.await_handed_over(id, &frame, &ingress, timeout).await
            }
        };
        ended.map(Relayed::Ended)
    }
}

/// The text of a result frame.
#[derive(Debug)]
pub(crate) enum Relayed {
    /// It was stored before, and nothing was delivered.
    Repeated(String),
    Ended(String),
}

impl Relayed {
    fn into_text(self) -> String {
        match self {
            Self::Repeated(text) | Self::Ended(text) => text,
        }
    }
}
