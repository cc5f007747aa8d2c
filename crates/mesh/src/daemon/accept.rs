//! Accepts a message of a local program: its recipient, its encryption, its fingerprint, its row.
//!
//! Invariant: success is answered after the commit of the row is on disk. A refused request leaves no row, so its id is free;
//! the recipient is resolved to a key before anything is hashed, and the body is encrypted once, with the key that is current
//! when the row is stored.

use std::fs;

use serde_json::json;

use super::line::LineError;
use super::outbox_ledger::{AcceptedRow, OutboxError};
use super::outbox_payload::OutboxPayload;
use super::random;
use super::shared::{DaemonShared, new_ulid};
use crate::body::CarriedBody;
use crate::client_message_id::ClientMessageId;
use crate::destination::{Destination, Recipient, ResolveError};
use crate::fingerprint::{BodyHash, ENVELOPE_VERSION, RequestFingerprint};
use crate::frame::{self, BrokerFrame, ClientFrame, PushFrame};
use crate::ipc::{IpcAnswer, IpcRefusal, IpcSend, MeshEventKind, answer_send};
use crate::keys::MeshPublicKey;
use crate::outbox::{OutboxAnswer, QueuePressure, decide_send};

/// Messages between two looks at the queue, because it may also fill up by bytes.
const PRESSURE_EVERY_MAX: u64 = 64;

/// Body versions of a topic.
const CLEAR_BODY: u8 = 1;
const SEALED_BODY: u8 = 2;

impl DaemonShared {
    /// Accepts a message that a local program sends. A hook names itself by its token, which covers few destinations.
    pub(super) async fn accept(
        &self,
        send: IpcSend,
        hook: Option<&str>,
    ) -> Result<IpcAnswer, IpcRefusal> {
        let id = send.id(new_ulid)?;
        let destination = match self.resolve(send.to.clone()).await {
            Ok(destination) => destination,
            Err(refusal) => self.accepted_before(&send.to, &id).await?.ok_or(refusal)?,
        };
        if let Some(token) = hook {
            self.hooks.authorize(token, Some(&destination))?;
        }
        let to = send.to.to_string();
        let send = self.hooks.pre_send(send, &to).await?;
        let fingerprint = send.fingerprint(&destination)?;
        let _sealing = self.sealing.read().await;
        let payload = self.payload(&send, &id, &destination, fingerprint)?;
        let decision = self.enqueue(&payload, fingerprint).await?;
        if let (Recipient::Name(name), Destination::Member(member)) = (&send.to, &destination) {
            self.peers.note_use(name.as_str(), *member);
        }
        Ok(answer_send(&decision, &id))
    }

    /// The destination of a request that may be a repeated one, whose recipient cannot be resolved any more: its member, if the
    /// id is known and the name was that of this member.
    async fn accepted_before(
        &self,
        to: &Recipient,
        id: &ClientMessageId,
    ) -> Result<Option<Destination>, IpcRefusal> {
        let Recipient::Name(name) = to else {
            return Ok(None);
        };
        let Some(member) = self.peers.used(name.as_str()) else {
            return Ok(None);
        };
        let known = self.outbox.find(id.as_str()).await;
        let known = known.map_err(|error| unavailable(&error))?;
        Ok(known.map(|_| Destination::Member(member)))
    }

    /// The destination of a recipient. What is not known is asked for at the broker.
    pub(super) async fn resolve(&self, to: Recipient) -> Result<Destination, IpcRefusal> {
        if let Recipient::Topic(name) = &to
            && !self.topics.is_known(name)
        {
            let asked = match self.line() {
                Some(line) => self.topics.refresh(&line).await.map(drop),
                None => Err(LineError::Closed),
            };
            if !self.topics.is_known(name) {
                return Err(not_found(asked));
            }
        }
        let needs_peers = to.needs_peers();
        let found = to.clone().resolve(&self.peers.known());
        match found {
            Ok(Destination::Member(key)) if !needs_peers && self.peers.asks_about(key) => {
                // It may be the key of a session, which the broker knows.
            }
            Ok(destination) => return Ok(destination),
            // One of two members of this name may have another one by now.
            Err(ResolveError::NotFound | ResolveError::Ambiguous) if needs_peers => {}
            Err(error) => return Err(unresolved(error)),
        }
        let asked = match self.line() {
            Some(line) => self.peers.look_up(&line, &to.to_string()).await,
            None => Err(LineError::Closed),
        };
        match to.resolve(&self.peers.known()) {
            Ok(destination) => Ok(destination),
            Err(ResolveError::NotFound) => Err(not_found(asked)),
            Err(error @ ResolveError::Ambiguous) => Err(unresolved(error)),
        }
    }

    /// The row of a message, encrypted.
    pub(super) fn payload(
        &self,
        send: &IpcSend,
        id: &ClientMessageId,
        destination: &Destination,
        fingerprint: RequestFingerprint,
    ) -> Result<OutboxPayload, IpcRefusal> {
        let mut payload = OutboxPayload {
            client_message_id: id.to_string(),
            request_fingerprint: fingerprint.to_string(),
            mesh: self.slug.to_string(),
            target_spec: Some(target_of(&send.to, destination)),
            priority: Some(send.priority.as_str().to_owned()),
            destination_kind: Some(destination.kind().as_str().to_owned()),
            destination_ref: Some(destination.reference()),
            reply_to_id: send.reply_to_id.clone(),
            meta: send.meta.to_member().map(str::to_owned),
            envelope_version: Some(ENVELOPE_VERSION),
            mentions: send.mentions.clone(),
            ..OutboxPayload::default()
        };
        self.seal(&mut payload, destination, send.message.as_bytes())?;
        Ok(payload)
    }

    /// Encrypts a body for its destination and puts it into the row.
    pub(super) fn seal(
        &self,
        payload: &mut OutboxPayload,
        destination: &Destination,
        body: &[u8],
    ) -> Result<(), IpcRefusal> {
        let limit = self.line().and_then(|line| line.terms.inline_bytes);
        if limit.is_some_and(|limit| body.len() as u64 > limit) {
            return Err(IpcRefusal::payload_too_large());
        }
        let keys = self.keys();
        let (carried, version) = match destination {
            Destination::Member(key) => {
                // A session opens only what is sealed for its own key.
                let target = payload.target_spec.as_deref().map(MeshPublicKey::parse);
                let target = target.and_then(Result::ok).unwrap_or(*key);
                // No member can have a key that nothing can be encrypted to.
                let key = keys
                    .agreed_with(target)
                    .ok_or_else(|| unresolved(ResolveError::NotFound))?;
                (CarriedBody::sealed(&key, body, &random::bytes()), None)
            }
            Destination::Topic(name) => match self.topics.key(name.as_str()) {
                Some(key) => (
                    CarriedBody::sealed(&key, body, &random::bytes()),
                    Some(SEALED_BODY),
                ),
                None => (CarriedBody::clear(body), Some(CLEAR_BODY)),
            },
            Destination::Group(_) | Destination::Everyone | Destination::Queue(_) => {
                (CarriedBody::clear(body), None)
            }
        };
        payload.sealed_by = match destination {
            Destination::Member(_) => Some(keys.identity.key.public_key().to_string()),
            Destination::Topic(_)
            | Destination::Group(_)
            | Destination::Everyone
            | Destination::Queue(_) => None,
        };
        payload.nonce = Some(carried.nonce);
        payload.ciphertext = Some(carried.ciphertext);
        payload.body_version = version;
        payload.body_sha256 = Some(BodyHash::of(body).to_string());
        payload.set_body(body);
        let fits = payload.frame().is_some_and(|send| {
            // The broker refuses what its recipients could not read, for the push is longer than the message.
            let push = PushFrame::longest(&send, &self.mesh_id, &keys.identity.member_id);
            frame::fits(&ClientFrame::from(send).to_text(None))
                && frame::fits(&BrokerFrame::from(push).to_text(None))
        });
        if fits {
            Ok(())
        } else {
            Err(IpcRefusal::payload_too_large())
        }
    }

    /// Adds the row or finds the one of its id.
    pub(super) async fn enqueue(
        &self,
        payload: &OutboxPayload,
        fingerprint: RequestFingerprint,
    ) -> Result<OutboxAnswer, IpcRefusal> {
        if !self.disk_pressure().await.accepts() {
            let known = self.outbox.find(&payload.client_message_id).await;
            let known = known.map_err(|error| unavailable(&error))?;
            return match known {
                Some(row) => Ok(decide_send(Some(&row), fingerprint)),
                None => Err(IpcRefusal::insufficient_storage()),
            };
        }
        let waiting_max = self.config().outbox.max_queue_size;
        let accepting = waiting_max.saturating_mul(95).div_ceil(100);
        match self.outbox.accept(payload, fingerprint, accepting).await {
            Ok(AcceptedRow::New) => {
                self.watch_pressure().await;
                Ok(decide_send(None, fingerprint))
            }
            Ok(AcceptedRow::Known(row)) => Ok(decide_send(Some(&row), fingerprint)),
            Err(error) => {
                if !matches!(error, OutboxError::QueueFull) {
                    let fields = json!({"error": error.to_string()});
                    self.log.error("a message could not be stored", &fields);
                }
                Err(unavailable(&error))
            }
        }
    }

    /// How full the disk space of the outbox is.
    pub(super) async fn disk_pressure(&self) -> QueuePressure {
        let reserved = self.disk_limit();
        QueuePressure::of(self.outbox_bytes(reserved).await, reserved)
    }

    /// The bytes of the outbox's files that are in use. Removed rows leave free pages, which the next rows use; they are looked
    /// for only if the files seem to be full.
    async fn outbox_bytes(&self, reserved: u64) -> u64 {
        let bytes = file_bytes(&self.folder.outbox());
        if QueuePressure::of(bytes, reserved) == QueuePressure::Normal {
            return bytes;
        }
        let free = self.outbox.free_bytes().await;
        // Without an answer nothing counts as free.
        bytes.saturating_sub(free.unwrap_or(0))
    }

    /// How full the queue is, by rows or bytes, and the percentage.
    pub(super) async fn queue_pressure(&self, waiting: u64) -> (QueuePressure, u64) {
        let config = self.config();
        let rows = (waiting, config.outbox.max_queue_size);
        let reserved = self.disk_limit();
        let bytes = (self.outbox_bytes(reserved).await, reserved);
        let percent = |(used, limit): (u64, u64)| {
            let percent = used.saturating_mul(100).checked_div(limit);
            percent.unwrap_or(100)
        };
        let pressure = QueuePressure::of(rows.0, rows.1).max(QueuePressure::of(bytes.0, bytes.1));
        (pressure, percent(rows).max(percent(bytes)))
    }

    /// Reports once when the queue becomes rather full.
    async fn watch_pressure(&self) {
        if !self.pressure.is_time() {
            return;
        }
        let Ok(tally) = self.outbox.tally().await else {
            return;
        };
        let waiting = tally.pending + tally.inflight;
        let (pressure, percent) = self.queue_pressure(waiting).await;
        let high_at = self.config().outbox.max_queue_size.saturating_mul(4) / 5;
        let room = high_at.saturating_sub(waiting);
        if self
            .pressure
            .rises_to(pressure, room.min(PRESSURE_EVERY_MAX))
        {
            let event = json!({"mesh": self.slug.as_str(), "pct": percent});
            self.log.warn("outbox_pressure_high", &event);
            self.events
                .publish(MeshEventKind::OutboxPressureHigh, event);
        }
    }
}

/// The size of a database file with its log.
pub(super) fn file_bytes(path: &std::path::Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let size = |path: &std::path::Path| fs::metadata(path).map_or(0, |found| found.len());
    size(path) + size(std::path::Path::new(&log))
}

/// The target of a message. A session is addressed by its own key, and its member is what is hashed.
fn target_of(to: &Recipient, destination: &Destination) -> String {
    match (to, destination) {
        (Recipient::Key(key), Destination::Member(_)) => key.to_string(),
        _ => destination.target().to_string(),
    }
}

fn unresolved(error: ResolveError) -> IpcRefusal {
    let status = match error {
        ResolveError::NotFound => 404,
        ResolveError::Ambiguous => 409,
    };
    IpcRefusal::new(status, error.to_string())
}

/// Only the broker knows that nobody has a name. Without its answer the request may be repeated.
fn not_found(asked: Result<(), LineError>) -> IpcRefusal {
    match asked {
        Ok(()) => unresolved(ResolveError::NotFound),
        Err(LineError::Closed | LineError::NoAnswer) => IpcRefusal::broker_unreachable(),
        Err(error @ LineError::Refused(_)) => {
            tracing::warn!(%error, "the broker does not list its members");
            IpcRefusal::broker_unreachable()
        }
    }
}

/// The answer to a write that the disk did not take.
pub(super) fn unavailable(error: &OutboxError) -> IpcRefusal {
    if error.is_disk_full() {
        IpcRefusal::insufficient_storage()
    } else {
        IpcRefusal::new(503, "storage_unavailable")
    }
}
