//! Every operation, for agents, for readers and for operators.

use consign_transactions::document::{NOTE_BYTES_MAX, REQUEST_BYTES_MAX, VERIFY_BYTES_MAX};
use serde_json::{Value, json};

use super::operation::Told;
use super::states;
use crate::transaction::CALLBACK_BYTES_MAX;

pub(super) fn all() -> impl Iterator<Item = (String, &'static str, Value)> {
    let all = agents().into_iter().chain(readers()).chain(operators());
    all.map(|told| (told.path.to_owned(), told.method, told.told()))
}

fn agents() -> Vec<Told> {
    vec![
        Told::post("/api/atp/intents", "atpCreate", "Present a signed intent")
            .takes("AtpIntentDocument", REQUEST_BYTES_MAX)
            .answers(201, "AtpCreated")
            .answers(200, "AtpCreated")
            .refuses(&[401, 403, 409, 410, 429]),
        Told::post(
            "/api/atp/authorize",
            "atpAuthorize",
            "Record consent and burn the nonce",
        )
        .once()
        .takes("AtpAuthorize", REQUEST_BYTES_MAX)
        .answers(200, "AtpAuthorized")
        .refuses(&[401, 403, 404, 409, 410, 412, 425, 429]),
        Told::post("/api/atp/execute", "atpExecute", "Have the effect, once")
            .once()
            .takes("AtpExecute", REQUEST_BYTES_MAX)
            .answers(200, "AtpTransaction")
            .answers(202, "AtpTransaction")
            .refuses(&[401, 403, 404, 409, 410, 429]),
        Told::post(
            "/api/atp/compensate",
            "atpCompensate",
            "Have the effect undone",
        )
        .once()
        .takes("AtpCompensate", NOTE_BYTES_MAX)
        .answers(200, "AtpTransaction")
        .answers(202, "AtpTransaction")
        .refuses(&[401, 403, 404, 409, 410, 429]),
        Told::post(
            "/api/atp/cancel",
            "atpCancel",
            "Take an intent back before anything is done",
        )
        .takes("AtpCancel", NOTE_BYTES_MAX)
        .answers(200, "AtpCancelled")
        .refuses(&[401, 403, 404, 409, 410]),
        Told::post(
            "/api/atp/transactions/{transaction_id}/compensate",
            "atpCompensateNamed",
            "Have the effect undone; the path may stand for intent_id and transaction_id",
        )
        .once()
        .may_take("AtpMessage", NOTE_BYTES_MAX)
        .answers(200, "AtpTransaction")
        .answers(202, "AtpTransaction")
        .refuses(&[401, 404, 409, 410, 429]),
        Told::post(
            "/api/atp/intents/{intent_id}/revoke",
            "atpRevoke",
            "Take an intent back; the path may stand for intent_id",
        )
        .may_take("AtpMessage", NOTE_BYTES_MAX)
        .answers(200, "AtpCancelled")
        .refuses(&[401, 404, 409, 410]),
        Told::post(
            "/api/atp/rails/{rail}/callback",
            "atpCallback",
            "A payment rail tells that it has news",
        )
        .takes("AtpMessage", CALLBACK_BYTES_MAX)
        .answers(200, "AtpDone")
        .refuses(&[404]),
    ]
}

fn readers() -> Vec<Told> {
    vec![
        Told::get(
            "/api/atp/intents/{intent_id}",
            "atpIntent",
            "See an intent and its transactions",
        )
        .answers(200, "AtpIntent")
        .refuses(&[404]),
        Told::get(
            "/api/atp/intents/{intent_id}/receipts",
            "atpReceipts",
            "See the receipts under an intent",
        )
        .answers(200, "AtpReceipts")
        .refuses(&[404]),
        Told::get(
            "/api/atp/transactions/{transaction_id}",
            "atpTransaction",
            "See a transaction",
        )
        .answers(200, "AtpTransaction")
        .refuses(&[404]),
        Told::get(
            "/api/atp/receipts/{receipt_id}",
            "atpReceipt",
            "See a receipt",
        )
        .answers(200, "AtpReceipt")
        .refuses(&[404, 429]),
        Told::post(
            "/api/atp/receipts/verify",
            "atpVerify",
            "Ask what a document proves",
        )
        .takes("AtpMessage", VERIFY_BYTES_MAX)
        .answers(200, "AtpVerification")
        .refuses(&[404, 429]),
        Told::get("/api/atp/keys", "atpKeys", "Fetch the site's keys").answers(200, "AtpKeys"),
        Told::get("/api/atp/health", "atpHealth", "Ask whether it is well")
            .answers(200, "AtpHealth"),
        Told::get(
            "/.well-known/wab.json",
            "atpManifest",
            "Fetch the site's signed manifest",
        )
        .answers(200, "AtpManifest"),
        Told::get(
            "/.well-known/wab-revocations.json",
            "atpRevocations",
            "Fetch the signed list of revoked keys",
        )
        .answers(200, "AtpRevocations"),
    ]
}

fn operators() -> Vec<Told> {
    // More than a page holds is no error: a page is what comes.
    let count = json!({"type": "integer", "minimum": 0});
    let states = json!({"type": "string", "enum": states()});
    vec![
        Told::get("/api/atp/intents", "atpIntents", "List the latest intents")
            .guarded()
            .query("limit", &count)
            .query("offset", &count)
            .query("from", &count)
            .answers(200, "AtpIntents"),
        Told::get(
            "/api/atp/admin/transactions",
            "atpTransactions",
            "List transactions, open ones first",
        )
        .guarded()
        .query("limit", &count)
        .query("from", &count)
        .query("state", &states)
        .answers(200, "AtpTransactions"),
        Told::post(
            "/api/atp/admin/transactions/{transaction_id}/resolve",
            "atpResolve",
            "Say what became of an effect that no rail can tell",
        )
        .guarded()
        .takes("AtpWord", NOTE_BYTES_MAX)
        .answers(200, "AtpResolved")
        .refuses(&[404, 409]),
        Told::get(
            "/api/atp/admin/audit",
            "atpAudit",
            "Read the log of transitions",
        )
        .guarded()
        .query("after", &count)
        .answers(200, "AtpTransitions"),
        Told::post(
            "/api/atp/admin/reconcile",
            "atpReconcile",
            "Look at open transactions now",
        )
        .guarded()
        .answers(200, "AtpSwept"),
        Told::post(
            "/api/atp/admin/keys/announce",
            "atpAnnounceKey",
            "Make the next key known before it signs",
        )
        .guarded()
        .answers(200, "AtpAnnounced"),
        Told::post(
            "/api/atp/admin/keys/rotate",
            "atpRotateKey",
            "Sign with the announced key, or with a new one",
        )
        .guarded()
        .may_take("AtpReason", NOTE_BYTES_MAX)
        .answers(200, "AtpRotated"),
        Told::post(
            "/api/atp/admin/keys/{key_id}/revoke",
            "atpRevokeKey",
            "Vouch for a key no more",
        )
        .guarded()
        .may_take("AtpReason", NOTE_BYTES_MAX)
        .answers(200, "AtpRevoked")
        .refuses(&[404]),
    ]
}
