//! Every error of ATP: its message, and its row in the table of error codes. `http::problem_response` has its body.
//!
//! Invariant: names and classes are in that table alone.

use consign_kernel::error::Code;
use consign_kernel::ids::Micros;

use crate::state::AtpState;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("{}{reason}", named(.field.as_deref()))]
    InvalidRequest {
        /// The path of the invalid member; none if the body as a whole is invalid.
        field: Option<String>,
        reason: String,
    },
    #[error("this request needs an Idempotency-Key")]
    IdempotencyKeyRequired,
    #[error("the idempotency key {reason}")]
    IdempotencyKeyInvalid { reason: &'static str },

    #[error("the signature does not verify: {reason}")]
    InvalidSignature { reason: &'static str },
    #[error("the agent's key is not registered with this site")]
    UnknownAgentKey,
    #[error("issued_at is more than {window_s} s away from this site's clock")]
    TimestampOutOfWindow { window_s: u32 },
    #[error("this request needs a valid token")]
    Unauthorized,
    #[error("the token is not valid: {reason}")]
    TokenRefused { reason: &'static str },
    /// A callback without a valid signature.
    #[error("the callback's signature {reason}")]
    CallbackRefused { reason: &'static str },

    #[error("this belongs to another user")]
    Forbidden,
    /// See `web::cross_site` of the faces.
    #[error(
        "another site's page made a browser send this; send it from a program, or from a page of this site"
    )]
    CrossSite,
    #[error(
        "the Host header does not name this site; use its own name or address, or list the name in ATP_HOSTS"
    )]
    ForeignHost,
    #[error("plain HTTP is refused; use HTTPS")]
    HttpsRequired,
    #[error("the intent is for another site")]
    SiteMismatch,
    #[error("the action {action} is not in the intent's scope")]
    ScopeViolation { action: String },

    #[error("there is no such intent")]
    IntentNotFound,
    #[error("there is no such {what}")]
    NotFound { what: &'static str },

    #[error("the nonce has already been used")]
    NonceConsumed { first_consumed_at: Micros },
    #[error("the intent is not authorized yet")]
    NotAuthorized,
    #[error("this is not possible while {}", .state.word())]
    InvalidState { state: AtpState },
    /// A verdict is accepted only for an outcome that the rail cannot report.
    #[error("this outcome cannot be resolved: the transaction is {}, and has no alert or an alert about something else", .state.word())]
    NotInDoubt { state: AtpState },
    /// In the words of the compatibility profile, which has more of them than there are states.
    #[error("a transition from {from} to {to} is not allowed")]
    IllegalMove {
        from: &'static str,
        to: &'static str,
    },
    /// The compatibility profile's name for an intent that expired before it was authorized.
    #[error("the intent has expired and can no longer be authorized; create a new one")]
    Expired,
    #[error("the intent allows no further execution")]
    ExecutionLimitReached,
    #[error("the amount exceeds what the intent allows to be spent")]
    SpendCapExceeded,
    #[error("the same action was authorized a moment ago")]
    DuplicateAction {
        first_seen_at: Micros,
        window_s: u32,
    },
    #[error("the transaction was compensated before")]
    AlreadyCompensated,
    #[error("an intent with this id and other content exists already")]
    IntentConflict,
    #[error("the intent has ended: {}", .reason.word())]
    IntentExpired {
        expires_at: Micros,
        reason: ExpiredReason,
    },
    #[error("a precondition is not met")]
    PreconditionFailed { unmet: Vec<Unmet> },

    #[error("the body did not arrive in time; send it again")]
    RequestTimeout,
    #[error("the body is longer than {max_bytes} bytes")]
    PayloadTooLarge { max_bytes: usize },
    #[error("the idempotency key was used before with another request")]
    IdempotencyMismatch,
    #[error("the nonce differs from the intent's")]
    NonceMismatch,
    #[error("the currency differs from the intent's")]
    CurrencyMismatch,
    #[error(
        "the rail {named} was requested, but this site uses {rail}; sign an intent for that rail"
    )]
    RailMismatch { named: String, rail: String },
    #[error("only the full amount can be compensated")]
    PartialCompensationUnsupported,

    #[error("too many requests")]
    RateLimited { retry_after_s: u32 },
    #[error(
        "the limit of {limit} intents without authorization{} is reached; authorize pending intents, let them expire, or \
         send the whole intent to authorize",
        if *.of_one { " per agent key or user" } else { "" }
    )]
    TooManyOpen { of_one: bool, limit: u64 },
    #[error("the quota is used up")]
    QuotaExceeded { retry_after_s: u32 },

    #[error("internal error; the same request may be sent again with the same key")]
    InternalError,
    #[error("the store does not answer; nothing was changed, and the request may be sent again")]
    StoreUnavailable,
    #[error(
        "the connection to the store was lost during the commit, so the operation may have happened; send the same request again, with the same key"
    )]
    StoreUnsure,
    #[error("this server is read-only; the request may be sent again")]
    NotPrimary,
    #[error(
        "the server is in maintenance; nothing was changed, and the request may be sent again later"
    )]
    Maintenance,
}

/// Why an intent has ended although nothing was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredReason {
    Time,
    Cancelled,
}

impl ExpiredReason {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Time => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A precondition that is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub intent_id: String,
    /// The state of that intent; none if this site does not know it.
    pub actual: Option<AtpState>,
}

impl Unmet {
    fn may_still_hold(&self) -> bool {
        self.actual.is_some_and(AtpState::may_settle)
    }
}

impl Problem {
    pub(crate) fn field(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidRequest {
            field: Some(field.into()),
            reason: reason.into(),
        }
    }

    /// The row of the table of error codes.
    pub fn code(&self) -> Code {
        match self {
            Self::InvalidRequest { .. } => Code::InvalidRequest,
            Self::IdempotencyKeyRequired => Code::IdempotencyKeyRequired,
            Self::IdempotencyKeyInvalid { .. } => Code::IdempotencyKeyInvalid,
            Self::CallbackRefused { .. } => Code::CallbackSignature,
            Self::InvalidSignature { .. } => Code::AgentSignature,
            Self::UnknownAgentKey => Code::UnknownAgentKey,
            Self::TimestampOutOfWindow { .. } => Code::TimestampOutOfWindow,
            Self::Unauthorized => Code::Unauthorized,
            Self::Forbidden | Self::TokenRefused { .. } | Self::CrossSite | Self::ForeignHost => {
                Code::Forbidden
            }
            Self::HttpsRequired => Code::HttpsRequired,
            Self::SiteMismatch => Code::SiteMismatch,
            Self::ScopeViolation { .. } => Code::ScopeViolation,
            Self::IntentNotFound => Code::IntentNotFound,
            Self::NotFound { .. } => Code::NotFound,
            Self::RequestTimeout => Code::RequestTimeout,
            Self::NonceConsumed { .. } => Code::NonceConsumed,
            Self::NotAuthorized => Code::NotAuthorized,
            Self::InvalidState { .. } | Self::NotInDoubt { .. } | Self::IllegalMove { .. } => {
                Code::InvalidState
            }
            Self::Expired => Code::Expired,
            Self::ExecutionLimitReached => Code::ExecutionLimitReached,
            Self::SpendCapExceeded => Code::SpendCapExceeded,
            Self::DuplicateAction { .. } => Code::DuplicateAction,
            Self::AlreadyCompensated => Code::AlreadyCompensated,
            Self::IntentConflict => Code::IntentConflict,
            Self::IntentExpired { .. } => Code::IntentExpired,
            Self::PreconditionFailed { unmet } if may_still_hold(unmet) => {
                Code::PreconditionPending
            }
            Self::PreconditionFailed { .. } => Code::PreconditionFailed,
            Self::PayloadTooLarge { .. } => Code::PayloadTooLarge,
            Self::IdempotencyMismatch => Code::IdempotencyMismatch,
            Self::NonceMismatch => Code::NonceMismatch,
            Self::CurrencyMismatch => Code::CurrencyMismatch,
            Self::RailMismatch { .. } => Code::RailMismatch,
            Self::PartialCompensationUnsupported => Code::PartialCompensationUnsupported,
            Self::RateLimited { .. } => Code::RateLimited,
            Self::QuotaExceeded { .. } => Code::QuotaExceeded,
            Self::TooManyOpen { of_one: true, .. } => Code::TooManyOpenOfOne,
            Self::TooManyOpen { of_one: false, .. } => Code::TooManyOpen,
            Self::InternalError => Code::InternalError,
            Self::StoreUnavailable | Self::StoreUnsure => Code::StoreUnavailable,
            Self::NotPrimary => Code::NotPrimary,
            Self::Maintenance => Code::Maintenance,
        }
    }
}

/// Whether waiting may help: one precondition that can no longer be met makes the error final.
pub(crate) fn may_still_hold(unmet: &[Unmet]) -> bool {
    unmet.iter().all(Unmet::may_still_hold)
}

fn named(field: Option<&str>) -> String {
    field.map(|field| format!("{field}: ")).unwrap_or_default()
}
