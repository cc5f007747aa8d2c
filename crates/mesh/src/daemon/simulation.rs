//! The outbox of a daemon for the simulation, which provides the ledger and carries the frames.
//!
//! Queue, connection and settlement are those of a daemon; files, sockets and the process are left out.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use consign_engine::{Engine, Error};
use data_encoding::HEXLOWER;
use futures_util::future::FutureExt as _;
use serde_json::Map;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use super::drain::OutboxSender;
use super::event_hub::EventHub;
use super::handshake::BrokerTerms;
use super::line::BrokerLine;
use super::log::DaemonLog;
use super::metrics::DaemonMetrics;
use super::outbox_payload::OutboxPayload;
use super::outbox_queue::{OutboxQueue, QueuedRow};
use crate::destination::DestinationKind;
use crate::fingerprint::{BodyHash, ENVELOPE_VERSION, FingerprintInput};
use crate::frame::BrokerFrame;
use crate::id::MeshSlug;
use crate::keys::MeshPublicKey;
use crate::meta::CanonicalMeta;
use crate::priority::MeshPriority;

/// Messages here are not encrypted, and brokers cannot know.
const NONCE: [u8; 24] = [0; 24];

/// What a request to send found or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedMessage {
    New,
    /// The id belongs to the same message.
    Same,
    /// The id belongs to another message.
    Different,
}

/// The outbox of one start of a daemon. Clones share it.
#[derive(Debug, Clone)]
pub struct SimulatedOutbox(OutboxSender);

impl SimulatedOutbox {
    /// `start` names this start of the daemon and no other one.
    pub fn new(engine: Engine, mesh: &MeshSlug, start: &str) -> Self {
        Self(OutboxSender {
            slug: mesh.clone(),
            queue: OutboxQueue::new(engine, mesh.as_str(), start.to_owned()),
            log: DaemonLog::disabled(mesh.as_str()),
            metrics: DaemonMetrics::new(mesh.as_str()),
            events: Arc::new(EventHub::new()),
            keys: None,
        })
    }

    /// Makes due what an earlier start was sending.
    pub async fn recover(&self) -> Result<u64, Error> {
        self.0.queue.recover_in_flight().await
    }

    /// Adds a direct message under an id of its sender.
    pub async fn add(
        &self,
        id: &str,
        to: &MeshPublicKey,
        body: &str,
    ) -> Result<AddedMessage, Error> {
        let to = to.to_string();
        let body_hash = BodyHash::of(body.as_bytes());
        let input = FingerprintInput {
            envelope_version: ENVELOPE_VERSION,
            destination_kind: DestinationKind::Dm,
            destination_ref: &to,
            reply_to_id: None,
            priority: MeshPriority::Next,
            meta: &CanonicalMeta::default(),
            body_hash,
        };
        let fingerprint = input.fingerprint().expect("no part has a zero byte");
        let payload = OutboxPayload {
            client_message_id: id.to_owned(),
            request_fingerprint: fingerprint.to_string(),
            payload: HEXLOWER.encode(body.as_bytes()),
            mesh: self.0.slug.to_string(),
            target_spec: Some(to.clone()),
            nonce: Some(BASE64_STANDARD.encode(NONCE)),
            ciphertext: Some(BASE64_STANDARD.encode(body)),
            priority: Some(MeshPriority::Next.as_str().to_owned()),
            destination_kind: Some(DestinationKind::Dm.as_str().to_owned()),
            destination_ref: Some(to),
            body_sha256: Some(body_hash.to_string()),
            envelope_version: Some(ENVELOPE_VERSION),
            ..OutboxPayload::default()
        };
        let added = self.0.queue.add(&payload, fingerprint, u64::MAX).await?;
        Ok(match added {
            QueuedRow::New => AddedMessage::New,
            QueuedRow::Same => AddedMessage::Same,
            QueuedRow::Different => AddedMessage::Different,
        })
    }

    /// Sends over one connection after the other until the process ends.
    pub async fn run(self, mut lines: mpsc::UnboundedReceiver<SimulatedLine>) {
        let never = std::future::pending::<()>().shared();
        while let Some(line) = lines.recv().await {
            self.0.drain_over(&line.0, &never).await;
        }
    }
}

/// The daemon's end of a negotiated connection. Clones share it.
#[derive(Debug, Clone)]
pub struct SimulatedLine(Arc<BrokerLine>);

/// The frames that the daemon has written to a connection.
#[derive(Debug)]
pub struct WrittenFrames(mpsc::Receiver<Message>);

impl SimulatedLine {
    pub fn open() -> (Self, WrittenFrames) {
        let terms = BrokerTerms {
            features: Vec::new(),
            parameters: Map::new(),
            max_age: None,
            inline_bytes: None,
            broker_version: None,
            display_name: String::new(),
        };
        let (line, written) = BrokerLine::new(terms, 0);
        (Self(Arc::new(line)), WrittenFrames(written))
    }

    /// A frame of the broker arrives.
    pub fn receive(&self, text: &str) {
        if let Ok(frame) = BrokerFrame::parse(text) {
            // Members of the simulation that have an outbox receive nothing.
            let _ = self.0.receive(frame);
        }
    }

    /// The connection ends.
    pub fn close(&self) {
        self.0.close();
    }
}

impl WrittenFrames {
    /// The oldest frame that was not taken.
    pub fn take(&mut self) -> Option<String> {
        let message = self.0.try_recv().ok()?;
        Some(message.to_text().unwrap_or_default().to_owned())
    }
}
