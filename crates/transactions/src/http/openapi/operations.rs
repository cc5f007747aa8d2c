//! All operations: for agents, for readers and for operators.

use crate::document::{NOTE_BYTES_MAX, REQUEST_BYTES_MAX, VERIFY_BYTES_MAX};
use consign_web::openapi::Endpoint;
use consign_web::openapi::schema::{integer, text};

use super::operation::{AtpEndpoint as _, get, post};
use super::states;
use crate::http::CALLBACK_BYTES_MAX;

pub(super) fn all() -> Vec<Endpoint> {
    let all = agents().into_iter().chain(readers()).chain(operators());
    all.collect()
}

fn agents() -> Vec<Endpoint> {
    vec![
        post(
            "/api/atp/intents",
            "atpCreate",
            "Create an intent from a signed document",
        )
        .requires_body("AtpIntentDocument", REQUEST_BYTES_MAX)
        .answers(201, "AtpCreated")
        .answers(200, "AtpCreated")
        .refuses(&[401, 403, 409, 410, 429]),
        post(
            "/api/atp/authorize",
            "atpAuthorize",
            "Authorize an intent and use its nonce",
        )
        .with_idempotency_key()
        .requires_body("AtpAuthorize", REQUEST_BYTES_MAX)
        .answers(200, "AtpAuthorized")
        .refuses(&[401, 403, 404, 409, 410, 412, 425, 429]),
        post(
            "/api/atp/execute",
            "atpExecute",
            "Execute a transaction, once per idempotency key",
        )
        .with_idempotency_key()
        .requires_body("AtpExecute", REQUEST_BYTES_MAX)
        .answers(200, "AtpTransaction")
        .answers(202, "AtpTransaction")
        .refuses(&[401, 403, 404, 409, 410, 429]),
        post(
            "/api/atp/compensate",
            "atpCompensate",
            "Compensate a transaction",
        )
        .with_idempotency_key()
        .requires_body("AtpCompensate", NOTE_BYTES_MAX)
        .answers(200, "AtpTransaction")
        .answers(202, "AtpTransaction")
        .refuses(&[401, 403, 404, 409, 410, 429]),
        post(
            "/api/atp/cancel",
            "atpCancel",
            "Cancel an intent before an execution",
        )
        .requires_body("AtpCancel", NOTE_BYTES_MAX)
        .answers(200, "AtpCancelled")
        .refuses(&[401, 403, 404, 409, 410]),
        post(
            "/api/atp/transactions/{transaction_id}/compensate",
            "atpCompensateNamed",
            "Compensate a transaction; the path implies intent_id and transaction_id",
        )
        .with_idempotency_key()
        .allows_body("AtpMessage", NOTE_BYTES_MAX)
        .answers(200, "AtpTransaction")
        .answers(202, "AtpTransaction")
        .refuses(&[401, 404, 409, 410, 429]),
        post(
            "/api/atp/intents/{intent_id}/revoke",
            "atpRevoke",
            "Cancel an intent; the path implies intent_id",
        )
        .allows_body("AtpMessage", NOTE_BYTES_MAX)
        .answers(200, "AtpCancelled")
        .refuses(&[401, 404, 409, 410]),
        post(
            "/api/atp/rails/{rail}/callback",
            "atpCallback",
            "Receive a callback of a payment rail",
        )
        .requires_body("AtpMessage", CALLBACK_BYTES_MAX)
        .answers(200, "AtpDone")
        .refuses(&[404]),
    ]
}

fn readers() -> Vec<Endpoint> {
    vec![
        get(
            "/api/atp/intents/{intent_id}",
            "atpIntent",
            "Get an intent and its transactions",
        )
        .answers(200, "AtpIntent")
        .refuses(&[404]),
        get(
            "/api/atp/intents/{intent_id}/receipts",
            "atpReceipts",
            "Get the receipts of an intent",
        )
        .answers(200, "AtpReceipts")
        .refuses(&[404]),
        get(
            "/api/atp/transactions/{transaction_id}",
            "atpTransaction",
            "Get a transaction",
        )
        .answers(200, "AtpTransaction")
        .refuses(&[404]),
        get(
            "/api/atp/receipts/{receipt_id}",
            "atpReceipt",
            "Get a receipt",
        )
        .answers(200, "AtpReceipt")
        .refuses(&[404, 429]),
        post("/api/atp/receipts/verify", "atpVerify", "Verify a receipt")
            .requires_body("AtpMessage", VERIFY_BYTES_MAX)
            .answers(200, "AtpVerification")
            .refuses(&[404, 429]),
        get("/api/atp/keys", "atpKeys", "Get the site's keys").answers(200, "AtpKeys"),
        get("/api/atp/health", "atpHealth", "Get the health of the site").answers(200, "AtpHealth"),
        get(
            "/.well-known/wab.json",
            "atpManifest",
            "Get the site's signed manifest",
        )
        .answers(200, "AtpManifest"),
        get(
            "/.well-known/wab-revocations.json",
            "atpRevocations",
            "Get the signed list of revoked keys",
        )
        .answers(200, "AtpRevocations"),
    ]
}

fn operators() -> Vec<Endpoint> {
    // A limit beyond the page size is not an error: the page is shorter.
    let count = integer().rule("minimum", 0);
    let states = text().one_of(states());
    vec![
        get("/api/atp/intents", "atpIntents", "List the latest intents")
            .for_operators()
            .query("limit", &count)
            .query("offset", &count)
            .query("from", &count)
            .answers(200, "AtpIntents"),
        get(
            "/api/atp/admin/transactions",
            "atpTransactions",
            "List transactions, open ones first",
        )
        .for_operators()
        .query("limit", &count)
        .query("from", &count)
        .query("state", &states)
        .answers(200, "AtpTransactions"),
        post(
            "/api/atp/admin/transactions/{transaction_id}/resolve",
            "atpResolve",
            "Record the outcome of an effect that the rail cannot report",
        )
        .for_operators()
        .requires_body("AtpWord", NOTE_BYTES_MAX)
        .answers(200, "AtpResolved")
        .refuses(&[404, 409]),
        get(
            "/api/atp/admin/audit",
            "atpAudit",
            "Read the log of transitions",
        )
        .for_operators()
        .query("after", &count)
        .answers(200, "AtpTransitions"),
        post(
            "/api/atp/admin/reconcile",
            "atpReconcile",
            "Check open transactions now",
        )
        .for_operators()
        .answers(200, "AtpSwept"),
        post(
            "/api/atp/admin/keys/announce",
            "atpAnnounceKey",
            "Announce the next key before it signs",
        )
        .for_operators()
        .answers(200, "AtpAnnounced"),
        post(
            "/api/atp/admin/keys/rotate",
            "atpRotateKey",
            "Rotate to the announced key, or to a new one",
        )
        .for_operators()
        .allows_body("AtpReason", NOTE_BYTES_MAX)
        .answers(200, "AtpRotated"),
        post(
            "/api/atp/admin/keys/{key_id}/revoke",
            "atpRevokeKey",
            "Revoke a key",
        )
        .for_operators()
        .allows_body("AtpReason", NOTE_BYTES_MAX)
        .answers(200, "AtpRevoked")
        .refuses(&[404]),
    ]
}
