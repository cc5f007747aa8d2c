//! Schemas that several operations use.

use consign_web::openapi::schema::{
    Schema, SchemaField, boolean, exactly, integer, list, object, optional, required, text,
};

use crate::limits::CLIENT_MESSAGE_ID_BYTES_MAX;
use crate::outbox::OutboxStatus;
use crate::priority::MeshPriority;
use crate::role::TopicVisibility;

pub(super) fn count() -> Schema {
    integer().rule("minimum", 0)
}

pub(super) fn time() -> Schema {
    text().rule("format", "date-time")
}

pub(super) fn pubkey() -> Schema {
    text().hex_digits(64)
}

pub(super) fn message_id() -> Schema {
    text()
        .characters(1, CLIENT_MESSAGE_ID_BYTES_MAX)
        .about("Printable ASCII without spaces.")
}

pub(super) fn peer_status() -> Schema {
    text().one_of(["idle", "working", "dnd"])
}

pub(super) fn refusal() -> Schema {
    exactly(vec![
        required("error", text().about("A stable word, or a sentence.")),
        optional(
            "capability",
            text().about("The part of the interface that is off."),
        ),
        optional("message", text().about("What to do.")),
    ])
    .named("Refusal")
}

/// Members that every message may have.
pub(super) fn message_fields() -> Vec<SchemaField> {
    let priority = text().one_of(MeshPriority::ALL.iter().map(|priority| priority.as_str()));
    vec![
        required("message", text().about("At most 48000 bytes.")),
        optional("priority", priority.nullable().by_default("next")),
        optional("mentions", list(text()).nullable()),
        optional(
            "meta",
            object(Vec::new())
                .nullable()
                .about("Travels with the message."),
        ),
        optional(
            "reply_to_id",
            text().nullable().about("The message that is answered."),
        ),
        optional(
            "replyToId",
            text().nullable().about("The same as `reply_to_id`."),
        ),
        optional("client_message_id", message_id().nullable()),
        optional("mesh", own_mesh()),
    ]
}

pub(super) fn own_mesh() -> Schema {
    text()
        .nullable()
        .about("The mesh of this daemon; any other is refused.")
}

pub(super) fn queued() -> Schema {
    object(vec![
        required("client_message_id", message_id()),
        required("status", text().one_of(["queued", "inflight"])),
    ])
    .named("Queued")
}

pub(super) fn delivered() -> Schema {
    object(vec![
        required("client_message_id", message_id()),
        optional("broker_message_id", text()),
        optional("history_id", text()),
        required("duplicate", boolean().always(true)),
    ])
    .named("Delivered")
}

pub(super) fn conflict() -> Schema {
    object(vec![
        required("error", text().always("idempotency_key_reused")),
        required(
            "conflict",
            text().about("The status of the row, and whether the request is the same."),
        ),
        required("daemon_fingerprint_prefix", text().hex_digits(16)),
        required("broker_message_id", text().nullable()),
        optional("reason", text().about("Why the row is dead.")),
    ])
    .named("Conflict")
}

pub(super) fn outbox_row() -> Schema {
    let status = text().one_of(OutboxStatus::ALL.iter().map(|status| status.as_str()));
    object(vec![
        required("id", text()),
        required("client_message_id", message_id()),
        required("status", status),
        required("attempts", count()),
        required("enqueued_at", time()),
        required("next_attempt_at", time()),
        required("delivered_at", time().nullable()),
        required(
            "broker_message_id",
            text()
                .nullable()
                .about("What the receiver calls it; for an intent its id."),
        ),
        required("last_error", text().nullable()),
        required("aborted_at", time().nullable()),
        required("aborted_by", text().nullable()),
        required("superseded_by", text().nullable()),
        required(
            "destination_kind",
            text()
                .nullable()
                .about("topic, dm, queue, or intent for an intent to publish."),
        ),
        required(
            "destination_ref",
            text()
                .nullable()
                .about("The topic, key or queue; for an intent its goal."),
        ),
        required("payload_bytes", count()),
        required("request_fingerprint", text().hex_digits(64)),
    ])
    .named("OutboxRow")
}

pub(super) fn inbox_item() -> Schema {
    object(vec![
        required("id", text()),
        required("client_message_id", text()),
        required("broker_message_id", text().nullable()),
        required("mesh", text()),
        required("topic", text().nullable()),
        required("sender_pubkey", pubkey()),
        required("sender_name", text()),
        required("body", text().nullable().about("Null if no key opened it.")),
        required("meta", text().nullable().about("JSON text.")),
        required("received_at", time()),
        required("reply_to_id", text().nullable()),
    ])
    .named("InboxItem")
}

pub(super) fn topic() -> Schema {
    let visibility = text().one_of(TopicVisibility::ALL.iter().map(|one| one.as_str()));
    object(vec![
        required("id", text()),
        required("name", text()),
        required("description", text().nullable()),
        required("visibility", visibility),
        required("memberCount", count()),
        required("createdAt", time()),
        required("subscribed", boolean()),
    ])
    .named("Topic")
}

pub(super) fn peer() -> Schema {
    object(vec![
        required("pubkey", pubkey()),
        optional("memberPubkey", pubkey()),
        required("displayName", text()),
        required("status", peer_status()),
        required("summary", text().nullable()),
        required("sessionId", text()),
        required("connectedAt", time()),
        required("mesh", text()),
    ])
    .named("Peer")
}
