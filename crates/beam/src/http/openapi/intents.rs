//! Intents: send, the catalog, the recent ones, and public figures.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{list, object, optional, required, text};
use consign_web::openapi::{Endpoint, Operation};

use super::INTENTS;
use super::operation::{AGENT_OR_ADMIN, ANYONE, BeamOperation as _, get, post};
use super::schemas::{clamped, count, intent_entry, intent_frame, result_frame};
use crate::http::intents::{RECENT_DEFAULT, RECENT_MAX};

const FRAME: &str = r#"{"v":"1","from":"night@acme.beam.directory","to":"desk@acme.beam.directory","intent":"conversation.message","payload":{"message":"Is a room free tonight?"},"nonce":"3f1c7b52-8f0e-4e0b-9d43-0c0f8c1f5a11","timestamp":"2026-01-31T12:00:00.000Z","signature":"gUbsf0KqbZ1kUv6rI0E7m1Dq1rTqk2pWcRnYcMBN9VYk0mVn6bW8qXlq7r7pX1lTz0qk8yS4m9d2v3mJ4kT5Ag=="}"#;
const RESULT: &str = r#"{"v":"1","success":true,"nonce":"3f1c7b52-8f0e-4e0b-9d43-0c0f8c1f5a11","timestamp":"2026-01-31T12:00:01.000Z","payload":{"message":"Yes, two of them."},"latency":412}"#;

pub(super) fn all() -> Vec<Endpoint> {
    let catalog = object(vec![required(
        "intents",
        list(object(vec![
            required("id", text()),
            optional("description", text()),
            optional("from", list(text())),
            optional("to", list(text())),
            optional("payload", object(Vec::new())),
        ])),
    )]);
    let recent = object(vec![
        required(
            "total",
            count().about("The number of intents in this list."),
        ),
        required("intents", list(intent_entry())),
    ]);
    let figures = object(vec![
        required("agents", count()),
        required("intentsProcessed", count()),
        required("uptime", count().about("Seconds.")),
        required("waitlistSize", count()),
        required("version", text()),
    ]);
    vec![
        post("/intents/send", send()),
        get(
            "/intents/catalog",
            Operation::new(INTENTS, ANYONE, "beamCatalog", "Get the catalog of intents").shows(
                "The types of intents that this directory relays.",
                catalog.named("BeamCatalog"),
                "",
            ),
        ),
        get(
            "/intents/recent",
            Operation::new(INTENTS, AGENT_OR_ADMIN, "beamRecentIntents", "List recent intents")
                .about("An agent sees the intents that it sent or received. Operators of every role and programs on this machine see all.")
                .query("limit", clamped(RECENT_DEFAULT, RECENT_MAX))
                .shows("The intents, newest first.", recent.named("BeamRecentIntents"), ""),
        ),
        get(
            "/stats",
            Operation::new(INTENTS, ANYONE, "beamStats", "Get figures of this server").shows(
                "The figures.",
                figures.named("BeamStats"),
                "",
            ),
        ),
    ]
}

fn send() -> Operation {
    Operation::new(INTENTS, ANYONE, "beamSendIntent", "Send an intent and wait for its result")
        .about(
            "The frame proves its sender by its signature. A missing `nonce`, `timestamp` or `payload` is filled in, and unknown fields are \
             dropped. The same nonce returns the stored result. A result with `success` false has the status 200 too.",
        )
        .takes_object(intent_frame(), FRAME)
        .shows("The result frame of the recipient.", result_frame(), RESULT)
        .refuses(&[
            Code::InvalidIntent,
            Code::Forbidden,
            Code::InProgress,
            Code::RelayError,
            Code::DeliveryFailed,
            Code::Offline,
            Code::RelayTimeout,
        ])
}
