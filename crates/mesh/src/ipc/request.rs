//! Bodies of requests, with the refusals of the protocol.

use consign_kernel::json::{JsonKind, Object, Raw};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::IpcRefusal;
use crate::client_message_id::{ClientMessageId, InvalidClientMessageId};
use crate::destination::{Destination, Recipient};
use crate::fingerprint::{
    BodyHash, ContainsNul, ENVELOPE_VERSION, FingerprintInput, RequestFingerprint,
};
use crate::frame::RawJson;
use crate::id::{MeshSlug, StateKey, TopicName};
use crate::limits::FILE_MESSAGE_CHARACTERS_MAX;
use crate::limits::{FRAME_DEPTH_MAX, INLINE_BYTES_MAX, IPC_BODY_BYTES_MAX, MENTIONS_MAX};
use crate::meta::{CanonicalMeta, MetaError};
use crate::priority::{MeshPriority, PeerStatus};
use crate::ulid::MeshUlid;

/// A message to send, from `/v1/send` or `/v1/topic/post`. Its recipient is not looked up yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpcSend {
    pub to: Recipient,
    pub message: String,
    pub priority: MeshPriority,
    pub mentions: Vec<String>,
    pub meta: CanonicalMeta,
    pub reply_to_id: Option<String>,
    /// From the header or the body; `None` if the daemon must mint one.
    client_message_id: Option<String>,
}

impl IpcSend {
    /// Reads the body of `/v1/send`.
    pub fn parse_send(
        body: &[u8],
        idempotency_key: Option<&str>,
        own: &MeshSlug,
    ) -> Result<Self, IpcRefusal> {
        let object = object(body)?;
        let to = text(&object, "to")?.filter(|to| !to.trim().is_empty());
        let to = to.ok_or_else(|| IpcRefusal::bad_request("missing 'to'"))?;
        let recipient =
            Recipient::parse(&to).ok_or_else(|| IpcRefusal::bad_request("invalid 'to'"))?;
        Self::parse(&object, recipient, idempotency_key, own)
    }

    /// Reads the body of `/v1/topic/post`.
    pub fn parse_post(
        body: &[u8],
        idempotency_key: Option<&str>,
        own: &MeshSlug,
    ) -> Result<Self, IpcRefusal> {
        let object = object(body)?;
        let topic = topic(&object)?;
        Self::parse(&object, Recipient::Topic(topic), idempotency_key, own)
    }

    fn parse(
        object: &Object<'_>,
        to: Recipient,
        idempotency_key: Option<&str>,
        own: &MeshSlug,
    ) -> Result<Self, IpcRefusal> {
        let message = text(object, "message")?.filter(|message| !message.is_empty());
        let message = message.ok_or_else(|| IpcRefusal::bad_request("missing 'message'"))?;
        if message.len() > INLINE_BYTES_MAX {
            return Err(IpcRefusal::payload_too_large());
        }
        check_mesh(object, own)?;
        let priority = match text(object, "priority")? {
            None => MeshPriority::default(),
            Some(word) => MeshPriority::parse(&word)
                .ok_or_else(|| IpcRefusal::bad_request("invalid_priority"))?,
        };
        let meta = object.get("meta").map(|raw| raw.text());
        let meta = CanonicalMeta::parse(meta).map_err(|error| {
            IpcRefusal::bad_request(match error {
                MetaError::NotAnObject => "invalid 'meta'",
                MetaError::NotCanonical(_) => "meta_not_canonical",
            })
        })?;
        let reply = match (text(object, "replyToId")?, text(object, "reply_to_id")?) {
            (Some(one), Some(other)) if one != other => {
                return Err(IpcRefusal::bad_request("replyToId and reply_to_id differ"));
            }
            (one, other) => one.or(other),
        };
        let body_id = text(object, "client_message_id")?;
        let client_message_id = idempotency_key.map(str::to_owned).or(body_id);
        let parsed = client_message_id
            .as_deref()
            .map(ClientMessageId::parse)
            .transpose();
        parsed.map_err(invalid_id)?;
        let send = Self {
            to,
            message,
            priority,
            mentions: mentions(object)?,
            meta,
            reply_to_id: reply.filter(|id| !id.is_empty()),
            client_message_id,
        };
        let has_nul = send
            .reply_to_id
            .as_ref()
            .is_some_and(|id| id.contains('\0'));
        if has_nul {
            return Err(IpcRefusal::bad_request(
                ContainsNul("reply_to_id").to_string(),
            ));
        }
        Ok(send)
    }

    /// The id of the message; `mint` is called if the caller named none.
    pub fn id(&self, mint: impl FnOnce() -> MeshUlid) -> Result<ClientMessageId, IpcRefusal> {
        ClientMessageId::choose(self.client_message_id.as_deref(), None, mint).map_err(invalid_id)
    }

    /// The fingerprint, once the recipient is known. It is computed here once and then stored.
    pub fn fingerprint(&self, destination: &Destination) -> Result<RequestFingerprint, IpcRefusal> {
        let input = FingerprintInput {
            envelope_version: ENVELOPE_VERSION,
            destination_kind: destination.kind(),
            destination_ref: &destination.reference(),
            reply_to_id: self.reply_to_id.as_deref(),
            priority: self.priority,
            meta: &self.meta,
            body_hash: BodyHash::of(self.message.as_bytes()),
        };
        let nul = |error: ContainsNul| IpcRefusal::bad_request(error.to_string());
        input.fingerprint().map_err(nul)
    }
}

/// The topic of `/v1/topic/subscribe` and `/v1/topic/unsubscribe`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSubscription {
    pub topic: TopicName,
}

impl TopicSubscription {
    pub fn parse(body: &[u8], own: &MeshSlug) -> Result<Self, IpcRefusal> {
        let object = object(body)?;
        check_mesh(&object, own)?;
        let topic = topic(&object)?;
        Ok(Self { topic })
    }
}

/// The body of `/v1/profile`. At least one member must be there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PeerProfileUpdate {
    pub summary: Option<String>,
    pub status: Option<PeerStatus>,
    pub visible: Option<bool>,
}

impl PeerProfileUpdate {
    pub fn parse(body: &[u8]) -> Result<Self, IpcRefusal> {
        let update: Self = read(body)?;
        if update.applied().is_empty() {
            return Err(IpcRefusal::bad_request("nothing to change"));
        }
        Ok(update)
    }

    /// The names of the members that are there, for the answer.
    pub fn applied(&self) -> Vec<&'static str> {
        let members = [
            (self.summary.is_some(), "summary"),
            (self.status.is_some(), "status"),
            (self.visible.is_some(), "visible"),
        ];
        members
            .iter()
            .filter(|(is_there, _)| *is_there)
            .map(|(_, name)| *name)
            .collect()
    }
}

/// The body of `/v1/file/share`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FileShareRequest {
    pub path: String,
    pub to: Option<String>,
    pub message: Option<String>,
    #[serde(default)]
    pub persistent: bool,
}

impl FileShareRequest {
    pub fn parse(body: &[u8]) -> Result<Self, IpcRefusal> {
        let request: Self = read(body)?;
        if request.path.is_empty() || request.path.contains('\0') {
            return Err(IpcRefusal::bad_request("missing 'path'"));
        }
        let message = request.message.as_deref().unwrap_or_default();
        if message.chars().count() > FILE_MESSAGE_CHARACTERS_MAX {
            return Err(IpcRefusal::bad_request(format!(
                "'message' has more than {FILE_MESSAGE_CHARACTERS_MAX} characters"
            )));
        }
        Ok(request)
    }
}

/// The body of `/v1/state`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StateUpdate {
    pub key: StateKey,
    pub value: RawJson,
}

impl StateUpdate {
    pub fn parse(body: &[u8]) -> Result<Self, IpcRefusal> {
        read(body)
    }
}

/// The body of `/v1/outbox/requeue`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OutboxRequeue {
    /// The row to retire.
    pub id: String,
    /// The id of the new row; minted if it is absent.
    pub new_client_message_id: Option<ClientMessageId>,
    pub aborted_by: Option<String>,
    /// Another body. It is encrypted and hashed again.
    pub message: Option<String>,
}

impl OutboxRequeue {
    pub fn parse(body: &[u8]) -> Result<Self, IpcRefusal> {
        let request: Self = read(body)?;
        if request.id.is_empty() {
            return Err(IpcRefusal::bad_request("missing 'id'"));
        }
        if request
            .message
            .as_ref()
            .is_some_and(|message| message.len() > INLINE_BYTES_MAX)
        {
            return Err(IpcRefusal::payload_too_large());
        }
        Ok(request)
    }
}

/// The body of `/v1/outbox/drop`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OutboxDrop {
    pub id: String,
}

impl OutboxDrop {
    pub fn parse(body: &[u8]) -> Result<Self, IpcRefusal> {
        read(body)
    }
}

/// The body of `/v1/outbox/prune`, which must confirm that rows are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct OutboxPrune {
    pub confirm: bool,
}

impl OutboxPrune {
    pub fn parse(body: &[u8]) -> Result<Self, IpcRefusal> {
        let request: Self = read(body)?;
        if request.confirm {
            Ok(request)
        } else {
            Err(IpcRefusal::bad_request("confirm must be true"))
        }
    }
}

fn object(body: &[u8]) -> Result<Object<'_>, IpcRefusal> {
    if body.len() > IPC_BODY_BYTES_MAX {
        return Err(IpcRefusal::payload_too_large());
    }
    Object::parse(body, FRAME_DEPTH_MAX).map_err(|_| IpcRefusal::bad_request("invalid_json"))
}

fn read<B: DeserializeOwned>(body: &[u8]) -> Result<B, IpcRefusal> {
    object(body)?;
    serde_json::from_slice(body)
        .map_err(|error| IpcRefusal::bad_request(format!("invalid request: {error}")))
}

/// The text of a member. `null` counts as absent.
pub(super) fn text(object: &Object<'_>, key: &str) -> Result<Option<String>, IpcRefusal> {
    let Some(raw) = object.get(key).filter(|raw| !raw.is_null()) else {
        return Ok(None);
    };
    match raw.as_str() {
        Some(text) => Ok(Some(text.into_owned())),
        None => Err(IpcRefusal::bad_request(format!("invalid '{key}'"))),
    }
}

fn topic(object: &Object<'_>) -> Result<TopicName, IpcRefusal> {
    let topic = text(object, "topic")?.filter(|topic| !topic.is_empty());
    let topic = topic.ok_or_else(|| IpcRefusal::bad_request("missing 'topic'"))?;
    let name = topic.strip_prefix('#').unwrap_or(&topic);
    TopicName::parse(name).map_err(|_| IpcRefusal::bad_request("invalid 'topic'"))
}

fn mentions(object: &Object<'_>) -> Result<Vec<String>, IpcRefusal> {
    let invalid = || IpcRefusal::bad_request("invalid 'mentions'");
    let Some(raw) = object.get("mentions").filter(|raw| !raw.is_null()) else {
        return Ok(Vec::new());
    };
    let items = raw.items().filter(|items| items.len() <= MENTIONS_MAX);
    let text = |raw: Raw<'_>| match raw.kind() {
        JsonKind::String => raw
            .as_str()
            .map(std::borrow::Cow::into_owned)
            .ok_or_else(invalid),
        JsonKind::Null | JsonKind::Bool | JsonKind::Number | JsonKind::Array | JsonKind::Object => {
            Err(invalid())
        }
    };
    items.ok_or_else(invalid)?.into_iter().map(text).collect()
}

/// A request may name the mesh, and then it must be this daemon's.
pub(super) fn check_mesh(object: &Object<'_>, own: &MeshSlug) -> Result<(), IpcRefusal> {
    match text(object, "mesh")? {
        Some(mesh) if mesh != own.as_str() => Err(IpcRefusal::new(404, "mesh_not_attached")),
        _ => Ok(()),
    }
}

pub(super) fn invalid_id(_: InvalidClientMessageId) -> IpcRefusal {
    IpcRefusal::bad_request("invalid_client_message_id")
}
