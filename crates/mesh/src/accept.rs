//! What a broker does with a `send`: its checks before the ledger, and the answer to a repeated id.
//!
//! Invariant: a refusal here has written nothing, so it does not use up the id. Every refusal begins with a stable word, and
//! upstream's daemon recognises the permanent ones by that word.

mod answer;
mod check;
#[cfg(test)]
mod tests;

pub use answer::{Accepted, FirstAccept, Repeated, repeated};
pub use check::{CheckedSend, SendKey, check_send};

/// Why a message was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptRefusal {
    pub reason: AcceptReason,
    /// What follows the stable word.
    pub detail: String,
}

/// The reasons of refusals, with their status and their word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptReason {
    /// A member is missing, has the wrong type, or is not base64.
    InvalidFrame,
    InvalidPriority,
    InvalidClientMessageId,
    InvalidFingerprint,
    /// Kind or reference is invalid, or does not agree with the target.
    InvalidDestination,
    MetaNotCanonical,
    BodyHashMismatch,
    /// The sender may not post to the topic.
    Forbidden,
    /// No such member, topic or reply.
    NotFound,
    /// The id belongs to another request, or the sender computed another fingerprint.
    KeyReused,
    PayloadTooLarge,
    RateLimit,
    Unavailable,
}

impl AcceptReason {
    pub const ALL: &[Self] = &[
        Self::InvalidFrame,
        Self::InvalidPriority,
        Self::InvalidClientMessageId,
        Self::InvalidFingerprint,
        Self::InvalidDestination,
        Self::MetaNotCanonical,
        Self::BodyHashMismatch,
        Self::Forbidden,
        Self::NotFound,
        Self::KeyReused,
        Self::PayloadTooLarge,
        Self::RateLimit,
        Self::Unavailable,
    ];

    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidFrame
            | Self::InvalidPriority
            | Self::InvalidClientMessageId
            | Self::InvalidFingerprint
            | Self::InvalidDestination
            | Self::MetaNotCanonical
            | Self::BodyHashMismatch => 400,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::KeyReused => 409,
            Self::PayloadTooLarge => 413,
            Self::RateLimit => 429,
            Self::Unavailable => 503,
        }
    }

    /// The word that the error begins with.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidFrame => "invalid_frame",
            Self::InvalidPriority => "invalid_priority",
            Self::InvalidClientMessageId => "invalid_client_message_id",
            Self::InvalidFingerprint => "invalid_request_fingerprint",
            Self::InvalidDestination => "invalid_destination",
            Self::MetaNotCanonical => "meta_not_canonical",
            Self::BodyHashMismatch => "body_hash_mismatch",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::KeyReused => "idempotency_key_reused",
            Self::PayloadTooLarge => "payload_too_large",
            Self::RateLimit => "rate_limit",
            Self::Unavailable => "unavailable",
        }
    }
}

impl AcceptRefusal {
    pub fn new(reason: AcceptReason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
        }
    }

    /// The text of `error` in an `ack`. Upstream's daemon reads `invalid` as permanent; the words for hashes and canonical
    /// JSON do not contain it, so the text does.
    pub fn error(&self) -> String {
        let word = self.reason.as_str();
        match self.reason {
            AcceptReason::MetaNotCanonical
            | AcceptReason::BodyHashMismatch
            | AcceptReason::KeyReused => {
                format!("{word}: invalid: {}", self.detail)
            }
            AcceptReason::InvalidFrame
            | AcceptReason::InvalidPriority
            | AcceptReason::InvalidClientMessageId
            | AcceptReason::InvalidFingerprint
            | AcceptReason::InvalidDestination
            | AcceptReason::Forbidden
            | AcceptReason::NotFound
            | AcceptReason::PayloadTooLarge
            | AcceptReason::RateLimit
            | AcceptReason::Unavailable => format!("{word}: {}", self.detail),
        }
    }
}
