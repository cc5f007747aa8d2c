//! The operator's routes.

use consign_kernel::error::Code;
use consign_kernel::limits;
use http::StatusCode;

use super::super::access;
use super::super::schemas;
use super::IGNORED;
use consign_web::openapi::Operation;
use consign_web::openapi::schema::{
    Schema, boolean, either, exactly, integer, list, number, object, optional, required, text,
};

pub(super) fn reads(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(access::OPERATE, access::OPERATOR, id, summary)
}

/// A route that changes something; cross-site requests of browsers are refused.
pub(super) fn changes(id: &'static str, summary: &'static str) -> Operation {
    reads(id, summary).refuses(&[Code::Forbidden])
}

pub(crate) fn dashboard() -> Operation {
    reads("dashboard", "Show the dashboard")
        .about("Open it in a browser; the user is admin.")
        .answers_text("An HTML page.", "text/html; charset=utf-8", "")
        .with_headers(&["Content-Security-Policy"])
}

fn grant_body() -> Schema {
    object(vec![
        required(
            "key_id",
            text()
                .about("The id of the key, main for the main key.")
                .rule("minLength", 1),
        ),
        required("namespace", schemas::granted_namespace()),
    ])
}

fn grant_answer() -> Schema {
    exactly(vec![
        required("ok", boolean().always(true)),
        required("key_id", text()),
        required("namespace", text()),
    ])
}

const GRANT_EXAMPLE: &str = r#"{"key_id":"k_0a6ddb62b508491b","namespace":"beam.bob.acme"}"#;
const GRANTED_EXAMPLE: &str =
    r#"{"ok":true,"key_id":"k_0a6ddb62b508491b","namespace":"beam.bob.acme"}"#;

pub(crate) fn grant() -> Operation {
    changes("grant", "Let a key claim in a reserved namespace")
        .about("Messages to bob@acme.beam.directory are claimed in the namespace beam.bob.acme. A grant that exists is no error.")
        .takes(grant_body(), limits::BODY_BYTES_MAX, GRANT_EXAMPLE)
        .answers(StatusCode::OK, "The key has the grant.", grant_answer(), GRANTED_EXAMPLE)
        .refuses(&[Code::InvalidNamespace, Code::NotFound])
}

pub(crate) fn revoke_grant() -> Operation {
    changes("revokeGrant", "Take a grant from a key")
        .about("Its claims in this namespace are refused from now on; what it holds it may still settle.")
        .takes(grant_body(), limits::BODY_BYTES_MAX, GRANT_EXAMPLE)
        .answers(StatusCode::OK, "The grant is revoked.", grant_answer(), GRANTED_EXAMPLE)
        .refuses(&[Code::InvalidNamespace, Code::NotFound])
}

pub(crate) fn grants() -> Operation {
    let grant = exactly(vec![
        required("key_id", text()),
        required("namespace", text()),
        required("granted_at", number().limit("Unix time in seconds")),
    ]);
    reads("listGrants", "List the grants").answers(
        StatusCode::OK,
        "Which key may claim in which reserved namespace.",
        list(grant),
        r#"[{"key_id":"k_0a6ddb62b508491b","namespace":"beam.bob.acme","granted_at":1794736934.332614}]"#,
    )
}

pub(crate) fn purge() -> Operation {
    let confirm = boolean()
        .about("Must be true, because a purge cannot be undone.")
        .always(true);
    changes("purge", "Delete all intents")
        .takes(
            object(vec![
                required("confirm", confirm),
                optional("namespace", schemas::any_namespace().nullable()),
            ]),
            limits::BODY_BYTES_MAX,
            r#"{"confirm":true,"namespace":"default"}"#,
        )
        .answers(
            StatusCode::OK,
            "The intents are deleted.",
            schemas::done(),
            r#"{"ok":true}"#,
        )
        .refuses(&[Code::ConfirmationRequired, Code::InvalidNamespace])
}

pub(crate) fn cleanup() -> Operation {
    let counted = [
        "expired_open_deleted",
        "expired_claims_requeued",
        "expired_claims_dead",
        "fulfilled_deleted",
        "dead_deleted",
        "dead_letters_deleted",
        "store_deleted",
        "rate_limits_deleted",
        "idempotency_deleted",
        "nonces_deleted",
    ];
    let fields = counted.map(|name| required(name, integer())).to_vec();
    changes("cleanup", "Run a cleanup pass")
        .about("The server also runs it every few hours.")
        .answers(
            StatusCode::OK,
            "The number of rows by kind.",
            exactly(fields),
            r#"{"expired_open_deleted":0,"expired_claims_requeued":0,"expired_claims_dead":0,"fulfilled_deleted":0,"dead_deleted":0,"dead_letters_deleted":0,"store_deleted":0,"rate_limits_deleted":0,"idempotency_deleted":0,"nonces_deleted":0}"#,
        )
}

pub(crate) fn intent() -> Operation {
    reads("inspectIntent", "Show an intent with all its fields")
        .path("id", schemas::id())
        .answers(StatusCode::OK, "The intent.", schemas::intent_detail(), "")
        .refuses(&[Code::NotFound])
}

/// The body of a step that a fulfilled intent needs to be forced to.
fn force() -> Schema {
    let force = boolean()
        .about("Whether a fulfilled intent is changed too. Its earlier receipt stays genuine, and the next one supersedes it.")
        .by_default(false)
        .nullable();
    object(vec![optional("force", force)])
}

pub(crate) fn cancel() -> Operation {
    changes("cancelIntent", "Cancel an intent")
        .about("The intent becomes dead, and its holder loses the lease. A row of another protocol is cancelled if that protocol lets an operator do it. One that is dead keeps the cause of its death; a fulfilled one is cancelled only with force.")
        .path("id", schemas::id())
        .may_take(force(), limits::BODY_BYTES_MAX, r#"{"force":false}"#)
        .answers(
            StatusCode::OK,
            "The intent is dead.",
            schemas::operated(),
            r#"{"ok":true,"id":"01a1dea803707330800005a06ad96f6b","status":"dead"}"#,
        )
        .refuses(&[Code::NotFound, Code::InvalidState])
}

pub(crate) fn retry() -> Operation {
    changes("retryIntent", "Requeue an intent")
        .about("The intent becomes open, with all its attempts and a new lifetime of 24 hours. A fulfilled one, which loses its result, is requeued only with force.")
        .path("id", schemas::id())
        .may_take(force(), limits::BODY_BYTES_MAX, r#"{"force":false}"#)
        .answers(
            StatusCode::OK,
            "The intent is open.",
            schemas::operated(),
            r#"{"ok":true,"id":"01a1dea803707330800005a06ad96f6b","status":"open"}"#,
        )
        .refuses(&[Code::NotFound, Code::InvalidState])
}

/// What a filter looks like.
pub(super) fn filter() -> Schema {
    text()
        .about("Terms separated by spaces, all of which must match: id: ns: goal: owner: state: face: error: age> age< created> created< payload.NAME=. A star at the end of a value matches what begins like it, commas separate alternatives, a minus before a term negates it, and a value with spaces is quoted.")
        .limit(format!("{} bytes", limits::FILTER_BYTES_MAX))
}

fn search_cursor() -> Schema {
    text()
        .about("The cursor of the previous page.")
        .rule("pattern", r"^[0-9]{1,19}(\.[0-9]{1,19})?$")
}

fn next_cursor() -> Schema {
    text()
        .about("The cursor of the next page; null at the end. A page may be short or empty and still have a next one.")
        .nullable()
}

fn page_size() -> Schema {
    integer()
        .about("The maximum number of rows.")
        .within(1, limits::PAGE_ITEMS_MAX)
        .by_default(limits::PAGE_ITEMS_MAX)
}

pub(crate) fn search() -> Operation {
    reads("searchIntents", "Find rows of all owners and protocols")
        .about("Newest first; dead letters alone by their death, latest first. A page examines a bounded number of rows, so it may be short or empty and still have a next one.")
        .query("filter", filter())
        .query("limit", page_size())
        .query("cursor", search_cursor())
        .answers(
            StatusCode::OK,
            "One page of what was found.",
            exactly(vec![
                required("intents", list(schemas::found_intent())),
                required("cursor", next_cursor()),
                required("examined", integer().about("How many rows were examined for this page.")),
            ]),
            r#"{"intents":[],"cursor":null,"examined":0}"#,
        )
        .refuses(&[Code::InvalidFilter, Code::InvalidCursor, Code::InvalidLimit])
        .example_query("filter=state:dead%20goal:mail.*")
}

pub(crate) fn count() -> Operation {
    reads("countIntents", "Count rows of all owners and protocols")
        .about("Examines a bounded number of rows; with the cursor of the response the count continues.")
        .query("filter", filter())
        .query("cursor", search_cursor())
        .answers(
            StatusCode::OK,
            "How many of the examined rows match.",
            exactly(vec![
                required("count", integer()),
                required("examined", integer()),
                required("cursor", next_cursor()),
            ]),
            r#"{"count":12,"examined":208,"cursor":null}"#,
        )
        .refuses(&[Code::InvalidFilter, Code::InvalidCursor])
        .example_query("filter=state:dead")
}

pub(crate) fn remove() -> Operation {
    changes("deleteIntent", "Delete an intent")
        .about("The intent and its history are gone. One that a worker holds is refused, and so are rows of other protocols, which are parts of the history of those.")
        .path("id", schemas::id())
        .answers(
            StatusCode::OK,
            "The intent is deleted.",
            schemas::settled(),
            r#"{"ok":true,"id":"01a1dea803707330800005a06ad96f6b"}"#,
        )
        .refuses(&[Code::NotFound, Code::InvalidState])
}

pub(crate) fn dead() -> Operation {
    let newest = list(schemas::dead_letter()).items(0, limits::DEAD_LIST_MAX as usize);
    reads("listDead", "List dead letters")
        .about("Without parameters a list of the newest. With a filter, a limit or a cursor a page, whose cursor leads to older ones.")
        .query("filter", filter())
        .query("limit", page_size())
        .query("cursor", search_cursor())
        .answers(
            StatusCode::OK,
            "The newest dead letters, or one page of those that match.",
            either(vec![newest, schemas::dead_page(next_cursor())]),
            r#"[{"intent_id":"01a1dea803707330800005a06ad96f6b","namespace":"default","goal":"hello","attempts":3,"reason":"smtp down","created_at":1794736934.269918}]"#,
        )
        .with_headers(IGNORED)
        .refuses(&[Code::InvalidFilter, Code::InvalidCursor, Code::InvalidLimit])
}

pub(crate) fn dead_letter() -> Operation {
    reads("getDead", "Show a dead letter")
        .path("id", schemas::id())
        .answers(
            StatusCode::OK,
            "The dead letter, with its payload.",
            schemas::dead_letter_detail(),
            "",
        )
        .refuses(&[Code::NotFound])
}
