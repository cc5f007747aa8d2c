//! What was sent and what waits; an operator's ways to deal with a message that cannot be sent.

use std::sync::Arc;

use consign_store::sqlite::OutboxTableRow;
use data_encoding::HEXLOWER;
use serde_json::json;

use super::{LocalRequest, RouteAnswer};
use crate::client_message_id::ClientMessageId;
use crate::daemon::accept::unavailable;
use crate::daemon::event_hub::ms_text;
use crate::daemon::intents;
use crate::daemon::outbox_ledger::OutboxError;
use crate::daemon::outbox_queue::RowKind;
use crate::daemon::reseal::resealed;
use crate::daemon::shared::{DaemonShared, new_ulid};
use crate::destination::{Destination, DestinationKind};
use crate::fingerprint::{BodyHash, FingerprintInput, RequestFingerprint};
use crate::ipc::{
    IpcItemList, IpcRefusal, OutboxDrop, OutboxItem, OutboxPrune, OutboxQuery, OutboxRequeue,
    RequeueAnswer,
};
use crate::meta::CanonicalMeta;
use crate::outbox::OutboxStatus;
use crate::priority::MeshPriority;
use crate::query::QueryPairs;

pub(super) async fn list(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let query = OutboxQuery::parse(&request.query)?;
    let rows = match QueryPairs::parse(&request.query).get("id") {
        Some(id) => shared.outbox.named(id).await,
        None => shared.outbox.list(query.status, query.limit).await,
    };
    let rows = rows.map_err(|error| unavailable(&error))?;
    let items: Vec<OutboxItem> = rows.into_iter().map(item).collect();
    super::json(200, &IpcItemList { items, next: None })
}

fn item(row: OutboxTableRow) -> OutboxItem {
    OutboxItem {
        id: row.id,
        client_message_id: row.client_message_id,
        // The table has a constraint with these words.
        status: OutboxStatus::parse(&row.status).unwrap_or(OutboxStatus::Dead),
        attempts: row.attempts,
        enqueued_at: ms_text(row.enqueued_at),
        next_attempt_at: ms_text(row.next_attempt_at),
        delivered_at: row.delivered_at.map(ms_text),
        broker_message_id: row.broker_message_id,
        last_error: row.last_error,
        aborted_at: row.aborted_at.map(ms_text),
        aborted_by: row.aborted_by,
        superseded_by: row.superseded_by,
        destination_kind: row.destination_kind,
        destination_ref: row.destination_ref,
        payload_bytes: row.payload_bytes,
        request_fingerprint: HEXLOWER.encode(&row.request_fingerprint),
    }
}

pub(super) async fn requeue(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let requeue = OutboxRequeue::parse(&request.body)?;
    let found = shared.outbox.row(&requeue.id).await;
    let found = found.map_err(|error| unavailable(&error))?;
    let Some((row, mut payload)) = found else {
        return Err(not_allowed("no such row"));
    };
    let may_requeue = OutboxStatus::parse(&row.status).is_some_and(OutboxStatus::may_requeue);
    if !may_requeue {
        return Err(not_allowed("the row was delivered or retired"));
    }
    let new_id = match requeue.new_client_message_id {
        Some(id) => id,
        None => ClientMessageId::parse(&new_ulid().to_string())
            .map_err(|_| IpcRefusal::new(500, "internal"))?,
    };
    payload.client_message_id = new_id.to_string();
    let _sealing = shared.sealing.read().await;
    if payload.kind() == RowKind::Intent {
        if let Some(message) = &requeue.message {
            intents::patch(&mut payload, message)?;
        }
    } else if let Some(message) = &requeue.message {
        let destination = destination(&payload)?;
        shared.seal(&mut payload, &destination, message.as_bytes())?;
        payload.request_fingerprint = fingerprint(&payload, &destination, message)?.to_string();
    } else if let Some(resealed) = resealed(&payload, &shared.keys().identity.key) {
        payload = resealed;
    }
    let fingerprint = RequestFingerprint::parse(&payload.request_fingerprint)
        .map_err(|_| not_allowed("the row has no fingerprint"))?;
    match shared
        .outbox
        .requeue(&requeue.id, &payload, fingerprint)
        .await
    {
        Ok(new_row_id) => {
            let fields = json!({
                "aborted_row_id": requeue.id,
                "new_row_id": new_row_id,
                "new_client_message_id": new_id.as_str(),
                "by": requeue.aborted_by,
            });
            shared.log.info("outbox_requeued", &fields);
            super::json(
                200,
                &RequeueAnswer {
                    aborted_row_id: requeue.id,
                    new_row_id,
                    new_client_message_id: new_id.to_string(),
                },
            )
        }
        Err(OutboxError::NotAllowed) => Err(not_allowed(
            "the row was delivered or retired, or the new id has a row",
        )),
        Err(error) => Err(unavailable(&error)),
    }
}

fn destination(
    payload: &crate::daemon::outbox_payload::OutboxPayload,
) -> Result<Destination, IpcRefusal> {
    let kind = payload
        .destination_kind
        .as_deref()
        .and_then(DestinationKind::parse);
    let reference = payload.destination_ref.as_deref();
    let parts = kind.zip(reference);
    parts
        .and_then(|(kind, reference)| Destination::from_parts(kind, reference).ok())
        .ok_or_else(|| not_allowed("the row has no destination"))
}

/// The fingerprint of the same request with another body.
fn fingerprint(
    payload: &crate::daemon::outbox_payload::OutboxPayload,
    destination: &Destination,
    message: &str,
) -> Result<RequestFingerprint, IpcRefusal> {
    let meta = CanonicalMeta::parse(payload.meta.as_deref())
        .map_err(|_| not_allowed("the row has no valid meta"))?;
    let priority = payload.priority.as_deref().and_then(MeshPriority::parse);
    let input = FingerprintInput {
        envelope_version: payload
            .envelope_version
            .unwrap_or(crate::fingerprint::ENVELOPE_VERSION),
        destination_kind: destination.kind(),
        destination_ref: &destination.reference(),
        reply_to_id: payload.reply_to_id.as_deref(),
        priority: priority.unwrap_or_default(),
        meta: &meta,
        body_hash: BodyHash::of(message.as_bytes()),
    };
    input
        .fingerprint()
        .map_err(|error| IpcRefusal::bad_request(error.to_string()))
}

fn not_allowed(why: &str) -> IpcRefusal {
    IpcRefusal::new(409, format!("not_requeueable: {why}"))
}

pub(super) async fn drop_row(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let drop = OutboxDrop::parse(&request.body)?;
    match shared.outbox.drop_row(&drop.id).await {
        Ok(()) => super::json(200, &json!({"dropped_row_id": drop.id})),
        Err(OutboxError::NotAllowed) => Err(IpcRefusal::new(
            409,
            "not_droppable: no such row, or it was delivered or retired",
        )),
        Err(error) => Err(unavailable(&error)),
    }
}

pub(super) async fn prune(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    OutboxPrune::parse(&request.body)?;
    let pruned = shared.outbox.prune().await;
    let pruned = pruned.map_err(|error| unavailable(&error))?;
    super::json(200, &json!({"pruned": pruned}))
}
