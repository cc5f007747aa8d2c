//! Errors in the format of the server, which is also that of the Intent Protocol: `{"error":{"code","message"}}`.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use consign_engine::{Caller, Error, LedgerHealth, PauseReason};
use consign_kernel::error::{Code, Refusal};
use consign_kernel::ids::Micros;
use consign_kernel::record::KeyScope;
use http::{HeaderValue, header};

use crate::access_log::ErrorCode;
use crate::body::BodyError;
use crate::json_out::Json;
use crate::listener_policy::Closed;
use crate::{error_status, throttle};

/// The message for a nonce that was used before, which the ledger detects.
pub const REPLAY_MESSAGE: &str = "Replay detected";

/// The message for a claim in a reserved namespace.
pub const NOT_GRANTED: &str = "This key has no grant for this namespace.";

pub const LEASE_LOST: &str = "Intent not found, not owned by you, or invalid claim_token.";

#[derive(Debug)]
pub struct Reject {
    pub code: Code,
    pub message: Cow<'static, str>,
    /// The index of the batch item that caused the error.
    pub index: Option<usize>,
    challenge: bool,
    /// The request had a wrong credential, which is counted for the throttle.
    failed_credential: bool,
    /// For the header `Retry-After`.
    retry_after_s: Option<u32>,
}

impl Reject {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            index: None,
            challenge: false,
            failed_credential: false,
            retry_after_s: None,
        }
    }

    /// The same error, with the seconds after which the request may succeed.
    #[must_use]
    pub const fn after_s(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// The same error, counted as a wrong credential.
    #[must_use]
    pub fn of_wrong_credential(mut self) -> Self {
        self.failed_credential = true;
        self
    }

    pub const fn is_of_wrong_credential(&self) -> bool {
        self.failed_credential
    }

    #[must_use]
    pub fn at(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "Intent not found.")
    }

    /// A lost lease and an unknown intent have the same error.
    #[must_use]
    pub fn of_lease(self) -> Self {
        if self.code == Code::NotFound {
            Self::new(Code::NotFound, LEASE_LOST)
        } else {
            self
        }
    }

    /// The response to a claim while this node's claims are paused.
    pub fn claims_paused(why: PauseReason) -> Self {
        let message = match why {
            PauseReason::Draining => {
                "This server is draining and gives out no work; claim at another one. What you hold you can still settle here."
            }
            PauseReason::WrongClock => {
                "This server's clock is wrong, so it gives out no work; claim at another one. What you hold you can still settle here."
            }
        };
        Self::new(Code::NodeDraining, message)
    }

    /// Makes browsers ask for the dashboard password.
    pub fn admin_challenge() -> Self {
        let mut reject = Self::new(
            Code::Unauthorized,
            "Authentication required. Send X-Admin-Token, Basic credentials of a user, or X-API-KEY with a key that has the scope admin.",
        );
        reject.challenge = true;
        reject
    }

    /// The response to a request with a wrong API key. A credential of another kind is named by its prefix.
    pub fn wrong_key(key: &str) -> Self {
        let message = if key.starts_with("ca_") {
            "Invalid API key: this looks like an admin token, which is sent as X-Admin-Token to the routes of operators."
        } else if key.starts_with("cd_") || key.starts_with("cm_") {
            "Invalid API key: this looks like the dashboard password or the metrics token."
        } else {
            "Invalid API key."
        };
        Self::new(Code::Unauthorized, message).of_wrong_credential()
    }

    /// The response to a key that has used up its rate. The published client sleeps for the whole `Retry-After`, so only a key
    /// whose rate an operator chose gets one.
    pub fn rate_limited(caller: &Caller, retry_after_s: i64) -> Self {
        let reject = Self::from(Refusal::RateLimited { retry_after_s });
        match u32::try_from(retry_after_s) {
            Ok(seconds) if caller.has_own_rate() => reject.after_s(seconds),
            _ => reject,
        }
    }

    /// The response to a key that has ended, or to a secret that a rotation replaced.
    pub fn expired_key(end: Micros) -> Self {
        let message = format!(
            "This API key expired at {} (Unix time); ask an operator for a new one.",
            end.seconds().trunc()
        );
        Self::new(Code::Unauthorized, message)
    }

    /// The response to a key, or a user, that lacks the right for this request.
    pub fn missing_scope(scope: KeyScope) -> Self {
        let message = format!(
            "This API key lacks the scope {}; an operator can add it with: consign key change KEYID --scope {}",
            scope.name(),
            scope.name()
        );
        Self::new(Code::Forbidden, message)
    }

    /// The response to a key that is limited to other namespaces.
    pub fn foreign_namespace(namespace: &str) -> Self {
        let message = format!("This API key may not be used in the namespace {namespace}.");
        Self::new(Code::Forbidden, message)
    }

    /// The response to a wrong admin token.
    pub fn wrong_admin_token(token: &str) -> Self {
        let mut reject = Self::admin_challenge();
        if token.starts_with("ck_") || token.starts_with("tk_") {
            reject.message =
                "Authentication required. This looks like an API key, which is sent as X-API-KEY to the routes of clients; X-Admin-Token takes the admin token."
                    .into();
        }
        reject.of_wrong_credential()
    }

    /// The response of `/health` while the ledger is not healthy: the usual error, plus the affected part.
    pub fn unwell(ledger: LedgerHealth) -> Response {
        let reject = Self::new(Code::DatabaseBusy, ledger.reason());
        let mut body = Json::object();
        body.raw("error", &reject.error_object().finish())
            .bool("ok", false)
            .text("ledger", ledger.name())
            .text("reason", ledger.reason());
        reject.answered_with(body)
    }

    /// The object under `error`, also used for single items of a batch.
    pub fn error_object(&self) -> Json {
        let mut error = Json::object();
        error
            .text("code", self.code.name())
            .text("message", &self.message);
        if let Some(index) = self.index {
            error.number("index", index as u64);
        }
        error
    }
}

impl IntoResponse for Reject {
    fn into_response(self) -> Response {
        let mut body = Json::object();
        body.raw("error", &self.error_object().finish());
        self.answered_with(body)
    }
}

impl Reject {
    fn answered_with(self, body: Json) -> Response {
        let mut response = (error_status::of(self.code), body).into_response();
        response.extensions_mut().insert(ErrorCode(self.code));
        if self.challenge {
            let realm = HeaderValue::from_static("Basic realm=\"Consign\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, realm);
        }
        let busy = matches!(self.code, Code::DatabaseBusy | Code::NodeDraining);
        if let Some(seconds) = self.retry_after_s.or(busy.then_some(1)) {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.failed_credential {
            response = throttle::marked(response);
        }
        response
    }
}

impl From<Closed> for Reject {
    fn from(closed: Closed) -> Self {
        match closed {
            Closed::PlainHttp => Self::new(Code::HttpsRequired, "HTTPS is required."),
            Closed::Maintenance => {
                Self::new(Code::Maintenance, "The server is in maintenance mode.")
            }
        }
    }
}

impl From<BodyError> for Reject {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => {
                Self::new(Code::PayloadTooLarge, "The request body exceeds its limit.")
            }
            BodyError::TooSlow => Self::new(
                Code::RequestTimeout,
                "The request body did not arrive in time.",
            ),
            BodyError::Broken => Self::new(
                Code::InvalidPayload,
                "The request body ended early or is malformed.",
            ),
            BodyError::NoRoom => Self::new(
                Code::DatabaseBusy,
                "The server is receiving as many bodies as it has memory for; try again shortly.",
            ),
        }
    }
}

impl From<Refusal> for Reject {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => Self::not_found(),
            Refusal::LeaseLost => Self::new(Code::NotFound, LEASE_LOST),
            Refusal::PastLife { left_s } => Self::new(
                Code::InvalidRetry,
                format!(
                    "retry_in must be less than the rest of the intent's life, which is {left_s} s."
                ),
            ),
            Refusal::IllegalState => Self::new(
                Code::InvalidRequest,
                "The intent's state does not allow this.",
            ),
            Refusal::Completed => Self::new(
                Code::InvalidState,
                "The intent is fulfilled: to cancel or retry it would contradict or drop its result. Send \"force\": true to do it all the same.",
            ),
            Refusal::OnceConflict { index } => Self::new(
                Code::IdempotencyConflict,
                "Idempotency-Key was used before with a different body.",
            )
            .at(index),
            Refusal::Replay => Self::new(Code::InvalidSignature, REPLAY_MESSAGE),
            Refusal::UnknownKey => Self::new(Code::Unauthorized, "Invalid API key."),
            Refusal::KeyExpired => Self::new(
                Code::Unauthorized,
                "This API key has expired; ask an operator for a new one.",
            ),
            Refusal::NotGranted => Self::new(Code::Forbidden, NOT_GRANTED),
            Refusal::RateLimited { .. } => Self::new(Code::RateLimited, "Too many requests."),
            Refusal::CapReached { limit, .. } => Self::new(
                Code::LimitExceeded,
                format!("Open intent limit of {limit} reached; fulfil or cancel some first."),
            ),
            Refusal::VersionMismatch
            | Refusal::Exists
            | Refusal::AlreadyBegun { .. }
            | Refusal::NotReached
            | Refusal::Held
            | Refusal::Changed
            | Refusal::EffectOnce => Self::new(Code::InvalidRequest, refusal.to_string()),
            Refusal::TooManySteps { max } => Self::new(
                Code::InvalidRequest,
                format!("At most {max} items per request."),
            ),
        }
    }
}

impl From<Error> for Reject {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => refusal.into(),
            Error::Store(consign_engine::StoreError::Busy) => Self::new(
                Code::DatabaseBusy,
                "Too many requests are waiting for the disk; try again shortly.",
            ),
            Error::Store(consign_engine::StoreError::Lost) => Self::new(
                Code::DatabaseBusy,
                "The disk failed; it is not known whether this was done. Ask again when the server is back.",
            ),
            Error::Store(consign_engine::StoreError::Unsure(_)) => Self::new(
                Code::DatabaseBusy,
                "The database went away during a commit; it is not known whether this was done. Ask again.",
            ),
            Error::Store(error @ consign_engine::StoreError::DiskFull(_)) => {
                tracing::error!(%error, "storage failed");
                Self::new(
                    Code::DatabaseBusy,
                    "The server's disk is full; nothing was written. Free space on it, and try again.",
                )
            }
            Error::Store(error) => {
                tracing::error!(%error, "storage failed");
                Self::new(
                    Code::DatabaseBusy,
                    "Storage is unavailable and nothing was written; try again.",
                )
            }
            Error::NotSettled => Self::new(
                Code::NotSettled,
                "The intent is neither fulfilled nor dead yet, so there is no receipt.",
            ),
            Error::Seal(_) | Error::Internal(_) => {
                tracing::error!(%error, "internal error");
                Self::new(Code::Internal, "Internal error.")
            }
        }
    }
}
