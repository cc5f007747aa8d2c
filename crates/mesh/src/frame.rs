//! The frames of the broker's WebSocket: one JSON object per text message, with a `type`.
//!
//! Both directions are read and written here, because the broker reads what a daemon writes. Invariant: a frame that was
//! read and written again reads as the same frame; unknown members are ignored, and an unknown `type` is not an error.
//! A frame that is not well-formed keeps the ids that its answer must repeat.

mod broker;
mod client;
mod grants;
mod handshake;
mod message;
mod negotiation;
mod presence;
mod shared_state;
#[cfg(test)]
mod tests;
mod topics;

use consign_kernel::json::{Defect, Object};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use broker::BrokerFrame;
pub use client::ClientFrame;
pub use grants::{GrantsList, ListGrants, SetGrants};
pub use handshake::{
    GroupEntry, HelloAck, HelloFrame, KeyRotationFrame, MemberProfile, SessionAttestation,
    SessionHello,
};
pub use message::{
    AckFrame, ClientAck, ErrorFrame, MessageStatusRequest, MessageStatusResult, PushFrame,
    PushSubtype, SendFrame,
};
pub use negotiation::{FeatureOffer, FeatureRequest, FeatureResponse};
pub use presence::{
    JoinGroup, LeaveGroup, ListPeers, MemberEntry, PeerEntry, PeersList, SetProfile, SetStats,
    SetStatus, SetSummary, SetVisible,
};
pub use shared_state::{
    GetState, ListState, SetState, StateChange, StateEntry, StateList, StateResult,
};
pub use topics::{
    TopicCreate, TopicCreated, TopicCreatedEntry, TopicEntry, TopicHistory, TopicHistoryEntry,
    TopicHistoryResponse, TopicJoin, TopicLeave, TopicList, TopicListResponse, TopicMarkRead,
    TopicMemberEntry, TopicMembers, TopicMembersResponse,
};

use crate::limits::{FRAME_BYTES_MAX, FRAME_DEPTH_MAX, REQUEST_ID_BYTES_MAX};

/// Whether a written frame may be sent. A daemon asks before it accepts a message, because the broker would close the
/// connection at every attempt.
pub const fn fits(text: &str) -> bool {
    text.len() <= FRAME_BYTES_MAX
}

/// A JSON value as it was sent: its tokens are neither rounded nor reordered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// `None` if the text is not one JSON value.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub fn text(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

/// A frame with the id of the request that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Framed<F> {
    pub frame: F,
    /// Repeated in the answer.
    pub req_id: Option<String>,
}

/// Why a message is no frame.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MeshFrameError {
    #[error("the frame is longer than {0} bytes")]
    TooLong(usize),
    #[error("the frame is not a JSON object: {0}")]
    NotAnObject(#[from] Defect),
    #[error("the frame has no type")]
    NoType,
    #[error("malformed {kind}: {detail}")]
    Malformed {
        kind: String,
        /// `id` of a `send`, which gets an `ack` also when it is malformed.
        id: Option<String>,
        req_id: Option<String>,
        /// For the sender of the frame, whose values it may contain.
        detail: String,
    },
}

/// The members that every frame may have.
struct Head {
    kind: String,
    id: Option<String>,
    req_id: Option<String>,
}

impl Head {
    fn read(text: &str, bytes_max: usize) -> Result<Self, MeshFrameError> {
        if text.len() > bytes_max {
            return Err(MeshFrameError::TooLong(bytes_max));
        }
        let object = Object::parse(text.as_bytes(), FRAME_DEPTH_MAX)?;
        let short = |key| {
            let text = object.get(key).and_then(|raw| raw.as_str());
            text.filter(|text| text.len() <= REQUEST_ID_BYTES_MAX)
                .map(std::borrow::Cow::into_owned)
        };
        Ok(Self {
            kind: short("type").ok_or(MeshFrameError::NoType)?,
            id: short("id"),
            req_id: short("_reqId"),
        })
    }

    fn body<B: DeserializeOwned>(&self, text: &str) -> Result<B, MeshFrameError> {
        serde_json::from_str(text).map_err(|error| MeshFrameError::Malformed {
            kind: self.kind.clone(),
            id: self.id.clone(),
            req_id: self.req_id.clone(),
            detail: error.to_string(),
        })
    }
}

/// A frame on its way out: the type first, then the members, then the id of the request.
#[derive(Serialize)]
struct Tagged<'a, B> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(flatten)]
    body: &'a B,
    #[serde(rename = "_reqId", skip_serializing_if = "Option::is_none")]
    req_id: Option<&'a str>,
}

fn write<B: Serialize>(kind: &str, body: &B, req_id: Option<&str>) -> String {
    let tagged = Tagged { kind, body, req_id };
    serde_json::to_string(&tagged).expect("frames have string keys")
}

/// Declares the frames of one direction: the length of the longest one, variants with their bodies and types.
macro_rules! frames {
    ($(#[$doc:meta])* $name:ident, at most $bytes_max:ident { $($variant:ident($body:ty) => $kind:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $($variant(Box<$body>),)*
            /// A type that this version does not know. It gets no answer.
            Unknown(String),
        }

        impl $name {
            /// The types that are known.
            pub const KINDS: &[&str] = &[$($kind),*];

            pub fn parse(text: &str) -> Result<$crate::frame::Framed<Self>, $crate::frame::MeshFrameError> {
                let head = $crate::frame::Head::read(text, $crate::limits::$bytes_max)?;
                let frame = match head.kind.as_str() {
                    $($kind => Self::$variant(Box::new(head.body::<$body>(text)?)),)*
                    _ => Self::Unknown(head.kind),
                };
                Ok($crate::frame::Framed { frame, req_id: head.req_id })
            }

            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $kind,)*
                    Self::Unknown(kind) => kind,
                }
            }

            /// The text of the frame; `req_id` is that of the request it answers.
            pub fn to_text(&self, req_id: Option<&str>) -> String {
                match self {
                    $(Self::$variant(body) => $crate::frame::write($kind, &**body, req_id),)*
                    Self::Unknown(kind) => $crate::frame::write(kind, &std::collections::BTreeMap::<String, String>::new(), req_id),
                }
            }
        }

        $(impl From<$body> for $name {
            fn from(body: $body) -> Self {
                Self::$variant(Box::new(body))
            }
        })*
    };
}

use frames;
