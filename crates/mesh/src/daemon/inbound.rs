//! What the broker pushes: messages for the inbox, and events about peers.
//!
//! Invariant: a message is in the inbox, and on the disk, before it is acknowledged and before anything else learns of it. One
//! that is there already is only acknowledged. One for which there is no space is neither stored nor acknowledged: the broker
//! keeps it and sends it again.

use std::sync::Arc;

use consign_kernel::plant::{self, Plant};
use consign_store::inbox::{InboxCommit, ReceivedMessage};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::accept::file_bytes;
use super::hooks::{HookKind, HookMessage, HookOrigin};
use super::metrics::DaemonMetric;
use super::shared::{DaemonShared, MemberKeys, wall_ms};
use super::shared_file::{FilePiece, SharedFile};
use crate::body::CarriedBody;
use crate::frame::{ClientAck, ClientFrame, PushFrame, PushSubtype};
use crate::id::TopicName;
use crate::ipc::MeshEventKind;
use crate::keys::MeshPublicKey;
use crate::mention::mentions;
use crate::outbox::QueuePressure;

/// Messages that wait to be stored, and those that are stored in one commit.
pub(super) const INBOUND_MAX: usize = 64;

/// Runs until the connection task ends.
pub(super) async fn receive(shared: Arc<DaemonShared>, mut pushes: mpsc::Receiver<PushFrame>) {
    let mut waiting = Vec::with_capacity(INBOUND_MAX);
    while pushes.recv_many(&mut waiting, INBOUND_MAX).await > 0 {
        let mut messages = Vec::with_capacity(waiting.len());
        for push in waiting.drain(..) {
            if is_event(&push) {
                // What came before the event is announced before it.
                store(&shared, std::mem::take(&mut messages)).await;
                publish_event(&shared, &push);
            } else {
                messages.push(push);
            }
        }
        store(&shared, messages).await;
    }
}

fn is_event(push: &PushFrame) -> bool {
    push.subtype == Some(PushSubtype::System) || push.sender_pubkey == PushFrame::SYSTEM
}

/// Whether the broker reports that the membership of this daemon has ended.
pub(super) fn is_own_end(shared: &DaemonShared, push: &PushFrame) -> bool {
    let ends = matches!(
        push.event.as_deref(),
        Some("member_revoked" | "keypair_revoked")
    );
    is_event(push) && ends && concerns_us(shared, &event_data(push))
}

fn concerns_us(shared: &DaemonShared, data: &Map<String, Value>) -> bool {
    let keys = shared.keys();
    let identity = &keys.identity;
    let own_key = identity.key.public_key().to_string();
    let says = |key: &str, own: &str| data.get(key).and_then(Value::as_str) == Some(own);
    let key_names = [
        "pubkey",
        "memberPubkey",
        "member_pubkey",
        "old_pubkey",
        "new_pubkey",
    ];
    let ids = ["memberId", "member_id"];
    key_names.iter().any(|key| says(key, &own_key))
        || ids.iter().any(|key| says(key, &identity.member_id))
}

fn event_data(push: &PushFrame) -> Map<String, Value> {
    let data = push.event_data.as_ref();
    data.and_then(|data| serde_json::from_str(data.text()).ok())
        .unwrap_or_default()
}

fn publish_event(shared: &DaemonShared, push: &PushFrame) {
    let data = event_data(push);
    let name = push.event.as_deref().unwrap_or_default();
    // What happens to our own keys was our own doing.
    if name.starts_with("member_") && concerns_us(shared, &data) {
        return;
    }
    if name.starts_with("member_") || name.starts_with("peer_") {
        shared.peers.note_change();
    }
    let kind = match name {
        "peer_joined" | "peer_returned" => MeshEventKind::PeerJoin,
        "peer_left" => MeshEventKind::PeerLeave,
        _ => MeshEventKind::System,
    };
    let text = |keys: &[&str]| {
        let found = keys.iter().find_map(|key| data.get(*key));
        found.cloned().unwrap_or(Value::Null)
    };
    let mut event = json!({
        "mesh": shared.slug.as_str(),
        "event": name,
        "name": text(&["displayName", "name"]),
        "pubkey": text(&["memberPubkey", "pubkey"]),
    });
    if kind == MeshEventKind::System {
        event["data"] = Value::Object(data);
    }
    shared.events.publish(kind, event);
}

/// Stores messages in one commit, and then acknowledges and announces each.
async fn store(shared: &Arc<DaemonShared>, pushes: Vec<PushFrame>) {
    if pushes.is_empty() || !shared.has_inbox_space().await {
        return;
    }
    let messages: Vec<_> = pushes
        .iter()
        .map(|push| (opened(shared, push), push.message_id.clone()))
        .collect();
    let inbox = Arc::clone(&shared.inbox);
    let stored = tokio::task::spawn_blocking(move || {
        inbox.in_one_commit(|commit| {
            let stored = messages
                .into_iter()
                .map(|(message, key)| insert(commit, message, key));
            stored.collect::<Result<Vec<_>, _>>()
        })
    });
    let stored = match stored.await {
        Ok(Ok(stored)) => stored,
        Ok(Err(error)) => return report_failure(shared, &error.to_string()),
        Err(error) => return report_failure(shared, &error.to_string()),
    };
    for (push, outcome) in pushes.iter().zip(stored) {
        let member = push.sender_member_pubkey.as_deref();
        let member = member.unwrap_or_default();
        shared
            .peers
            .learn_sender(member, push.sender_name.as_deref());
        acknowledge(shared, push).await;
        announce(shared, push, outcome).await;
    }
}

async fn acknowledge(shared: &DaemonShared, push: &PushFrame) {
    let ack = ClientAck {
        client_message_id: push.client_message_id.clone(),
        broker_message_id: Some(push.message_id.clone()),
    };
    if let Some(line) = shared.line() {
        // Without an acknowledgement the broker sends it again, and the inbox knows it then.
        let _ = line.notify(ClientFrame::from(ack)).await;
    }
}

async fn announce(shared: &Arc<DaemonShared>, push: &PushFrame, outcome: InboxOutcome) {
    let is_piece = |message: &ReceivedMessage| FilePiece::of_meta(message.meta.as_deref());
    match outcome {
        InboxOutcome::New(message) => match is_piece(&message) {
            Some(piece) => announce_file(shared, piece.id).await,
            None => publish_message(shared, push, &message),
        },
        InboxOutcome::Collision(message) => {
            let fields = json!({
                "client_message_id": push.client_message_id,
                "broker_message_id": push.message_id,
            });
            shared.log.warn("inbox_client_id_collision", &fields);
            publish_message(shared, push, &message);
        }
        InboxOutcome::Known if plant::on(Plant::DuplicateAnnounced) => {
            publish_message(shared, push, &opened(shared, push));
        }
        InboxOutcome::Known => shared.metrics.count(DaemonMetric::Dedupe, &["in"]),
    }
}

impl DaemonShared {
    /// Whether the inbox may grow. Reports once when its space becomes rather full.
    async fn has_inbox_space(&self) -> bool {
        let limit = self.disk_limit();
        let path = self.folder.inbox();
        let mut used = file_bytes(&path);
        if QueuePressure::of(used, limit) != QueuePressure::Normal {
            // Removed messages leave free pages, which the next ones use.
            let inbox = Arc::clone(&self.inbox);
            let free = tokio::task::spawn_blocking(move || inbox.free_bytes()).await;
            // Without an answer nothing counts as free.
            used = used.saturating_sub(free.ok().and_then(Result::ok).unwrap_or(0));
        }
        let pressure = QueuePressure::of(used, limit);
        if self.inbox_pressure.rises_to(pressure, 0) {
            let percent = used.saturating_mul(100).checked_div(limit).unwrap_or(100);
            let event = json!({"mesh": self.slug.as_str(), "pct": percent});
            self.log.warn("inbox_pressure_high", &event);
            self.events.publish(MeshEventKind::InboxPressureHigh, event);
        }
        pressure.accepts()
    }
}

/// Announces a file when its last piece has arrived, whichever that is.
async fn announce_file(shared: &Arc<DaemonShared>, id: String) {
    let inbox = Arc::clone(&shared.inbox);
    let read = tokio::task::spawn_blocking(move || SharedFile::read(&inbox, &id)).await;
    let Ok(Ok(Some(file))) = read else {
        return;
    };
    let event = json!({
        "mesh": shared.slug.as_str(),
        "id": file.piece.id,
        "name": file.piece.name,
        "bytes": file.piece.bytes,
        "from": file.first.sender_pubkey,
        "from_name": file.first.sender_name,
        "message": file.piece.message,
    });
    let event = shared.events.publish(MeshEventKind::FileShared, event);
    shared.fire(HookKind::FileShare, event);
}

/// Not acknowledged: the broker sends it again.
fn report_failure(shared: &DaemonShared, error: &str) {
    let fields = json!({"error": error});
    shared.log.error("inbox_write_failed", &fields);
}

enum InboxOutcome {
    New(ReceivedMessage),
    /// Its id belongs to a message of another sender, so it is stored under the broker's id.
    Collision(ReceivedMessage),
    Known,
}

fn insert(
    inbox: &InboxCommit<'_>,
    message: ReceivedMessage,
    broker_message_id: String,
) -> Result<InboxOutcome, consign_store::Error> {
    if inbox.insert(&message)? {
        return Ok(InboxOutcome::New(message));
    }
    let known = inbox.find(&message.client_message_id)?;
    let is_of_another = known.is_some_and(|known| {
        known.sender_pubkey != message.sender_pubkey
            && known.broker_message_id != message.broker_message_id
    });
    if !is_of_another {
        return Ok(InboxOutcome::Known);
    }
    let renamed = ReceivedMessage {
        client_message_id: broker_message_id,
        ..message
    };
    Ok(if inbox.insert(&renamed)? {
        InboxOutcome::Collision(renamed)
    } else {
        InboxOutcome::Known
    })
}

pub(super) fn opened(shared: &DaemonShared, push: &PushFrame) -> ReceivedMessage {
    let keys = shared.keys();
    let topic = push.topic.as_deref().map(|topic| {
        let topic = topic.strip_prefix('#').unwrap_or(topic);
        shared.topics.name_of(topic)
    });
    let body = open_body(shared, &keys, push, topic.as_deref());
    if body.is_none() {
        let fields = json!({"broker_message_id": push.message_id});
        shared.log.warn("message_not_opened", &fields);
        shared.metrics.count(DaemonMetric::DecryptStale, &[]);
    }
    let sender = push
        .sender_member_pubkey
        .as_deref()
        .unwrap_or(&push.sender_pubkey);
    let known_name = || {
        let key = MeshPublicKey::parse(sender).ok()?;
        shared.peers.name_of(key)
    };
    ReceivedMessage {
        id: shared.inbox_id().to_string(),
        client_message_id: push.inbox_key().to_owned(),
        broker_message_id: Some(push.message_id.clone()),
        mesh: shared.slug.to_string(),
        topic,
        sender_pubkey: sender.to_owned(),
        sender_name: push
            .sender_name
            .clone()
            .or_else(known_name)
            .unwrap_or_else(|| sender.chars().take(8).collect()),
        body,
        meta: push.meta.as_ref().map(|meta| meta.text().to_owned()),
        received_at: wall_ms(),
        reply_to_id: push.reply_to_id.clone(),
    }
}

/// The clear text; `None` if no key opens it.
fn open_body(
    shared: &DaemonShared,
    keys: &MemberKeys,
    push: &PushFrame,
    topic: Option<&str>,
) -> Option<String> {
    let carried = CarriedBody {
        nonce: push.nonce.clone(),
        ciphertext: push.ciphertext.clone(),
    };
    let is_sealed_post = topic.is_some() && push.body_version == Some(2);
    let bytes = if let Some(topic) = topic.filter(|_| is_sealed_post) {
        carried.open_sealed(&shared.topics.key(topic)?)?.to_vec()
    } else if topic.is_some() || push.nonce.is_empty() {
        carried.decoded()?
    } else {
        let sender = MeshPublicKey::parse(&push.sender_pubkey).ok()?;
        let current = keys.agreed_with(sender);
        let opened = current.and_then(|key| carried.open_sealed(&key));
        let opened = opened.or_else(|| {
            let (_, body) = carried.open_direct(sender, &keys.archived())?;
            shared.metrics.count(DaemonMetric::DecryptArchived, &[]);
            Some(body)
        });
        match opened {
            Some(body) => body.to_vec(),
            // Upstream's clients send a nonce beside clear text.
            None => clear_text(&carried)?,
        }
    };
    Some(
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

/// What is not text is a ciphertext.
fn clear_text(carried: &CarriedBody) -> Option<Vec<u8>> {
    let bytes = carried.decoded()?;
    std::str::from_utf8(&bytes).is_ok().then_some(bytes)
}

fn publish_message(shared: &DaemonShared, push: &PushFrame, message: &ReceivedMessage) {
    let meta: Value = message
        .meta
        .as_deref()
        .and_then(|meta| serde_json::from_str(meta).ok())
        .unwrap_or(Value::Null);
    let event = json!({
        "id": message.id,
        "mesh": message.mesh,
        "client_message_id": message.client_message_id,
        "broker_message_id": message.broker_message_id,
        "sender_pubkey": push.sender_pubkey,
        "sender_member_pubkey": push.sender_member_pubkey,
        "sender_name": message.sender_name,
        "topic": message.topic,
        "reply_to_id": message.reply_to_id,
        "priority": push.priority,
        "body": message.body,
        "meta": meta,
        "created_at": push.created_at,
    });
    let event = shared.events.publish(MeshEventKind::Message, event);
    let kind = match (&message.topic, is_direct(push)) {
        (Some(_), _) => "topic",
        (None, true) => "dm",
        (None, false) => "queue",
    };
    shared.metrics.count(DaemonMetric::Recv, &[kind, "peer"]);
    fire_hooks(shared, push, message, event);
}

/// Whether only this member can read it.
fn is_direct(push: &PushFrame) -> bool {
    push.topic.is_none() && !push.nonce.is_empty()
}

fn fire_hooks(shared: &DaemonShared, push: &PushFrame, message: &ReceivedMessage, event: Value) {
    let Value::Object(event) = event else {
        return;
    };
    let topic = message.topic.as_deref();
    let body = message.body.as_deref().unwrap_or_default();
    let name = shared.display_name();
    shared.hooks.fire_message(&HookMessage {
        origin: HookOrigin {
            sender: MeshPublicKey::parse(&message.sender_pubkey).ok(),
            topic: topic.and_then(|topic| TopicName::parse(topic).ok()),
        },
        is_direct: is_direct(push),
        is_mention: name.is_some_and(|name| mentions(body, &name)),
        event,
    });
}
