//! The HTTP client that the command line, the load generator, the payment rails and tests use.
//!
//! It speaks HTTP/1.1 to one server, signs requests as the Intent Protocol requires, and offers one
//! typed call per route. Invariants: a request is repeated only if nothing of it was sent; no key
//! appears in `Debug` or in an error; every answer has a size limit and every call a time limit. It
//! follows no redirects (a key must not be sent to another host), speaks no HTTP/2, and contains no
//! rules about intents.
//!
//! [`PinnedClient`] calls many servers, each at socket addresses that its caller resolved and checked.
//!
//! [`RetryLoop`] repeats requests that may have arrived: only requests of the transaction protocol,
//! which have the same idempotency key every time, and by the rules in [`retry`].

mod address;
mod admin;
mod atp_wire;
mod beam;
mod call;
mod client;
mod connection;
mod error;
mod events;
mod intents;
mod key;
mod kv;
mod mesh;
mod operator;
mod pinned;
mod query;
pub mod retry;
mod retry_loop;
mod search;
mod settle;
mod sign;
mod socket;
mod surrogates;
mod tls;
mod transactions;
mod wire;

pub use address::Address;
pub use admin::AuditQuery;
pub use atp_wire::{
    AnnouncedKey, AtpIntent, AtpRail, AtpReceipt, AtpReceiptList, AtpTransaction, AuthorizedIntent,
    CreatedAtpIntent, FailureView, IntentLimits, ResolvedTransaction, RevokedKey, RotatedKey,
    SiteHealth, SiteKeyList, SiteKeyView, SweepReply, TransactionList, VerificationView,
    VerifyReply,
};
pub use beam::{AgentSearch, BeamIntentSearch, MessagePoll, MessageSearch};
pub use client::{ANSWER_BYTES_MAX, Client, Options, Response};
pub use error::Error;
pub use events::{Events, StreamEvent};
pub use intents::{ClaimFilter, NextAttempt, Output, Publish, PublishItem};
pub use key::SecretKey;
pub use operator::ListFilter;
pub use pinned::{ExchangeLimits, PinnedClient, PinnedRequest, PinnedTarget};
pub use query::encode as percent_encode;
pub use retry_loop::RetryLoop;
pub use search::{
    BulkProgress, DeadLetter, DeadPage, FoundCount, FoundIntent, FoundPage, InspectedIntent,
    OperatedIntent, RefusedRow, SearchRequest,
};
pub use settle::{ClaimNext, ClaimSettlement, ItemOutcome, SettleResponse};
pub use sign::{canonical_query, signature};
pub use socket::{PeerProcess, Socket};
pub use transactions::{ParsedResponse, Transactions};
pub use wire::{
    ApiKeyInfo, AuditRecord, AuditRecords, Claimed, ErrorDetail, Extended, FailReply, IntentResult,
    IntentStatus, KeyGrant, KeyOptions, ListPage, NewApiKey, NodeStatus, Published,
    ReceiptStanding, Timeline, TimelineEntry, UserStatus,
};

pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
pub use hyper::body::Bytes;
