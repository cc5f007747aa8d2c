//! The message bus.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{
    Schema, SchemaField, anything, boolean, integer, list, number, object, optional, required, text,
};
use consign_web::openapi::{Access, Endpoint, Operation};
use http::StatusCode;

use super::BUS;
use super::operation::{BUS_CLIENT, BUS_KEY, BeamOperation as _, get, post};
use super::schemas::{clamped, count, seconds, state};
use crate::bus::NAME_BYTES_MAX;
use crate::http::bus::reads::{
    DEAD_LETTERS_DEFAULT, HISTORY_DEFAULT, LIST_MAX, POLL_DEFAULT, POLL_MAX, WAIT_MAX_S,
};

const MESSAGE: &str = r#"{"from":"night@acme.beam.directory","to":"desk@acme.beam.directory","intent":"conversation.message","payload":{"message":"Is a room free tonight?"},"priority":0,"nonce":"order-17"}"#;
const SENT: &str = r#"{"message_id":"0193f7a2-6c54-7d61-8a4e-3b0f6f2c9e10","nonce":"order-17","status":"delivered","created_at":1769860800.25}"#;

/// The figures may be public.
const STATS: Access = Access {
    words: "key of the bus, unless the figures are public",
    schemes: &[&[], &[BUS_KEY]],
    ..BUS_CLIENT
};

pub(super) fn all() -> Vec<Endpoint> {
    vec![
        post("/v1/beam/send", send()),
        get("/v1/beam/poll", poll()),
        post("/v1/beam/ack", ack()),
        get("/v1/beam/history", history()),
        get("/v1/beam/stats", stats()),
        get("/v1/beam/dead-letter", dead_letters()),
        post("/v1/beam/dead-letter/{id}/requeue", requeue()),
        get("/v1/beam/events", events()),
    ]
}

fn client(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(BUS, BUS_CLIENT, id, summary)
}

fn name() -> Schema {
    text()
        .rule("minLength", 1)
        .limit(format!("at most {NAME_BYTES_MAX} bytes"))
}

fn send() -> Operation {
    let body = object(vec![
        required("from", name().about("May be called `sender`.")),
        required("to", name()),
        required("intent", name()),
        optional("payload", object(Vec::new())),
        optional("priority", integer().by_default(0)),
        optional(
            "nonce",
            name().about("The same message with the same nonce is sent once."),
        ),
        optional("trace_id", name()),
    ]);
    let mut sent = outcome_fields();
    sent.insert(3, required("created_at", seconds()));
    let known = object(vec![
        required("message_id", text()),
        required("nonce", text()),
        required("status", state()),
        required("created_at", seconds()),
        required("retry_count", count()),
        required("deduped", boolean().always(true)),
    ]);
    client("beamSend", "Send a message")
        .takes_json(body.named("BeamNewMessage"), MESSAGE)
        .answers(
            StatusCode::CREATED,
            "The message is stored and was attempted once.",
            object(sent).named("BeamSentMessage"),
            SENT,
        )
        .shows(
            "The message was sent before with this nonce.",
            known.named("BeamKnownMessage"),
            "",
        )
        .refuses(&[
            Code::MissingRequiredFields,
            Code::InvalidPayload,
            Code::InvalidParam,
            Code::NonceReuseConflict,
            Code::RateLimitExceeded,
        ])
}

/// A message after an attempt.
fn outcome_fields() -> Vec<SchemaField> {
    vec![
        required("message_id", text()),
        required("nonce", text()),
        required(
            "status",
            text().one_of(["delivered", "queued", "dead_letter"]),
        ),
        optional("retry_count", count()),
        optional("next_retry_at", seconds()),
        optional("error", text()),
        optional("error_code", text()),
    ]
}

fn poll() -> Operation {
    let message = object(vec![
        required("id", text()),
        required("sender", text()),
        required("intent", text()),
        required("payload", object(Vec::new())),
        required("priority", integer()),
        required("created_at", seconds()),
        required("delivered_at", seconds().nullable()),
        required("trace_id", text().nullable()),
    ]);
    client("beamPoll", "Read the messages of an agent")
        .about("Reading changes nothing: acknowledge a message to end it.")
        .query("agent", name().about("Required. The recipient."))
        .query(
            "status",
            state()
                .by_default("delivered")
                .about("An unknown word matches no message."),
        )
        .query(
            "since",
            seconds().about("Only messages that were created later."),
        )
        .query("limit", clamped(POLL_DEFAULT, POLL_MAX))
        .query(
            "wait",
            number()
                .about("Seconds to wait for a message.")
                .clamped_to(0.0, WAIT_MAX_S),
        )
        .shows(
            "The messages, oldest first.",
            messages(message.named("BeamPolledMessage")).named("BeamPolledMessages"),
            "",
        )
        .refuses(&[Code::MissingAgent])
}

fn messages(message: Schema) -> Schema {
    object(vec![
        required("messages", list(message)),
        required("count", count()),
    ])
}

fn ack() -> Operation {
    let body = object(vec![
        required("message_id", text().rule("minLength", 1)),
        optional(
            "status",
            text()
                .one_of(["acked", "failed"])
                .nullable()
                .by_default("acked"),
        ),
        optional("response", anything().about("Stored with the message.")),
    ]);
    let acked = object(vec![
        required("message_id", text()),
        required("status", state()),
        required("updated_at", seconds()),
    ]);
    client("beamAck", "Acknowledge a message, or report its failure")
        .takes_json(
            body.named("BeamAcknowledgement"),
            r#"{"message_id":"0193f7a2-6c54-7d61-8a4e-3b0f6f2c9e10","status":"acked","response":{"message":"Yes."}}"#,
        )
        .shows("The message and its status.", acked.named("BeamAcknowledged"), "")
        .refuses(&[
            Code::MissingMessageId,
            Code::InvalidStatus,
            Code::MessageNotFound,
            Code::InvalidState,
        ])
}

fn message() -> Schema {
    object(vec![
        required("id", text()),
        required("nonce", text()),
        required("sender", text()),
        required("recipient", text()),
        required("intent", text()),
        required("payload", object(Vec::new())),
        required("status", state()),
        required("priority", integer()),
        required("retry_count", count()),
        required("max_retries", count()),
        required("next_retry_at", seconds().nullable()),
        required("created_at", seconds()),
        required("delivered_at", seconds().nullable()),
        required("acked_at", seconds().nullable()),
        required("failed_at", seconds().nullable()),
        required("error", text().nullable()),
        required("response", anything()),
        required("trace_id", text().nullable()),
        required("metadata", anything()),
    ])
    .named("BeamMessage")
}

fn message_list() -> Schema {
    messages(message()).named("BeamMessages")
}

fn filtered(operation: Operation, limit: u32) -> Operation {
    operation
        .query("sender", text())
        .query("recipient", text())
        .query("intent", text())
        .query("limit", clamped(limit, LIST_MAX))
}

fn history() -> Operation {
    filtered(client("beamHistory", "List messages"), HISTORY_DEFAULT)
        .query(
            "status",
            state().about("An unknown word matches no message."),
        )
        .query("since", seconds())
        .query("until", seconds())
        .shows("The messages, newest first.", message_list(), "")
}

fn dead_letters() -> Operation {
    filtered(
        client("beamDeadLetters", "List dead letters"),
        DEAD_LETTERS_DEFAULT,
    )
    .shows(
        "The messages whose delivery was given up.",
        message_list(),
        "",
    )
}

fn requeue() -> Operation {
    let mut fields = outcome_fields();
    fields.push(required("requeued", boolean().always(true)));
    client("beamRequeue", "Attempt a dead or failed message again")
        .path("id", text())
        .shows(
            "The message was attempted once.",
            object(fields).named("BeamRequeuedMessage"),
            "",
        )
        .refuses(&[Code::MessageNotFound, Code::InvalidState])
}

fn stats() -> Operation {
    let traffic = object(vec![
        required("sent", count()),
        required("received", count()),
    ]);
    let by_agent = object(Vec::new()).rule("additionalProperties", traffic.definition());
    let figures = object(vec![
        required("total", count()),
        required("queued", count()),
        required("received", count()),
        required("dispatched", count()),
        required("delivered", count()),
        required("acked", count()),
        required("failed", count()),
        required("dead_letter", count()),
        required("by_agent", by_agent),
        required("last_24h", count()),
    ]);
    Operation::new(BUS, STATS, "beamBusStats", "Get figures of the bus").shows(
        "The figures.",
        figures.named("BeamBusStats"),
        "",
    )
}

fn events() -> Operation {
    client("beamEvents", "Follow the messages of an agent")
        .about(
            "Each event has the state as its name and `message_id`, `intent`, `status`, `previous_status` and `at` as its data.",
        )
        .query("agent", name().about("Required. The recipient."))
        .header("Last-Event-ID", text().about("The id of the last event that was received."))
        .answers_text("Server-sent events.", "text/event-stream", "")
        .refuses(&[Code::MissingAgent])
}
