//! The answer to an id that was used: the first answer again, or a conflict.

use consign_engine::{Error, Versioned};
use consign_kernel::once::{DedupeAnswer, FirstUse};
use consign_kernel::record::MessageHistory;

use super::MeshSender;
use crate::accept::{AcceptReason, CheckedSend, FirstAccept, Repeated, SendKey, repeated};
use crate::broker::Broker;
use crate::broker::time_text::text_of_us;
use crate::client_message_id::ClientMessageId;
use crate::destination::{Destination, DestinationKind, ResolvedTarget};
use crate::fingerprint::RequestFingerprint;
use crate::frame::AckFrame;
use crate::id::{BrokerMessageId, MemberId};

impl Broker {
    /// Compares a message with the first use of its id. Nothing is written.
    pub(super) async fn answer_repeated(
        &self,
        sender: &MeshSender,
        checked: &CheckedSend,
        key: &ClientMessageId,
        used: &FirstUse,
        id: Option<&str>,
    ) -> Result<AckFrame, Error> {
        let unreadable = || Error::Internal(format!("the first use of id {key} cannot be read"));
        let (Some(answer), Some(message)) = (DedupeAnswer::parse(&used.answer), used.intent) else {
            // A row that was edited by hand: it belongs to no message of this sender.
            return Ok(Repeated::Conflict { prefix: None }.to_ack(id, key));
        };
        let destination = DestinationKind::parse(&answer.destination_kind)
            .and_then(|kind| Destination::from_parts(kind, &answer.destination_ref).ok());
        let Some(destination) = destination else {
            return Ok(Repeated::Conflict { prefix: None }.to_ack(id, key));
        };
        // A recipient that is gone by now is what it was: the first destination stands for it.
        let resolved = self.resolve(sender, checked).await?;
        let is_resolved = resolved.is_ok();
        let target = match resolved {
            Ok(resolved) => resolved.target,
            Err(_) => as_target(destination.clone()),
        };
        let fingerprint = match checked.key(&target) {
            Err(refusal) if !is_resolved && refusal.reason == AcceptReason::InvalidDestination => {
                return Ok(Repeated::Conflict { prefix: None }.to_ack(id, key));
            }
            Ok(SendKey::Keyed { fingerprint, .. }) => fingerprint,
            Ok(SendKey::Unkeyed) => return Err(unreadable()),
            Err(refusal) => {
                if refusal.reason == AcceptReason::KeyReused {
                    self.count_mismatch(sender);
                }
                return Ok(refusal.to_ack(id, Some(key)));
            }
        };
        let own = MemberId::parse(&sender.member_id).map_err(|_| unreadable())?;
        let history = MessageHistory::key(&sender.mesh.id, message);
        let history: Option<Versioned<MessageHistory>> = self.engine().load(history).await?;
        let first_sender = history.and_then(|found| MemberId::parse(&found.value.sender).ok());
        let stored = RequestFingerprint::from_bytes(used.fingerprint);
        if first_sender.is_none() && stored != fingerprint {
            return Ok(Repeated::Conflict { prefix: None }.to_ack(id, key));
        }
        let message = BrokerMessageId::from_bytes(message.0);
        let first = FirstAccept {
            broker_message_id: message,
            history_id: message,
            fingerprint: stored,
            // Without a history, a request that knows the whole fingerprint is the sender's.
            sender: first_sender.unwrap_or_else(|| own.clone()),
            destination,
            first_seen_at: text_of_us(answer.first_seen_at),
            history_available: answer.history_available,
        };
        let answer = repeated(&first, &own, fingerprint);
        if matches!(answer, Repeated::Conflict { .. }) {
            self.count_mismatch(sender);
        }
        Ok(answer.to_ack(id, key))
    }
}

fn as_target(destination: Destination) -> ResolvedTarget {
    match destination {
        Destination::Topic(name) => ResolvedTarget::Topic(name),
        Destination::Member(key) => ResolvedTarget::Member(key),
        Destination::Group(name) => ResolvedTarget::Group(name),
        Destination::Everyone => ResolvedTarget::Everyone,
        Destination::Queue(name) => ResolvedTarget::Queue(name),
    }
}
