//! Routes of workers: claim, extend, settle.

use consign_kernel::error::Code;
use consign_kernel::limits;
use http::StatusCode;

use super::super::access;
use super::super::schemas;
use super::IGNORED;
use consign_web::openapi::Operation;
use consign_web::openapi::schema::{
    Schema, SchemaField, boolean, exactly, integer, list, number, object, optional, required, text,
};

const OUTCOME: &[Code] = &[
    Code::InvalidResult,
    Code::InvalidResultType,
    Code::ResultTooLarge,
    Code::NotFound,
];

fn worker_id() -> Schema {
    text()
        .about("The id of the worker; intents with this target_worker can be claimed too.")
        .limit(format!(
            "cut after {} characters",
            limits::WORKER_ID_CHARS_MAX
        ))
}

fn capabilities() -> Schema {
    text()
        .about(
            "The capabilities of the worker, separated by commas; intents that require one of them can be claimed too.",
        )
        .limit(format!(
            "cut after {} characters; at most {} different ones",
            limits::CAPABILITIES_CHARS_MAX,
            limits::CAPABILITIES_MAX
        ))
}

/// The headers that describe the worker.
fn by_worker(operation: Operation) -> Operation {
    operation
        .header("X-Worker-ID", worker_id())
        .header("X-Worker-Capabilities", capabilities())
}

pub(crate) fn claim() -> Operation {
    let one_or_many = schemas::claim_answer();
    let operation = Operation::new(access::WORK, access::CLIENT, "claim", "Claim work")
        .about("The lease lasts claim_timeout seconds. Settle the intent with fulfill or fail, or extend the lease in time. With max the response is {\"intents\":[…]}, and the request counts as max requests.")
        .query("goal", text().about("Only intents with this goal."))
        .query("namespace", schemas::claimed_namespace().by_default("default"))
        .query(
            "wait",
            number()
                .about("Seconds to wait if no intent can be claimed.")
                .within(0.0, limits::CLAIM_WAIT_MAX_S)
                .by_default(0),
        )
        .query(
            "max",
            integer()
                .about("Claim up to this many at once; changes the shape of the response.")
                .within(1, limits::CLAIM_BATCH_MAX),
        )
        .query("worker_id", worker_id().about("Instead of the header X-Worker-ID."))
        .query("capabilities", capabilities().about("Instead of the header X-Worker-Capabilities."))
        .query(
            "publisher",
            text().about("Only intents of this key or key id, whatever their visibility. Only the main key may name another key."),
        );
    by_worker(operation)
        .answers(
            StatusCode::OK,
            "One intent; or, with max, a list of them.",
            one_or_many,
            r#"{"id":"01a1dea803707330800005a06ad96f6b","claim_token":"f886ac9e86c6b3f441323d5df4231640","claim_attempts":1,"claim_timeout":60,"goal":"hello","namespace":"default","priority":100,"target_worker":null,"required_capability":null,"payload":{"name":"world"}}"#,
        )
        .with_headers(IGNORED)
        .links_to(&["getStatus"])
        .links_with_token_to(&["extendClaim", "fulfill", "fail"])
        .answers_nothing("No intent can be claimed.")
        .with_headers(&["Retry-After", "Maybe-X-Consign-Ignored"])
        .refuses(&[
            Code::InvalidNamespace,
            Code::InvalidMax,
            Code::InvalidWait,
            Code::InvalidRequest,
            Code::Forbidden,
            Code::LimitExceeded,
            Code::NodeDraining,
        ])
        .example_query("goal=hello&wait=30")
}

pub(crate) fn extend() -> Operation {
    let seconds = number()
        .about("The length of the lease in seconds, from now; a fraction is cut off.")
        .clamped_to(limits::LEASE_MIN_S, limits::LEASE_MAX_S)
        .by_default(limits::LEASE_DEFAULT_S)
        .nullable();
    let answer = exactly(vec![
        required("ok", boolean().always(true)),
        required("id", schemas::id()),
        required(
            "extended_by",
            integer()
                .about("The length that was set.")
                .within(limits::LEASE_MIN_S, limits::LEASE_MAX_S),
        ),
    ]);
    Operation::new(
        access::WORK,
        access::CLIENT,
        "extendClaim",
        "Extend a lease",
    )
    .path("id", schemas::id())
    .takes(
        object(vec![
            required("claim_token", needed_token()),
            optional("seconds", seconds),
        ]),
        limits::BODY_BYTES_MAX,
        r#"{"claim_token":"f886ac9e86c6b3f441323d5df4231640","seconds":300}"#,
    )
    .answers(
        StatusCode::OK,
        "The lease is extended.",
        answer,
        r#"{"ok":true,"id":"01a1dea803707330800005a06ad96f6b","extended_by":300}"#,
    )
    .refuses(&[Code::InvalidSeconds, Code::NotFound])
}

pub(crate) fn fulfill() -> Operation {
    let mut fields = vec![required("claim_token", needed_token())];
    fields.extend(schemas::outcome_fields());
    settlement("fulfill", "Report success", schemas::settled())
        .takes(
            schemas::with_text_rule(object(fields)),
            limits::BODY_BYTES_MAX,
            r#"{"claim_token":"f886ac9e86c6b3f441323d5df4231640","result":{"greeting":"hello world"}}"#,
        )
        .refuses(OUTCOME)
}

pub(crate) fn fail() -> Operation {
    let mut fields = vec![required("claim_token", needed_token())];
    fields.extend(schemas::failure_fields());
    settlement("fail", "Report a failure", schemas::failed())
        .about("The intent is retried after a delay, or is dead if this was its last attempt. A worker that knows better says so with retry or retry_in.")
        .takes(
            object(fields),
            limits::FAILURE_BODY_BYTES_MAX,
            r#"{"claim_token":"f886ac9e86c6b3f441323d5df4231640","error":"smtp down","retry_in":30}"#,
        )
        .refuses(&[Code::InvalidRetry, Code::NotFound])
}

fn settlement(id: &'static str, summary: &'static str, answer: Schema) -> Operation {
    Operation::new(access::WORK, access::CLIENT, id, summary)
        .path("id", schemas::id())
        .answers(
            StatusCode::OK,
            "The intent is settled, and the lease has ended.",
            answer,
            r#"{"ok":true,"id":"01a1dea803707330800005a06ad96f6b"}"#,
        )
        .links_to(&["getResult", "getReceipt", "getDead", "retryIntent"])
}

fn needed_token() -> Schema {
    schemas::claim_token().rule("minLength", 1)
}

pub(crate) fn settle() -> Operation {
    let operation = Operation::new(access::WORK, access::CLIENT, "settleBatch", "Settle intents and claim the next")
        .about("Each item is settled independently; a refused item has an error and does not affect the others. Each item counts as one request, and the claim as max requests.")
        .takes(
            object(vec![
                required("items", list(schemas::with_text_rule(object(item_fields()))).items(1, limits::BATCH_ITEMS_MAX)),
                optional("claim", next_claim()),
            ]),
            limits::BATCH_BODY_BYTES_MAX,
            r#"{"items":[{"id":"01a1dea84e057f0880000abe27861073","claim_token":"769d93971897585b0f43cf5d01a0ba8b","action":"fulfill","result":{"sent":true}}],"claim":{"goal":"mail","max":10}}"#,
        );
    by_worker(operation)
        .answers(
            StatusCode::OK,
            "One result per item, in the same order, and the next claims.",
            exactly(vec![
                required("items", list(schemas::settled_item())),
                required("intents", schemas::claims()),
            ]),
            r#"{"items":[{"id":"01a1dea84e057f0880000abe27861073","ok":true}],"intents":[]}"#,
        )
        .refuses(&[
            Code::InvalidNamespace,
            Code::InvalidGoal,
            Code::InvalidMax,
            Code::Forbidden,
        ])
        .names_items()
}

fn item_fields() -> Vec<SchemaField> {
    let action = text().about("The outcome.").one_of(["fulfill", "fail"]);
    let mut fields = vec![
        required("id", text().about("The id of the intent.")),
        required("claim_token", schemas::claim_token()),
        required("action", action),
    ];
    fields.extend(schemas::outcome_fields());
    fields.extend(schemas::failure_fields());
    fields
}

fn next_claim() -> Schema {
    object(vec![
        optional(
            "namespace",
            schemas::namespace().by_default("default").nullable(),
        ),
        optional(
            "goal",
            text().about("Only intents with this goal.").nullable(),
        ),
        optional(
            "max",
            integer()
                .about("The maximum number of intents.")
                .within(1, limits::CLAIM_BATCH_MAX)
                .by_default(1)
                .nullable(),
        ),
    ])
    .about("The next claim; without it nothing is claimed.")
    .nullable()
}
