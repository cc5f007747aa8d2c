//! The one list of stable error codes, and the refusals the rules give.
//!
//! Invariant: a code is never reused for another meaning; each has a page in `docs/errors/`.
//! The kernel knows a class, not an HTTP status: faces translate.

/// The kind of error a code is, for faces to map to their own status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Invalid,
    Unauthorized,
    Forbidden,
    NotFound,
    Method,
    Timeout,
    TooLarge,
    Conflict,
    TooMany,
    Busy,
    Internal,
}

macro_rules! codes {
    ($($name:ident => $text:literal, $class:ident;)+) => {
        /// A stable, machine-readable name of an error. Clients branch on it, never on the message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($name,)+ }

        impl Code {
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            pub const fn class(self) -> Class {
                match self { $(Self::$name => Class::$class,)+ }
            }
        }
    };
}

codes! {
    InvalidRequest => "invalid_request", Invalid;
    InvalidPayload => "invalid_payload", Invalid;
    InvalidNamespace => "invalid_namespace", Invalid;
    InvalidGoal => "invalid_goal", Invalid;
    InvalidVisibility => "invalid_visibility", Invalid;
    InvalidPriority => "invalid_priority", Invalid;
    InvalidDelay => "invalid_delay", Invalid;
    InvalidMaxAttempts => "invalid_max_attempts", Invalid;
    InvalidBackoffBase => "invalid_backoff_base", Invalid;
    InvalidTargetWorker => "invalid_target_worker", Invalid;
    InvalidRequiredCapability => "invalid_required_capability", Invalid;
    InvalidIdempotencyKey => "invalid_idempotency_key", Invalid;
    InvalidResult => "invalid_result", Invalid;
    InvalidResultType => "invalid_result_type", Invalid;
    InvalidSeconds => "invalid_seconds", Invalid;
    InvalidTtl => "invalid_ttl", Invalid;
    InvalidKey => "invalid_key", Invalid;
    InvalidWait => "invalid_wait", Invalid;
    InvalidMax => "invalid_max", Invalid;
    InvalidLimit => "invalid_limit", Invalid;
    InvalidCursor => "invalid_cursor", Invalid;
    CursorUnknown => "cursor_unknown", Invalid;
    InvalidStatus => "invalid_status", Invalid;
    InvalidAction => "invalid_action", Invalid;
    ConfirmationRequired => "confirmation_required", Invalid;
    Unauthorized => "unauthorized", Unauthorized;
    Forbidden => "forbidden", Forbidden;
    InvalidSignature => "invalid_signature", Forbidden;
    HttpsRequired => "https_required", Forbidden;
    NotFound => "not_found", NotFound;
    NotSettled => "not_settled", NotFound;
    MethodNotAllowed => "method_not_allowed", Method;
    RequestTimeout => "request_timeout", Timeout;
    PayloadTooLarge => "payload_too_large", TooLarge;
    ResultTooLarge => "result_too_large", TooLarge;
    IdempotencyConflict => "idempotency_conflict", Conflict;
    RateLimited => "rate_limited", TooMany;
    LimitExceeded => "limit_exceeded", TooMany;
    DatabaseBusy => "database_busy", Busy;
    Maintenance => "maintenance", Busy;
    NodeDraining => "node_draining", Busy;
    Internal => "internal", Internal;
}

/// Why a command was not carried out. An expected answer, not a failure of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no such intent")]
    NotFound,
    #[error("the lease is not held by this caller with this token, or it ran out")]
    LeaseLost,
    #[error("somebody else holds it")]
    Held,
    #[error("this step is not allowed from the present state")]
    IllegalState,
    #[error("item {index}: the key was used before with another content")]
    OnceConflict { index: usize },
    #[error("the nonce was used before")]
    Replay,
    #[error("the key is unknown or revoked")]
    UnknownKey,
    #[error("too many requests; the window ends in {retry_after_s} s")]
    RateLimited { retry_after_s: i64 },
    #[error("{open} intents are open, the limit is {limit}")]
    CapReached { open: u64, limit: u64 },
    #[error("the record was changed by somebody else")]
    VersionMismatch,
    #[error("an intent with this id exists already")]
    Exists,
    #[error("a step before this one was refused")]
    NotReached,
    #[error(
        "this is the effect of a transaction, and to hand it out again could pay twice; cancel it if it never happened, and the transaction ends as not charged"
    )]
    EffectOnce,
    #[error("a request may carry at most {max} steps")]
    TooManySteps { max: usize },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_snake_case_and_unique() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            let name = code.name();
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            assert!(seen.insert(name), "{name} twice");
        }
    }
}
