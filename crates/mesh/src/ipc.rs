//! The local interface of the daemon: who may call it, what requests contain, and what is answered.
//!
//! The bodies here are what programs on the same machine read and write. Invariant: a request is refused before it has an
//! effect, and every refusal is a JSON object with `error`.

mod answer;
mod event;
mod guard;
mod items;
pub mod openapi;
mod page;
pub mod path;
mod publish;
mod request;
mod route;
#[cfg(test)]
mod tests;
mod token;

use serde::Serialize;

pub use answer::{CompatAnswer, HealthAnswer, IpcAnswer, SendAnswer, VersionAnswer, answer_send};
pub use event::{MeshEventKind, sse_comment, sse_event};
pub use guard::{IpcCaller, IpcHead, IpcPolicy, IpcTransport, check_head, redacted_authorization};
pub use items::{InboxItem, IpcItemList, OutboxItem, RequeueAnswer, TopicItem};
pub use page::{FileGetQuery, FileListQuery, InboxQuery, OutboxQuery};
pub use publish::{INTENT_KIND, IntentRequest, IpcPublish};
pub use request::{
    FileShareRequest, IpcSend, OutboxDrop, OutboxPrune, OutboxRequeue, PeerProfileUpdate,
    StateUpdate, TopicSubscription,
};
pub use route::IpcRoute;
pub use token::LocalToken;

/// A request that the daemon refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{status} {error}")]
pub struct IpcRefusal {
    pub status: u16,
    pub error: String,
    /// The part of the interface that is off.
    pub capability: Option<String>,
    /// What to do, in words.
    pub message: Option<&'static str>,
}

#[derive(Serialize)]
struct RefusalBody<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    capability: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl IpcRefusal {
    pub fn new(status: u16, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
            capability: None,
            message: None,
        }
    }

    /// What only the broker knows is unknown without it.
    pub fn broker_unreachable() -> Self {
        Self {
            message: Some("the broker is not connected; repeat the request later"),
            ..Self::new(503, "broker_unreachable")
        }
    }

    pub fn bad_request(error: impl Into<String>) -> Self {
        Self::new(400, error)
    }

    pub fn not_found() -> Self {
        Self::new(404, "not found")
    }

    pub fn capability_disabled(capability: &str) -> Self {
        Self {
            capability: Some(capability.to_owned()),
            ..Self::new(404, "capability_disabled")
        }
    }

    /// A token that no running hook holds.
    pub fn invalid_capability_token() -> Self {
        Self::new(401, "invalid capability token")
    }

    /// A call of a hook that its token does not cover.
    pub fn capability_scope() -> Self {
        Self::new(403, "capability_scope")
    }

    pub fn payload_too_large() -> Self {
        Self::new(413, "payload_too_large")
    }

    pub fn rate_limited() -> Self {
        Self::new(429, "rate_limited")
    }

    pub fn daemon_busy() -> Self {
        Self::new(429, "daemon_busy")
    }

    pub fn too_many_streams() -> Self {
        Self::new(429, "too_many_streams")
    }

    pub fn insufficient_storage() -> Self {
        Self::new(507, "insufficient_storage")
    }

    pub fn to_body(&self) -> String {
        let body = RefusalBody {
            error: &self.error,
            capability: self.capability.as_deref(),
            message: self.message,
        };
        serde_json::to_string(&body).expect("strings are JSON")
    }
}
