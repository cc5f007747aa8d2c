//! The message bus of Beam for the steps of automations. The two protocols do not know each other.

use consign_automation::runtime::{
    IncomingMessage, MessageBus, MessageInbox, OutgoingMessage, SendError, SendFuture,
};
use consign_beam::beam_id::BeamId;
use consign_beam::bus::{self, BusMessage, NewMessage, SentMessage};
use consign_beam::problem::BeamProblem;
use consign_beam::service::Beam;
use consign_beam::text::{self, BeamValue};
use consign_kernel::error::Code;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;

#[derive(Debug)]
pub(super) struct BeamMessageBus(pub(super) Beam);

impl MessageBus for BeamMessageBus {
    fn signs_for(&self, sender: &str) -> bool {
        self.0.signs_for(sender)
    }

    fn send(&self, message: OutgoingMessage) -> SendFuture<'_> {
        Box::pin(send(&self.0, message))
    }

    fn inbox(&self, agent: &str) -> Option<MessageInbox> {
        let agent = BeamId::parse(agent).ok()?;
        Some(MessageInbox {
            face: Face::Beam,
            namespace: bus::NAMESPACE.to_owned(),
            owner: agent.to_string(),
            granted: bus::worker_namespace(&agent).ok()?,
        })
    }

    fn read(&self, row: &Intent) -> Option<IncomingMessage> {
        let message = BusMessage::of(row)?;
        Some(IncomingMessage {
            sender: message.sender,
            payload: BeamValue::Object(message.content.payload).to_text(),
            nonce: message.content.nonce,
            trace_id: message.content.trace_id,
        })
    }
}

async fn send(beam: &Beam, message: OutgoingMessage) -> Result<IntentId, SendError> {
    let refused = |error: String| SendError::Refused(error);
    let payload = match text::parse(message.payload.as_bytes()) {
        Ok(BeamValue::Object(payload)) => payload,
        Ok(_) => return Err(refused("its payload is not an object".to_owned())),
        Err(error) => return Err(refused(format!("its payload is not valid: {error}"))),
    };
    let message = NewMessage {
        sender: message.sender,
        recipient: message.recipient,
        intent: message.intent,
        payload,
        priority: 0,
        trace_id: message.trace_id,
        nonce: Some(message.nonce),
    };
    message.check().map_err(|problem| refused(problem.text))?;
    match beam.send_message(message).await {
        Ok(SentMessage::New { message, .. } | SentMessage::Known(message)) => Ok(message.id),
        Err(problem) => Err(send_error(problem)),
    }
}

/// Only a nonce that belongs to another message stays refused.
fn send_error(problem: BeamProblem) -> SendError {
    if problem.code == Code::NonceReuseConflict {
        let text = "an earlier attempt of this step sent another message; start the pipeline again";
        SendError::Refused(text.to_owned())
    } else {
        SendError::Unavailable(problem.text)
    }
}
