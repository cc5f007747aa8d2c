//! Publishing, and the key-value store.

use consign_kernel::error::Code;
use consign_kernel::limits;
use http::StatusCode;

use super::super::access;
use super::super::schemas;
use super::IGNORED;
use consign_web::openapi::Operation;
use consign_web::openapi::schema::{
    Schema, anything, exactly, list, number, object, optional, required, text,
};

/// Errors of the fields of an intent.
const FIELDS: &[Code] = &[
    Code::InvalidNamespace,
    Code::InvalidGoal,
    Code::InvalidVisibility,
    Code::InvalidPriority,
    Code::InvalidDelay,
    Code::InvalidMaxAttempts,
    Code::InvalidBackoffBase,
    Code::InvalidTargetWorker,
    Code::InvalidRequiredCapability,
    Code::InvalidIdempotencyKey,
    Code::Forbidden,
    Code::IdempotencyConflict,
    Code::LimitExceeded,
];

pub(crate) fn publish() -> Operation {
    let key = text()
        .about("A second publish with the same key within 24 hours returns the same intent. Visible ASCII; an empty value is ignored.")
        .characters(0, limits::IDEMPOTENCY_KEY_BYTES_MAX)
        .rule("pattern", "^[ -~]*$");
    Operation::new(access::PUBLISH, access::CLIENT, "publish", "Publish an intent")
        .about("Use the returned id to follow the intent. An intent expires after 24 hours if no worker finishes it.")
        .header("Idempotency-Key", key)
        .header("traceparent", traceparent())
        .takes(
            schemas::new_intent(),
            limits::BODY_BYTES_MAX,
            r#"{"goal":"hello","payload":{"name":"world"}}"#,
        )
        .answers(
            StatusCode::CREATED,
            "The intent is on disk.",
            schemas::published(),
            r#"{"id":"01a1dea803707330800005a06ad96f6b","status":"published","namespace":"default"}"#,
        )
        .with_headers(IGNORED)
        .links_to(&["getStatus", "getResult", "getTimeline", "inspectIntent", "cancelIntent"])
        .refuses(FIELDS)
}

pub(crate) fn publish_batch() -> Operation {
    let intents = list(schemas::batch_intent()).items(1, limits::BATCH_ITEMS_MAX);
    Operation::new(
        access::PUBLISH,
        access::CLIENT,
        "publishBatch",
        "Publish many intents",
    )
    .about("All intents are published, or none; an error contains the index of the item. Each item counts as one request.")
    .header("traceparent", traceparent())
    .takes(
        object(vec![required("intents", intents)]),
        limits::BATCH_BODY_BYTES_MAX,
        r#"{"intents":[{"goal":"mail","payload":1,"idempotency_key":"order-1"},{"goal":"mail","payload":2}]}"#,
    )
    .answers(
        StatusCode::CREATED,
        "All intents are on disk, in the order of the items.",
        exactly(vec![required("intents", list(schemas::published()))]),
        r#"{"intents":[{"id":"01a1dea84e057f0880000abe27861073","status":"published","namespace":"default"},{"id":"01a1dea84e057f0880000fe6adc646ac","status":"published","namespace":"default"}]}"#,
    )
    .with_headers(IGNORED)
    .refuses(FIELDS)
    .names_items()
}

fn traceparent() -> Schema {
    text()
        .about("A W3C trace context, which the worker receives. A malformed one is dropped.")
        .limit(format!("{} bytes", limits::TRACEPARENT_BYTES_MAX))
}

fn key() -> Schema {
    text()
        .about("A name of your choice, percent-encoded where a path needs it.")
        .rule("minLength", 1)
        .limit(format!("1 to {} bytes", limits::KV_KEY_BYTES_MAX))
}

pub(crate) fn set_value() -> Operation {
    let ttl = number()
        .about("Seconds until the value expires.")
        .clamped_to(1, limits::KV_TTL_MAX_S)
        .by_default(limits::KV_TTL_DEFAULT_S)
        .nullable();
    let value =
        anything().about("The value. A string is stored unchanged, anything else as JSON text.");
    Operation::new(access::STORE, access::CLIENT, "setValue", "Store a value")
        .path("key", key().rule("maxLength", limits::KV_KEY_BYTES_MAX))
        .takes(
            object(vec![required("value", value), optional("ttl", ttl)]),
            limits::BODY_BYTES_MAX,
            r#"{"value":"eu-1","ttl":600}"#,
        )
        .answers(
            StatusCode::OK,
            "The value is stored.",
            schemas::done(),
            r#"{"ok":true}"#,
        )
        .refuses(&[Code::InvalidKey, Code::InvalidTtl, Code::NotFound])
}

pub(crate) fn get_value() -> Operation {
    Operation::new(access::STORE, access::CLIENT, "getValue", "Read a value")
        .path("key", key())
        .answers(
            StatusCode::OK,
            "The value, as text.",
            exactly(vec![required("value", text())]),
            r#"{"value":"eu-1"}"#,
        )
        .refuses(&[Code::NotFound])
}
