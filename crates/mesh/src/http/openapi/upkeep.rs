//! Retention and the check for orphans.

use consign_web::openapi::schema::{boolean, list, object, optional, required, text};
use consign_web::openapi::{Endpoint, Operation};

use super::operation::{MeshOperation as _, get, post};
use super::operators::operation;
use super::schemas::count;

pub(super) fn all() -> Vec<Endpoint> {
    vec![
        get("/v1/mesh/upkeep", last_run()),
        post("/v1/mesh/sweep", sweep()),
        post("/v1/mesh/orphan-check", orphan_check()),
    ]
}

fn last_run() -> Operation {
    let run = object(vec![
        required("started_at", text().rule("format", "date-time")),
        required("finished_at", text().rule("format", "date-time").nullable()),
        required("messages_pruned", count()),
        required("dedupe_expired", count()),
        required("ids_checked", count()),
        required("orphans_found", count()),
    ]);
    let run = run.named("MeshNightlyRun").nullable();
    operation("meshUpkeep", "Get the last daily run of the retention").shows(
        "The last run of any node.",
        object(vec![required("last_run", run)]).named("MeshUpkeep"),
    )
}

fn sweep() -> Operation {
    let body = object(vec![
        optional(
            "as_of",
            text().rule("format", "date-time").about("Instead of now."),
        ),
        optional("dry_run", boolean().by_default(false)),
    ]);
    let swept = object(vec![
        required("as_of", text().rule("format", "date-time")),
        required("dry_run", boolean()),
        required("messages_pruned", count()),
        required("dedupe_expired", count()),
    ]);
    operation(
        "meshSweep",
        "Remove messages and ids that are past their retention",
    )
    .about("The server does the same once a day.")
    .reads(body.named("MeshSweepRequest"), r#"{"dry_run":true}"#)
    .shows("What was removed, or would be.", swept.named("MeshSwept"))
}

fn orphan_check() -> Operation {
    let body = object(vec![
        optional("repair", boolean().by_default(false)),
        optional("dry_run", boolean().by_default(false)),
    ]);
    let orphan = object(vec![
        required("mesh_id", text()),
        required("client_message_id", text()),
    ]);
    let report = object(vec![
        required("checked", count()),
        required("found", count()),
        required("orphans", list(orphan.named("MeshOrphan"))),
        required("deliveries_without_message", count()),
        required("repaired", count()),
        required("dry_run", boolean()),
    ]);
    operation(
        "meshOrphanCheck",
        "Look for ids whose message does not exist",
    )
    .about("A repair only marks such ids as without history.")
    .reads(body.named("MeshOrphanCheckRequest"), "{}")
    .shows("What was found.", report.named("MeshOrphanReport"))
}
