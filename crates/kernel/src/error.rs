//! The one table of error codes of all protocols, and the refusals the rules give.
//!
//! Invariant: a name is never reused for another meaning; each has a page in `docs/errors/`.
//! The kernel knows a class, not an HTTP status: `web` translates.

use crate::ids::IntentId;
use crate::profile::Face;

/// The kind of error a code is; the HTTP status follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Invalid,
    Unauthorized,
    Forbidden,
    NotFound,
    Method,
    Timeout,
    TooLarge,
    /// The present state does not allow it, and waiting does not help.
    Conflict,
    /// The request contradicts an earlier one, or the document that it refers to.
    Mismatch,
    /// Another server failed to answer, or answered wrongly.
    BadGateway,
    /// Another party did not answer in time.
    GatewayTimeout,
    /// Its object has ended.
    Gone,
    /// A precondition can no longer be met.
    Unmet,
    /// A precondition is not met yet.
    TooEarly,
    TooMany,
    Busy,
    Internal,
}

macro_rules! codes {
    ($($name:ident => $text:literal, $class:ident, [$($face:ident),+];)+) => {
        /// An error that a client can get. Its name is stable and machine-readable: clients branch on it, never on the message.
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

            /// The protocols in which it occurs.
            pub const fn faces(self) -> &'static [Face] {
                match self { $(Self::$name => &[$(Face::$face,)+],)+ }
            }
        }
    };
}

// A name that has several classes has several rows, and one page. Responses of automations have no code, only a sentence: the
// page of the code lists the sentences, and the access log has the code.
codes! {
    InvalidRequest => "invalid_request", Invalid, [Intent, Automation, Transaction, Mesh];
    InvalidPayload => "invalid_payload", Invalid, [Intent, Beam, Mesh];
    InvalidNamespace => "invalid_namespace", Invalid, [Intent];
    InvalidGoal => "invalid_goal", Invalid, [Intent];
    InvalidVisibility => "invalid_visibility", Invalid, [Intent];
    InvalidPriority => "invalid_priority", Invalid, [Intent];
    InvalidDelay => "invalid_delay", Invalid, [Intent];
    InvalidMaxAttempts => "invalid_max_attempts", Invalid, [Intent];
    InvalidBackoffBase => "invalid_backoff_base", Invalid, [Intent];
    InvalidTargetWorker => "invalid_target_worker", Invalid, [Intent];
    InvalidRequiredCapability => "invalid_required_capability", Invalid, [Intent];
    InvalidIdempotencyKey => "invalid_idempotency_key", Invalid, [Intent];
    InvalidResult => "invalid_result", Invalid, [Intent];
    InvalidResultType => "invalid_result_type", Invalid, [Intent];
    InvalidSeconds => "invalid_seconds", Invalid, [Intent];
    InvalidRetry => "invalid_retry", Invalid, [Intent];
    InvalidTtl => "invalid_ttl", Invalid, [Intent];
    InvalidKey => "invalid_key", Invalid, [Intent];
    InvalidWait => "invalid_wait", Invalid, [Intent];
    InvalidMax => "invalid_max", Invalid, [Intent];
    InvalidLimit => "invalid_limit", Invalid, [Intent];
    InvalidCursor => "invalid_cursor", Invalid, [Intent];
    InvalidFilter => "invalid_filter", Invalid, [Intent];
    CursorUnknown => "cursor_unknown", Invalid, [Intent];
    InvalidStatus => "invalid_status", Invalid, [Intent, Beam];
    InvalidAction => "invalid_action", Invalid, [Intent];
    ConfirmationRequired => "confirmation_required", Invalid, [Intent];
    Unauthorized => "unauthorized", Unauthorized, [Intent, Automation, Transaction, Beam, Mesh];
    Forbidden => "forbidden", Forbidden, [Intent, Automation, Transaction, Beam, Mesh];
    InvalidSignature => "invalid_signature", Forbidden, [Intent, Automation];
    HttpsRequired => "https_required", Forbidden, [Intent, Automation, Transaction, Beam, Mesh];
    NotFound => "not_found", NotFound, [Intent, Automation, Transaction, Beam, Mesh];
    NotSettled => "not_settled", NotFound, [Intent];
    MethodNotAllowed => "method_not_allowed", Method, [Intent, Automation, Transaction, Beam, Mesh];
    RequestTimeout => "request_timeout", Timeout, [Intent, Automation, Transaction, Beam, Mesh];
    PayloadTooLarge => "payload_too_large", TooLarge, [Intent, Automation, Transaction, Mesh];
    ResultTooLarge => "result_too_large", TooLarge, [Intent];
    IdempotencyConflict => "idempotency_conflict", Mismatch, [Intent];
    RateLimited => "rate_limited", TooMany, [Intent, Automation, Transaction, Beam, Mesh];
    LimitExceeded => "limit_exceeded", TooMany, [Intent];
    DatabaseBusy => "database_busy", Busy, [Intent, Mesh];
    Maintenance => "maintenance", Busy, [Intent, Automation, Transaction, Beam, Mesh];
    NodeDraining => "node_draining", Busy, [Intent];
    Internal => "internal", Internal, [Intent, Automation, Mesh];
    IdempotencyKeyRequired => "idempotency_key_required", Invalid, [Transaction];
    IdempotencyKeyInvalid => "idempotency_key_invalid", Invalid, [Transaction];
    CallbackSignature => "invalid_signature", Invalid, [Transaction, Beam];
    AgentSignature => "invalid_signature", Unauthorized, [Transaction];
    UnknownAgentKey => "unknown_agent_key", Unauthorized, [Transaction];
    TimestampOutOfWindow => "timestamp_out_of_window", Unauthorized, [Transaction];
    SiteMismatch => "site_mismatch", Forbidden, [Transaction];
    ScopeViolation => "scope_violation", Forbidden, [Transaction];
    IntentNotFound => "intent_not_found", NotFound, [Transaction];
    NonceConsumed => "nonce_consumed", Conflict, [Transaction];
    NotAuthorized => "not_authorized", Conflict, [Transaction];
    InvalidState => "invalid_state", Conflict, [Intent, Automation, Transaction, Beam];
    Expired => "expired", Conflict, [Transaction];
    ExecutionLimitReached => "execution_limit_reached", Conflict, [Transaction];
    SpendCapExceeded => "spend_cap_exceeded", Conflict, [Transaction];
    DuplicateAction => "duplicate_action", Conflict, [Transaction];
    AlreadyCompensated => "already_compensated", Conflict, [Transaction];
    IntentConflict => "intent_conflict", Conflict, [Transaction];
    IntentExpired => "intent_expired", Gone, [Transaction];
    PreconditionFailed => "precondition_failed", Unmet, [Transaction];
    PreconditionPending => "precondition_failed", TooEarly, [Transaction];
    IdempotencyMismatch => "idempotency_mismatch", Mismatch, [Transaction];
    NonceMismatch => "nonce_mismatch", Mismatch, [Transaction];
    CurrencyMismatch => "currency_mismatch", Mismatch, [Transaction];
    RailMismatch => "rail_mismatch", Mismatch, [Transaction];
    PartialCompensationUnsupported => "partial_compensation_unsupported", Mismatch, [Transaction];
    TooManyOpenOfOne => "too_many_open", TooMany, [Transaction];
    TooManyOpen => "too_many_open", Busy, [Transaction];
    QuotaExceeded => "quota_exceeded", TooMany, [Transaction];
    StoreUnavailable => "store_unavailable", Busy, [Automation, Transaction, Beam];
    NotPrimary => "not_primary", Busy, [Transaction];
    InternalError => "internal_error", Internal, [Transaction, Beam];
    BaggageTooLarge => "baggage_too_large", TooLarge, [Automation];
    DeliveryConflict => "delivery_conflict", Conflict, [Automation];
    PipelineWithoutJobs => "pipeline_without_jobs", Conflict, [Automation];
    ScheduleNotPlanned => "schedule_not_planned", Conflict, [Automation];
    ReloadRefused => "reload_refused", Conflict, [Automation];
    ServerBusy => "server_busy", Busy, [Automation];
    WebhookUnavailable => "webhook_unavailable", Busy, [Automation];
    Unhealthy => "unhealthy", Busy, [Automation];
    InvalidJson => "invalid_json", Invalid, [Beam];
    InvalidBody => "invalid_body", Invalid, [Beam];
    MissingRequiredFields => "missing_required_fields", Invalid, [Beam];
    MissingAgent => "missing_agent", Invalid, [Beam];
    MissingMessageId => "missing_message_id", Invalid, [Beam];
    MessageNotFound => "message_not_found", NotFound, [Beam];
    NonceReuseConflict => "nonce_reuse_conflict", Conflict, [Beam];
    RateLimitExceeded => "rate_limit_exceeded", TooMany, [Beam];
    InvalidIntent => "invalid_intent", Invalid, [Beam];
    InProgress => "in_progress", Conflict, [Beam];
    Offline => "offline", Busy, [Beam];
    RelayTimeout => "timeout", GatewayTimeout, [Beam];
    DeliveryFailed => "delivery_failed", BadGateway, [Beam];
    RelayError => "relay_error", Internal, [Beam];
    ShieldPayloadTooLarge => "shield_payload_too_large", TooLarge, [Beam];
    InvalidBeamId => "invalid_beam_id", Invalid, [Beam];
    InvalidCapabilities => "invalid_capabilities", Invalid, [Beam];
    InvalidDisplayName => "invalid_display_name", Invalid, [Beam];
    InvalidEmail => "invalid_email", Invalid, [Beam];
    InvalidLogoUrl => "invalid_logo_url", Invalid, [Beam];
    InvalidVerificationTier => "invalid_verification_tier", Invalid, [Beam];
    InvalidPublicKey => "invalid_public_key", Invalid, [Beam];
    InvalidPublicKeyFormat => "invalid_public_key_format", Invalid, [Beam];
    OrgMismatch => "org_mismatch", Invalid, [Beam];
    InvalidHttpEndpoint => "invalid_http_endpoint", Invalid, [Beam];
    InvalidParam => "invalid_param", Invalid, [Beam];
    KeyAlreadyRevoked => "key_already_revoked", Conflict, [Beam];
    KeyRotationRequired => "key_rotation_required", Conflict, [Beam];
    InvalidRotation => "invalid_rotation", Invalid, [Beam];
    NoopRotation => "noop_rotation", Invalid, [Beam];
    InvalidRotationProof => "invalid_rotation_proof", Invalid, [Beam];
    InvalidRevocation => "invalid_revocation", Invalid, [Beam];
    ActiveKeyRequired => "active_key_required", Conflict, [Beam];
    KeyNotFound => "key_not_found", NotFound, [Beam];
    InvalidAcl => "invalid_acl", Invalid, [Beam];
    AclError => "acl_error", Invalid, [Beam];
    InvalidAclId => "invalid_acl_id", Invalid, [Beam];
    InvalidDelegation => "invalid_delegation", Invalid, [Beam];
    PrivateDirectory => "private_directory", Forbidden, [Beam];
    FederationUnauthorized => "federation_unauthorized", Unauthorized, [Beam];
    InvalidPeer => "invalid_peer", Invalid, [Beam];
    FederationError => "federation_error", Internal, [Beam];
    FederationRelayError => "federation_relay_error", BadGateway, [Beam];
    AdminUnavailable => "admin_unavailable", Busy, [Beam];
    InvalidToken => "invalid_token", Unauthorized, [Beam];
    SlugTaken => "slug_taken", Conflict, [Mesh];
    BlobsUnavailable => "blobs_unavailable", Busy, [Mesh];
}

impl Code {
    /// The rows of one protocol, in the order of the table.
    pub fn of_face(face: Face) -> impl Iterator<Item = Self> {
        let all = Self::ALL.iter().copied();
        all.filter(move |code| code.faces().contains(&face))
    }
}

/// Why a command was not carried out. An expected answer, not a failure of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no such intent")]
    NotFound,
    #[error("the lease is not held by this caller with this token, or it ran out")]
    LeaseLost,
    #[error("the next attempt would begin after the life of the intent, which ends in {left_s} s")]
    PastLife { left_s: i64 },
    #[error("somebody else holds it")]
    Held,
    #[error("this step is not allowed from the present state")]
    IllegalState,
    #[error("it has changed since it was looked at")]
    Changed,
    #[error("it is completed, and its result would be lost or contradicted")]
    Completed,
    #[error("item {index}: the key was used before with another content")]
    OnceConflict { index: usize },
    #[error("the key was used before with the same content")]
    AlreadyBegun { id: IntentId },
    #[error("the nonce was used before")]
    Replay,
    #[error("the key is unknown or revoked")]
    UnknownKey,
    #[error("the key has expired")]
    KeyExpired,
    #[error("the claim needs a grant that does not exist")]
    NotGranted,
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
    fn names_are_snake_case_and_each_row_is_needed() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            let name = code.name();
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            let class = format!("{:?}", code.class());
            assert!(seen.insert((name, class)), "{name} twice with one class");
        }
    }

    #[test]
    fn the_table_has_rows_of_each_protocol_that_is_served() {
        for face in [
            Face::Intent,
            Face::Automation,
            Face::Transaction,
            Face::Beam,
        ] {
            assert!(Code::of_face(face).count() > 20, "{face:?}");
        }
        assert!(Code::of_face(Face::Mesh).count() > 10);
    }
}
