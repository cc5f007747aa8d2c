//! Sending messages, posts and files, and publishing intents.

use consign_kernel::limits::{
    GOAL_CHARS_MAX, LABEL_CHARS_MAX, NAMESPACE_CHARS_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX,
};
use consign_web::openapi::schema::{
    Schema, anything, boolean, integer, list, number, object, optional, required, text,
};
use consign_web::openapi::{Endpoint, Operation};
use http::StatusCode;

use super::operation::{LocalOperation as _, endpoint, operation};
use super::{SENDING, schemas};
use crate::ipc::IpcRoute;

const QUEUED: &str = r#"{"client_message_id":"disk-7","status":"queued"}"#;
const DELIVERED: &str = r#"{"client_message_id":"disk-7","broker_message_id":"0193a5b4-7e10-7d3c-a1f0-2b9c4d5e6f70","history_id":"41","duplicate":true}"#;
const CONFLICT: &str = r#"{"error":"idempotency_key_reused","conflict":"outbox_dead_fingerprint_match","daemon_fingerprint_prefix":"09a1b2c3d4e5f607","broker_message_id":null,"reason":"not_found"}"#;

pub(super) fn all() -> Vec<Endpoint> {
    vec![
        endpoint(IpcRoute::Send, send()),
        endpoint(IpcRoute::TopicPost, post()),
        endpoint(IpcRoute::Intents, publish()),
        endpoint(IpcRoute::FileShare, share()),
    ]
}

/// The answers that everything with an id has.
fn accepted(operation: Operation, body: Schema, example: &'static str) -> Operation {
    operation
        .header("Idempotency-Key", schemas::message_id())
        .reads(body, example)
        .answers(
            StatusCode::ACCEPTED,
            "It is on disk and will be sent.",
            schemas::queued(),
            QUEUED,
        )
        .shows("It was sent before.", schemas::delivered(), DELIVERED)
        .answers(
            StatusCode::CONFLICT,
            "The id belongs to another request, or to one that will not be sent. Nothing changes.",
            schemas::conflict(),
            CONFLICT,
        )
        .refuses_with(&[404, 503, 507])
}

fn send() -> Operation {
    let to = text().about(
        "A key, the beginning of a key, the name of a member, #topic, @group, queue:NAME or *.",
    );
    let mut fields = vec![required("to", to)];
    fields.extend(schemas::message_fields());
    let sent = operation(SENDING, "send", "Send a message")
        .about("A name that two members have is 409 `destination_ambiguous`.");
    accepted(
        sent,
        object(fields).named("Message"),
        r#"{"to":"bob","message":"disk is full","priority":"now","meta":{"host":"a"},"client_message_id":"disk-7"}"#,
    )
    .refuses_with(&[422])
}

fn post() -> Operation {
    let mut fields = vec![required(
        "topic",
        text().about("The name, with or without #."),
    )];
    fields.extend(schemas::message_fields());
    accepted(
        operation(SENDING, "postToTopic", "Post to a topic"),
        object(fields).named("Post"),
        r#"{"topic":"alerts","message":"disk is full","mentions":["bob"],"client_message_id":"disk-7"}"#,
    )
    .refuses_with(&[422])
}

fn publish() -> Operation {
    let label = || text().characters(1, LABEL_CHARS_MAX).nullable();
    let visibility = text().one_of(["private", "public"]).nullable();
    let payload = anything().about("For the worker.");
    let fields = vec![
        required("goal", text().characters(1, GOAL_CHARS_MAX)),
        required(
            "payload",
            payload.limit(format!("{PAYLOAD_BYTES_MAX} bytes of compact JSON")),
        ),
        optional(
            "namespace",
            text().characters(1, NAMESPACE_CHARS_MAX).nullable(),
        ),
        optional("visibility", visibility),
        optional("priority", integer().within(0, PRIORITY_MAX).nullable()),
        optional("delay", number().nullable().about("Seconds.")),
        optional("max_attempts", integer().nullable()),
        optional("backoff_base", number().nullable().about("Seconds.")),
        optional("target_worker", label()),
        optional("required_capability", label()),
        optional("client_message_id", schemas::message_id().nullable()),
        optional("mesh", schemas::own_mesh()),
    ];
    let published = operation(SENDING, "publishIntent", "Publish an intent").about(
        "The request of `POST /intent` of the Intent Protocol. The daemon sends it to the server of `[intents]` in config.toml \
         until the server has accepted or refused it, with the id as idempotency key, so it is published once. Further members \
         are refused. Without an API key in the settings it is 404 `intents_not_configured`.",
    );
    let body = object(fields)
        .rule("additionalProperties", false)
        .named("Intent");
    accepted(
        published,
        body,
        r#"{"goal":"mail","payload":{"to":"ops"},"required_capability":"smtp","client_message_id":"disk-7"}"#,
    )
}

fn share() -> Operation {
    let body = object(vec![
        required("path", text().about("Absolute, on this machine.")),
        optional(
            "to",
            text().nullable().about("Everyone, if it is left out."),
        ),
        optional("message", text().nullable()),
        optional("persistent", boolean().by_default(false)),
    ]);
    let shared = object(vec![
        required("fileId", text()),
        required("name", text()),
        required("bytes", schemas::count()),
        required("to", text()),
        required("persistent", boolean()),
        required("client_message_ids", list(text())),
    ]);
    operation(SENDING, "shareFile", "Share a file")
        .reads(
            body.named("FileToShare"),
            r#"{"path":"/tmp/report.pdf","to":"@ops"}"#,
        )
        .shows("The file is queued.", shared.named("SharedFile"), "")
        .refuses_with(&[404, 409, 422, 503, 507])
}
