//! The outbox, the profile, keys, settings, and the end of the daemon.

use consign_web::openapi::schema::{
    SchemaField, boolean, integer, list, object, optional, required, text,
};
use consign_web::openapi::{Endpoint, Operation};

use super::operation::{LocalOperation as _, endpoint, operation};
use super::{OPERATING, schemas};
use crate::ipc::IpcRoute;
use crate::limits::{OUTBOX_PAGE_DEFAULT, OUTBOX_PAGE_MAX};
use crate::outbox::OutboxStatus;

pub(super) fn all() -> Vec<Endpoint> {
    vec![
        endpoint(IpcRoute::Outbox, outbox()),
        endpoint(IpcRoute::OutboxRequeue, requeue()),
        endpoint(IpcRoute::OutboxDrop, drop_row()),
        endpoint(IpcRoute::OutboxPrune, prune()),
        endpoint(IpcRoute::Profile, profile()),
        endpoint(IpcRoute::Heartbeat, heartbeat()),
        endpoint(IpcRoute::TokenRotate, rotate_token()),
        endpoint(IpcRoute::KeypairRotate, rotate_keypair()),
        endpoint(IpcRoute::ArchiveCleanup, clean_up()),
        endpoint(IpcRoute::Reload, reload()),
        endpoint(IpcRoute::Shutdown, shut_down()),
    ]
}

fn ok() -> SchemaField {
    required("ok", boolean().always(true))
}

fn outbox() -> Operation {
    let rows = object(vec![required("items", list(schemas::outbox_row()))]);
    operation(OPERATING, "listOutbox", "List rows to send, newest first")
        .query(
            "status",
            text().one_of(OutboxStatus::ALL.iter().map(|status| status.as_str())),
        )
        .query("id", text().about("One row, by its id or by that of its message."))
        .query(
            "limit",
            integer()
                .clamped_to(1, OUTBOX_PAGE_MAX)
                .by_default(OUTBOX_PAGE_DEFAULT),
        )
        .shows(
            "The rows.",
            rows.named("OutboxRows"),
            r#"{"items":[{"id":"0193a5b4-7e10-7d3c-a1f0-2b9c4d5e6f70","client_message_id":"disk-7","status":"done","attempts":1,"enqueued_at":"2026-01-01T00:00:00.000Z","next_attempt_at":"2026-01-01T00:00:00.000Z","delivered_at":"2026-01-01T00:00:00.250Z","broker_message_id":"01a1dea84e057f0880000abe27861073","last_error":null,"aborted_at":null,"aborted_by":null,"superseded_by":null,"destination_kind":"intent","destination_ref":"mail","payload_bytes":40,"request_fingerprint":"0b7a2f4c7648d18269dd9f0bbe21f9a6aeaec99172ae5cf8e2c610baa1dc0316"}]}"#,
        )
        .refuses_with(&[503])
}

fn requeue() -> Operation {
    let body = object(vec![
        required("id", text().about("The row to retire.")),
        optional("new_client_message_id", schemas::message_id().nullable()),
        optional("aborted_by", text().nullable()),
        optional(
            "message",
            text()
                .nullable()
                .about("Another body; for an intent another payload, as JSON text."),
        ),
    ]);
    let answer = object(vec![
        required("aborted_row_id", text()),
        required("new_row_id", text()),
        required("new_client_message_id", schemas::message_id()),
    ]);
    operation(
        OPERATING,
        "requeueRow",
        "Retire a row and send it under a new id",
    )
    .about("409 if the row is absent, delivered or retired, or the new id has a row.")
    .reads(
        body.named("Requeue"),
        r#"{"id":"0193a5b4-7e10-7d3c-a1f0-2b9c4d5e6f70","new_client_message_id":"disk-8"}"#,
    )
    .shows(
        "The new row.",
        answer.named("Requeued"),
        r#"{"aborted_row_id":"0193a5b4-7e10-7d3c-a1f0-2b9c4d5e6f70","new_row_id":"0193a5b4-8000-7d3c-a1f0-2b9c4d5e6f70","new_client_message_id":"disk-8"}"#,
    )
    .refuses_with(&[409, 503, 507])
}

fn drop_row() -> Operation {
    let body = object(vec![required("id", text().about("The row."))]);
    let answer = object(vec![required("dropped_row_id", text())]);
    operation(OPERATING, "dropRow", "Retire a row without sending it")
        .reads(
            body.named("Drop"),
            r#"{"id":"0193a5b4-7e10-7d3c-a1f0-2b9c4d5e6f70"}"#,
        )
        .shows("It is retired.", answer.named("Dropped"), "")
        .refuses_with(&[409, 503, 507])
}

fn prune() -> Operation {
    let body = object(vec![required("confirm", boolean().always(true))]);
    let answer = object(vec![required("pruned", schemas::count())]);
    operation(
        OPERATING,
        "pruneOutbox",
        "Remove delivered rows past their retention",
    )
    .about("Their ids stay used.")
    .reads(body.named("Prune"), r#"{"confirm":true}"#)
    .shows("The number of rows.", answer.named("Pruned"), "")
    .refuses_with(&[503, 507])
}

fn profile() -> Operation {
    let body = object(vec![
        optional("summary", text().nullable()),
        optional("status", schemas::peer_status().nullable()),
        optional("visible", boolean().nullable()),
    ])
    .rule("minProperties", 1);
    let applied = object(vec![ok(), required("applied", list(text()))]);
    operation(
        OPERATING,
        "changeProfile",
        "Change what other members see of this one",
    )
    .reads(body.named("Profile"), r#"{"status":"working"}"#)
    .shows("What was changed.", applied.named("ProfileChanged"), "")
    .refuses_with(&[404, 503, 504])
}

fn heartbeat() -> Operation {
    operation(OPERATING, "heartbeat", "Do nothing").shows(
        "The daemon runs.",
        object(vec![ok()]).named("Done"),
        "",
    )
}

fn rotate_token() -> Operation {
    let rotated = object(vec![ok(), required("rotated_at", schemas::time())]);
    operation(OPERATING, "rotateToken", "Replace the local token")
        .about("The old token is valid for 60 more seconds.")
        .shows(
            "The new token is in its file.",
            rotated.named("TokenRotated"),
            "",
        )
        .refuses_with(&[503])
}

fn rotate_keypair() -> Operation {
    let rotated = object(vec![
        required("old_pubkey", schemas::pubkey()),
        required("new_pubkey", schemas::pubkey()),
        required("key_id", text()),
    ]);
    operation(OPERATING, "rotateKeypair", "Replace the keys of the member")
        .about("409 `outbox_not_empty` while messages wait.")
        .shows("The new keys.", rotated.named("KeypairRotated"), "")
        .refuses_with(&[409, 503, 504])
}

fn clean_up() -> Operation {
    let removed = object(vec![
        required("removed", schemas::count()),
        required("left", schemas::count()),
    ]);
    operation(
        OPERATING,
        "cleanUpArchive",
        "Remove replaced keys that have expired",
    )
    .shows("The number of keys.", removed.named("ArchiveCleaned"), "")
    .refuses_with(&[503])
}

fn reload() -> Operation {
    let reloaded = object(vec![ok(), required("reloaded_at", schemas::time())]);
    operation(OPERATING, "reload", "Read config.toml and hooks.toml again").shows(
        "The settings apply.",
        reloaded.named("Reloaded"),
        "",
    )
}

fn shut_down() -> Operation {
    let ended = object(vec![ok(), required("pid", schemas::count())]);
    operation(OPERATING, "shutDown", "End the daemon")
        .about("Over the socket file only.")
        .shows("It ends after its requests.", ended.named("ShutDown"), "")
}
