//! Intents that local programs publish: accepted into the outbox, and sent to the server of the Intent Protocol.
//!
//! Rows of intents have the same profile, the same table and the same settlements as those of messages; only where they go is
//! different. Invariant: the id of the row is the idempotency key of every attempt, and no attempt is made when the server may
//! have forgotten it.

mod access;
mod drain;
mod outcome;

pub(super) use drain::drain;

use super::outbox_payload::OutboxPayload;
use super::shared::{DaemonShared, new_ulid};
use crate::client_message_id::ClientMessageId;
use crate::fingerprint::{BodyHash, RequestFingerprint};
use crate::ipc::{INTENT_KIND, IntentRequest, IpcAnswer, IpcPublish, IpcRefusal, answer_send};
use access::IntentAccess;

impl DaemonShared {
    /// Accepts an intent that a local program publishes.
    pub(super) async fn accept_intent(&self, publish: IpcPublish) -> Result<IpcAnswer, IpcRefusal> {
        let id = publish.id(new_ulid)?;
        // Without a key it could never be published.
        IntentAccess::read(self).map_err(|error| IpcRefusal::new(404, error.to_string()))?;
        let fingerprint = publish.intent.fingerprint()?;
        let payload = intent_row(self.slug.as_str(), &id, &publish.intent, fingerprint);
        let decision = self.enqueue(&payload, fingerprint).await?;
        Ok(answer_send(&decision, &id))
    }
}

fn intent_row(
    mesh: &str,
    id: &ClientMessageId,
    intent: &IntentRequest,
    fingerprint: RequestFingerprint,
) -> OutboxPayload {
    let mut payload = OutboxPayload {
        client_message_id: id.to_string(),
        mesh: mesh.to_owned(),
        destination_kind: Some(INTENT_KIND.to_owned()),
        ..OutboxPayload::default()
    };
    set_request(&mut payload, intent, fingerprint);
    payload
}

/// Puts the request into the row.
fn set_request(
    payload: &mut OutboxPayload,
    intent: &IntentRequest,
    fingerprint: RequestFingerprint,
) {
    let body = intent.text().as_bytes();
    payload.request_fingerprint = fingerprint.to_string();
    payload.destination_ref = Some(intent.goal().to_owned());
    payload.body_sha256 = Some(BodyHash::of(body).to_string());
    payload.set_body(body);
}

/// Replaces the payload of the intent in a row, for a requeue.
pub(super) fn patch(payload: &mut OutboxPayload, message: &str) -> Result<(), IpcRefusal> {
    let stored = payload.request().unwrap_or_default();
    let intent = IntentRequest::parse(&stored)?.with_payload(message)?;
    let fingerprint = intent.fingerprint()?;
    set_request(payload, &intent, fingerprint);
    Ok(())
}
