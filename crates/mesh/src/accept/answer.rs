//! Answers to accepted, repeated and conflicting messages, as `ack` frames.

use consign_kernel::plant::{self, Plant};

use super::{AcceptReason, AcceptRefusal};
use crate::client_message_id::ClientMessageId;
use crate::destination::Destination;
use crate::fingerprint::RequestFingerprint;
use crate::frame::{AckFrame, ErrorFrame};
use crate::id::{BrokerMessageId, MemberId};

/// The word for all conflicts at the broker.
const MISMATCH: &str = "request_fingerprint_mismatch";

/// What a message that was accepted now is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub broker_message_id: BrokerMessageId,
    pub history_id: BrokerMessageId,
    /// `None` for a message without an id of its sender.
    pub client_message_id: Option<ClientMessageId>,
}

/// What the dedupe record and the history keep of the first use of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstAccept {
    pub broker_message_id: BrokerMessageId,
    pub history_id: BrokerMessageId,
    pub fingerprint: RequestFingerprint,
    pub sender: MemberId,
    pub destination: Destination,
    /// RFC 3339 with milliseconds.
    pub first_seen_at: String,
    pub history_available: bool,
}

/// The answer to an id that is used up. Neither case writes or pushes anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repeated<'a> {
    /// The same request of the same member.
    Duplicate(&'a FirstAccept),
    /// Another request. `prefix` is that of the stored fingerprint; another member does not learn it.
    Conflict { prefix: Option<String> },
}

/// Compares a message with the first use of its id.
pub fn repeated<'a>(
    first: &'a FirstAccept,
    sender: &MemberId,
    fingerprint: RequestFingerprint,
) -> Repeated<'a> {
    if first.sender != *sender && !plant::on(Plant::ForeignMeshId) {
        return Repeated::Conflict { prefix: None };
    }
    if first.fingerprint == fingerprint || plant::on(Plant::UncomparedMeshId) {
        return Repeated::Duplicate(first);
    }
    Repeated::Conflict {
        prefix: Some(first.fingerprint.prefix()),
    }
}

impl Accepted {
    pub fn to_ack(&self, id: Option<&str>) -> AckFrame {
        let message_id = self.broker_message_id.to_string();
        AckFrame {
            id: id.map(str::to_owned),
            message_id: message_id.clone(),
            queued: true,
            code: Some(201),
            broker_message_id: Some(message_id),
            client_message_id: self.client_message_id.as_ref().map(ToString::to_string),
            history_id: Some(self.history_id.to_string()),
            duplicate: Some(false),
            ..AckFrame::default()
        }
    }
}

impl Repeated<'_> {
    pub fn to_ack(&self, id: Option<&str>, client_message_id: &ClientMessageId) -> AckFrame {
        let id = id.map(str::to_owned);
        let client_message_id = Some(client_message_id.to_string());
        match self {
            Self::Duplicate(first) => {
                let message_id = first.broker_message_id.to_string();
                AckFrame {
                    id,
                    message_id: message_id.clone(),
                    queued: true,
                    code: Some(200),
                    broker_message_id: Some(message_id),
                    client_message_id,
                    history_id: Some(first.history_id.to_string()),
                    duplicate: Some(true),
                    history_available: Some(first.history_available),
                    first_seen_at: Some(first.first_seen_at.clone()),
                    destination_kind: Some(first.destination.kind().as_str().to_owned()),
                    destination_ref: Some(first.destination.reference()),
                    ..AckFrame::default()
                }
            }
            Self::Conflict { prefix } => AckFrame {
                client_message_id,
                broker_fingerprint_prefix: prefix.clone(),
                conflict: Some(MISMATCH.to_owned()),
                ..refused(
                    id,
                    AcceptReason::KeyReused,
                    format!("idempotency_key_reused: invalid reuse ({MISMATCH})"),
                )
            },
        }
    }
}

impl AcceptRefusal {
    pub fn to_ack(
        &self,
        id: Option<&str>,
        client_message_id: Option<&ClientMessageId>,
    ) -> AckFrame {
        let id = id.map(str::to_owned);
        let ack = refused(id, self.reason, self.error());
        if self.reason != AcceptReason::KeyReused {
            return ack;
        }
        // Drift: the detail is the beginning of the fingerprint that the broker computed.
        AckFrame {
            client_message_id: client_message_id.map(ToString::to_string),
            broker_fingerprint_prefix: Some(self.detail.clone()),
            conflict: Some(MISMATCH.to_owned()),
            error: Some(format!(
                "idempotency_key_reused: invalid reuse ({MISMATCH})"
            )),
            ..ack
        }
    }
}

impl AckFrame {
    /// The error that precedes a failing `ack` on connections without negotiation: upstream's SDK takes any `ack` for
    /// success.
    pub fn to_error(&self) -> Option<ErrorFrame> {
        let message = self.error.clone()?;
        let code = message.split(':').next().unwrap_or_default();
        Some(ErrorFrame {
            code: code.to_owned(),
            id: self.id.clone(),
            message,
        })
    }
}

fn refused(id: Option<String>, reason: AcceptReason, error: String) -> AckFrame {
    AckFrame {
        id,
        queued: false,
        error: Some(error),
        code: Some(reason.status()),
        ..AckFrame::default()
    }
}
