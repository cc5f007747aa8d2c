//! Reads of intents, receipts and events.

use consign_kernel::error::Code;
use consign_kernel::limits;
use http::StatusCode;

use super::super::super::read::RECEIPT_BYTES_MAX;
use super::super::access;
use super::super::schemas;
use super::IGNORED;
use consign_web::openapi::Operation;
use consign_web::openapi::schema::{
    anything, boolean, either, exactly, integer, list as list_of, required, text,
};

const RECEIPT: &str = r#"{"algorithm":"Ed25519","attempts":1,"cause":"completed","created_at":1794736915312204,"face":"intent","fact":3,"goal":"hello","id":"rcp_01a1dea803707330800005a06ad96f6b_3","intent":"01a1dea803707330800005a06ad96f6b","issuer":"consign","key_id":"816b3ab5d6f3ac0e","namespace":"default","payload_sha256":"c05f3d430e01e24c936243d1e2525b8077c5649863eba0384ca2d860922b24e3","result_sha256":"ab83d13295b39fa7609beed3d9d1c04221821068781f9ce477d52003e084c966","settled_at":1794736934269918,"signature":"dLpeMSx-jKl4yTnSHYxZLNw9LZyzvRhFqxMtvHDgMBtn37GkYSg7Z8HH-P-IVSHdNOex2vkNwFZaKUiFyHNBDA","state":"fulfilled","type":"consign.receipt.v1","worker":"main"}"#;

/// A read of one intent, for its publisher, its last claimer and the main key.
fn own(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(access::READ, access::CLIENT, id, summary)
        .path("id", schemas::id())
        .refuses(&[Code::Forbidden, Code::NotFound])
}

pub(crate) fn result() -> Operation {
    own("getResult", "Read the result of an intent").answers(
        StatusCode::OK,
        "The intent, and its result once it is fulfilled.",
        schemas::intent_result(),
        r#"{"id":"01a1dea803707330800005a06ad96f6b","namespace":"default","goal":"hello","status":"fulfilled","priority":100,"visibility":"private","claim_attempts":1,"run_at":1794736915.312204,"claim_expires_at":null,"target_worker":null,"required_capability":null,"result_type":"json","result":{"greeting":"hello world"},"completed_at":1794736934.269918}"#,
    )
}

pub(crate) fn status() -> Operation {
    own("getStatus", "Read the state of an intent").answers(
        StatusCode::OK,
        "The intent and its current state.",
        schemas::intent_status(),
        r#"{"id":"01a1dea803707330800005a06ad96f6b","namespace":"default","goal":"hello","status":"open","priority":100,"visibility":"private","claim_attempts":0,"run_at":1794736915.312204,"claim_expires_at":null,"target_worker":null,"required_capability":null,"completed_at":null,"last_error":null}"#,
    )
}

pub(crate) fn list() -> Operation {
    let cursor = text()
        .about("The cursor of the next page; null at the end. A page may be short and still have a next one.")
        .nullable();
    Operation::new(
        access::READ,
        access::CLIENT,
        "listIntents",
        "List your intents",
    )
    .about("Newest first.")
    .query("namespace", schemas::any_namespace())
    .query("goal", text().about("Only intents with this goal."))
    .query(
        "status",
        schemas::status().about("Only intents in this state."),
    )
    .query(
        "limit",
        integer()
            .about("The maximum number of intents.")
            .within(1, limits::PAGE_ITEMS_MAX)
            .by_default(limits::PAGE_ITEMS_MAX),
    )
    .query(
        "cursor",
        text()
            .about("The cursor of the previous page.")
            .rule("pattern", "^[0-9]{1,19}$"),
    )
    .answers(
        StatusCode::OK,
        "One page of the list.",
        exactly(vec![
            required("intents", list_of(schemas::intent_status())),
            required("cursor", cursor),
        ]),
        r#"{"intents":[],"cursor":null}"#,
    )
    .with_headers(IGNORED)
    .refuses(&[
        Code::InvalidNamespace,
        Code::InvalidStatus,
        Code::InvalidLimit,
        Code::InvalidCursor,
    ])
    .example_query("status=open&limit=10")
}

pub(crate) fn timeline() -> Operation {
    own("getTimeline", "Read the timeline of an intent").answers(
        StatusCode::OK,
        "The facts of the intent, oldest first.",
        exactly(vec![
            required("id", schemas::id()),
            required("facts", list_of(schemas::fact())),
        ]),
        r#"{"id":"01a1dea803707330800005a06ad96f6b","facts":[{"seq":1,"at":1794736915.312204,"verb":"admitted","from":null,"to":"open","cause":null,"attempt":0,"actor":"main","worker":null,"detail":null}]}"#,
    )
}

pub(crate) fn receipt() -> Operation {
    own("getReceipt", "Get the signed receipt")
        .about("It exists as soon as the intent is fulfilled or dead. Verify it offline with `consign receipt verify`.")
        .answers(
            StatusCode::OK,
            "The receipt, signed with Ed25519. Every request returns the same bytes.",
            schemas::signed_receipt(),
            RECEIPT,
        )
        .refuses(&[Code::NotSettled])
}

pub(crate) fn verify_receipt() -> Operation {
    let genuine = exactly(vec![
        required("valid", boolean().always(true)),
        required("id", text().about("The id of the receipt.")),
        required("intent", schemas::id()),
        required("key_id", text().about("The kid of the key that signed it.")),
        required(
            "standing",
            text()
                .about("The current status. current: it certifies the last settlement. reopened: an operator reopened the intent, and it is not settled yet. superseded: another settlement followed. unknown: the ledger has no record of it.")
                .one_of(["current", "reopened", "superseded", "unknown"]),
        ),
        required(
            "superseded_by",
            text()
                .about("The id of the receipt of the next settlement.")
                .nullable(),
        ),
    ]);
    let other = exactly(vec![
        required("valid", boolean().always(false)),
        required("error", text().about("Why the receipt is not valid.")),
    ]);
    let document =
        anything().about("The receipt, unchanged. Any other document is reported as invalid.");
    Operation::new(access::READ, access::ANYONE, "verifyReceipt", "Verify a receipt and get its current status")
        .about("A receipt stays genuine, also after an operator cancelled or retried the intent. This route returns whether that happened, to any holder of the receipt.")
        .takes(document, RECEIPT_BYTES_MAX, RECEIPT)
        .answers(
            StatusCode::OK,
            "The result; read `valid` first.",
            either(vec![genuine, other]),
            r#"{"valid":true,"id":"rcp_01a1dea803707330800005a06ad96f6b_3","intent":"01a1dea803707330800005a06ad96f6b","key_id":"816b3ab5d6f3ac0e","standing":"superseded","superseded_by":"rcp_01a1dea803707330800005a06ad96f6b_9"}"#,
        )
        .refuses(&[
            Code::InvalidRequest,
            Code::HttpsRequired,
            Code::RequestTimeout,
            Code::PayloadTooLarge,
            Code::DatabaseBusy,
            Code::Maintenance,
        ])
}

pub(crate) fn events() -> Operation {
    let after = || {
        text()
            .about("Continue after this event; 0 begins with the oldest stored event.")
            .rule("pattern", "^[0-9]{1,19}$")
    };
    Operation::new(access::READ, access::CLIENT, "followEvents", "Follow your intents as they change")
        .about("Server-sent events. Reconnect with the last id to continue without gaps. A comment is sent every 15 seconds to keep the connection alive.")
        .query("after", after())
        .header("Last-Event-ID", after().about("Sent by browsers when they reconnect; takes precedence over after."))
        .answers_text(
            "An endless stream. The data of each event is a fact with intent, namespace and goal.",
            "text/event-stream",
            "id: 3\nevent: completed\ndata: {\"seq\":3,\"verb\":\"completed\",\"from\":\"claimed\",\"to\":\"fulfilled\", …}",
        )
        .refuses(&[
            Code::InvalidCursor,
            Code::CursorUnknown,
            Code::LimitExceeded,
        ])
        .example_query("after=0")
}
