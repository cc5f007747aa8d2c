//! Following one's intents.

use consign_kernel::error::Code;
use consign_kernel::limits;
use http::StatusCode;

use super::super::super::read::RECEIPT_BYTES_MAX;
use super::super::operation::{Auth, Operation, Tag};
use super::super::schema::{
    anything, boolean, either, exactly, integer, list as list_of, required, text,
};
use super::super::schemas;

const RECEIPT: &str = r#"{"algorithm":"Ed25519","attempts":1,"cause":"completed","created_at":1794736915312204,"face":"intent","fact":3,"goal":"hello","id":"rcp_01a1dea803707330800005a06ad96f6b_3","intent":"01a1dea803707330800005a06ad96f6b","issuer":"consign","key_id":"816b3ab5d6f3ac0e","namespace":"default","payload_sha256":"c05f3d430e01e24c936243d1e2525b8077c5649863eba0384ca2d860922b24e3","result_sha256":"ab83d13295b39fa7609beed3d9d1c04221821068781f9ce477d52003e084c966","settled_at":1794736934269918,"signature":"dLpeMSx-jKl4yTnSHYxZLNw9LZyzvRhFqxMtvHDgMBtn37GkYSg7Z8HH-P-IVSHdNOex2vkNwFZaKUiFyHNBDA","state":"fulfilled","type":"consign.receipt.v1","worker":"main"}"#;

/// A read of one intent, for its publisher, its last claimer and the main key.
fn own(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(Tag::Read, Auth::Client, id, summary)
        .path("id", schemas::id())
        .refuses(&[Code::Forbidden, Code::NotFound])
}

pub(in crate::intent) fn result() -> Operation {
    own("getResult", "Read the result of an intent").answers(
        StatusCode::OK,
        "The intent, and its result once it is fulfilled.",
        schemas::intent_result(),
        r#"{"id":"01a1dea803707330800005a06ad96f6b","namespace":"default","goal":"hello","status":"fulfilled","priority":100,"visibility":"private","claim_attempts":1,"run_at":1794736915.312204,"claim_expires_at":null,"target_worker":null,"required_capability":null,"result_type":"json","result":{"greeting":"hello world"},"completed_at":1794736934.269918}"#,
    )
}

pub(in crate::intent) fn status() -> Operation {
    own("getStatus", "Read the state of an intent").answers(
        StatusCode::OK,
        "The intent as it is now.",
        schemas::intent_status(),
        r#"{"id":"01a1dea803707330800005a06ad96f6b","namespace":"default","goal":"hello","status":"open","priority":100,"visibility":"private","claim_attempts":0,"run_at":1794736915.312204,"claim_expires_at":null,"target_worker":null,"required_capability":null,"completed_at":null,"last_error":null}"#,
    )
}

pub(in crate::intent) fn list() -> Operation {
    let cursor = text()
        .about("Leads to the next page; null at the end. A page may be short and still have a next one.")
        .nullable();
    Operation::new(Tag::Read, Auth::Client, "listIntents", "List your intents")
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
                .about("How many at most.")
                .within(1, limits::PAGE_ITEMS_MAX)
                .by_default(limits::PAGE_ITEMS_MAX),
        )
        .query(
            "cursor",
            text()
                .about("The cursor of the page before.")
                .rule("pattern", "^[0-9]{1,19}$"),
        )
        .answers(
            StatusCode::OK,
            "One page.",
            exactly(vec![
                required("intents", list_of(schemas::intent_status())),
                required("cursor", cursor),
            ]),
            r#"{"intents":[],"cursor":null}"#,
        )
        .refuses(&[
            Code::InvalidNamespace,
            Code::InvalidStatus,
            Code::InvalidLimit,
            Code::InvalidCursor,
        ])
        .example_query("status=open&limit=10")
}

pub(in crate::intent) fn timeline() -> Operation {
    own("getTimeline", "Read what happened to an intent").answers(
        StatusCode::OK,
        "Its facts, oldest first.",
        exactly(vec![
            required("id", schemas::id()),
            required("facts", list_of(schemas::fact())),
        ]),
        r#"{"id":"01a1dea803707330800005a06ad96f6b","facts":[{"seq":1,"at":1794736915.312204,"verb":"admitted","from":null,"to":"open","cause":null,"attempt":0,"actor":"main","detail":null}]}"#,
    )
}

pub(in crate::intent) fn receipt() -> Operation {
    own("getReceipt", "Take the signed receipt")
        .about("There is one as soon as the intent is fulfilled or dead. Check it offline with `consign receipt verify`.")
        .answers(
            StatusCode::OK,
            "Signed with Ed25519; asking again gives the same bytes.",
            schemas::signed_receipt(),
            RECEIPT,
        )
        .refuses(&[Code::NotSettled])
}

pub(in crate::intent) fn verify_receipt() -> Operation {
    let genuine = exactly(vec![
        required("valid", boolean().always(true)),
        required("id", text().about("The receipt.")),
        required("intent", schemas::id()),
        required("key_id", text().about("The kid of the key that signed it.")),
        required(
            "standing",
            text()
                .about("What it is worth now: the last settlement; done again by an operator and not settled yet; followed by another settlement; or no record of it is left.")
                .one_of(["current", "reopened", "superseded", "unknown"]),
        ),
        required(
            "superseded_by",
            text()
                .about("The receipt of the settlement that followed.")
                .nullable(),
        ),
    ]);
    let other = exactly(vec![
        required("valid", boolean().always(false)),
        required("error", text().about("Why it proves nothing.")),
    ]);
    let document = anything()
        .about("The receipt, as it was handed out. Whatever else is sent is called no receipt.");
    Operation::new(Tag::Read, Auth::Open, "verifyReceipt", "Check a receipt and whether it still stands")
        .about("A receipt stays genuine for good, also after an operator cancelled or retried the intent. Whether that happened is told here, to whoever has the receipt.")
        .takes(document, RECEIPT_BYTES_MAX, RECEIPT)
        .answers(
            StatusCode::OK,
            "What was found; read `valid` first.",
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

pub(in crate::intent) fn events() -> Operation {
    let after = || {
        text()
            .about("Go on after this event; 0 begins with the oldest that is kept.")
            .rule("pattern", "^[0-9]{1,19}$")
    };
    Operation::new(Tag::Read, Auth::Client, "followEvents", "Follow your intents as they change")
        .about("Server-sent events. Reconnect with the last id you saw and you miss nothing. A comment every 15 seconds says that the stream is alive.")
        .query("after", after())
        .header("Last-Event-ID", after().about("As browsers send it when they reconnect; counts before after."))
        .answers_text(
            "A stream without an end. Each event's data is a fact with intent, namespace and goal added.",
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
