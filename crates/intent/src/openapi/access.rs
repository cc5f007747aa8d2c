//! The sections of the documentation, and the credentials that routes need.

use consign_kernel::error::Code;
use consign_web::openapi::{Access, Tag};
use consign_web::shell::SERVER_TAG;

pub(super) const TAGS: &[Tag] = &[PUBLISH, WORK, READ, STORE, OPERATE, SERVER_TAG];

pub(super) const PUBLISH: Tag = Tag {
    title: "Publish",
    about: "Publish work. A response with status 201 means that the intent is on disk.",
};

pub(super) const WORK: Tag = Tag {
    title: "Work",
    about: "Claim an intent, extend its lease while you work, and report the outcome. When a lease expires, another worker can claim the intent.",
};

pub(super) const READ: Tag = Tag {
    title: "Read",
    about: "Read the state, history and receipts of your intents.",
};

pub(super) const STORE: Tag = Tag {
    title: "Key-value store",
    about: "Short-lived values next to the queue. Each API key has its own store.",
};

pub(super) const OPERATE: Tag = Tag {
    title: "Operate",
    about: "For operators: keys, dead letters, single intents, nodes, the state of the queue.",
};

/// No credentials.
pub(super) const ANYONE: Access = Access {
    words: "nothing",
    schemes: &[],
    codes: &[Code::InvalidRequest, Code::Internal],
    challenge: &[],
    example_header: "",
};

/// An API key, signed or not.
pub(super) const CLIENT: Access = Access {
    words: "API key",
    schemes: &[&["apiKey"], &["apiKey", "signature", "timestamp", "nonce"]],
    codes: &[
        Code::InvalidRequest,
        Code::InvalidPayload,
        Code::Unauthorized,
        Code::Forbidden,
        Code::InvalidSignature,
        Code::HttpsRequired,
        Code::RequestTimeout,
        Code::PayloadTooLarge,
        Code::RateLimited,
        Code::DatabaseBusy,
        Code::Maintenance,
        Code::Internal,
    ],
    challenge: &[],
    example_header: "X-API-KEY: $KEY",
};

/// The admin token, the password of a user with a sufficient role, or an API key with a scope of operators.
pub(super) const OPERATOR: Access = Access {
    words: "admin token, password, or an API key with the scope admin-read (or admin, for changes)",
    schemes: &[&["adminToken"], &["adminPassword"], &["apiKey"]],
    codes: &[
        Code::InvalidRequest,
        Code::InvalidPayload,
        Code::Unauthorized,
        Code::Forbidden,
        Code::HttpsRequired,
        Code::RequestTimeout,
        Code::PayloadTooLarge,
        Code::RateLimited,
        Code::DatabaseBusy,
        Code::Internal,
    ],
    challenge: &["WWW-Authenticate"],
    example_header: "X-Admin-Token: $ADMIN",
};

/// The metrics token, or an operator.
pub(super) const METRICS: Access = Access {
    words: "metrics token, admin token or password",
    schemes: &[
        &["metricsToken"],
        &["adminToken"],
        &["adminPassword"],
        &["apiKey"],
    ],
    codes: &[
        Code::InvalidRequest,
        Code::Unauthorized,
        Code::Forbidden,
        Code::HttpsRequired,
        Code::RateLimited,
        Code::DatabaseBusy,
        Code::Internal,
    ],
    challenge: &[],
    example_header: "Authorization: Bearer $METRICS",
};

/// A client or an operator, for documents that contain no secret but are not public.
pub(super) const READER: Access = Access {
    words: "API key, admin token or password",
    schemes: &[
        &["apiKey"],
        &["apiKey", "signature", "timestamp", "nonce"],
        &["adminToken"],
        &["adminPassword"],
    ],
    codes: CLIENT.codes,
    challenge: &["Maybe-WWW-Authenticate"],
    example_header: "X-API-KEY: $KEY",
};
