//! Retention and the check for orphans, on demand.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use consign_kernel::ids::Micros;
use consign_web::reject::Reject;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{invalid, read, rejection, shown};
use crate::broker::NightlyRun;
use crate::http::face::MeshFace;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SweepBody {
    as_of: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
struct SweptBody {
    as_of: String,
    dry_run: bool,
    messages_pruned: u64,
    dedupe_expired: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrphanCheckBody {
    #[serde(default)]
    repair: bool,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
struct OrphanBody {
    mesh_id: String,
    client_message_id: String,
}

#[derive(Serialize)]
struct OrphanReportBody {
    checked: u64,
    found: u64,
    orphans: Vec<OrphanBody>,
    deliveries_without_message: u64,
    repaired: u64,
    dry_run: bool,
}

#[derive(Serialize)]
struct UpkeepBody {
    last_run: Option<NightlyRunBody>,
}

#[derive(Serialize)]
struct NightlyRunBody {
    started_at: String,
    finished_at: Option<String>,
    messages_pruned: u64,
    dedupe_expired: u64,
    ids_checked: u64,
    orphans_found: u64,
}

pub(super) fn routes() -> Router<MeshFace> {
    Router::new()
        .route("/v1/mesh/upkeep", get(last_run))
        .route("/v1/mesh/sweep", post(sweep))
        .route("/v1/mesh/orphan-check", post(check_orphans))
}

async fn last_run(State(face): State<MeshFace>, request: Request) -> Result<Response, Reject> {
    face.authenticate_operator(request).await?;
    let run = face.broker.last_nightly_run().await.map_err(rejection)?;
    let last_run = run.as_ref().map(NightlyRunBody::of);
    Ok(shown(&UpkeepBody { last_run }))
}

async fn sweep(State(face): State<MeshFace>, request: Request) -> Result<Response, Reject> {
    let (operator, _, body) = face.authenticate_operator(request).await?;
    let body: SweepBody = read(&body)?;
    let as_of = match &body.as_of {
        Some(text) => time(text)?,
        None => face.broker.wall(),
    };
    let swept = face.broker.sweep(operator, as_of, body.dry_run).await;
    let swept = swept.map_err(rejection)?;
    Ok(shown(&SweptBody {
        as_of: text(as_of),
        dry_run: body.dry_run,
        messages_pruned: swept.messages_pruned,
        dedupe_expired: swept.dedupe_expired,
    }))
}

/// A dry run of a repair is the check alone.
async fn check_orphans(State(face): State<MeshFace>, request: Request) -> Result<Response, Reject> {
    let (operator, _, body) = face.authenticate_operator(request).await?;
    let body: OrphanCheckBody = read(&body)?;
    let repairs = body.repair && !body.dry_run;
    let report = face.broker.check_orphans(operator, repairs).await;
    let report = report.map_err(rejection)?;
    let orphans = report.orphans.into_iter().map(|orphan| OrphanBody {
        mesh_id: orphan.mesh_id,
        client_message_id: orphan.client_message_id,
    });
    Ok(shown(&OrphanReportBody {
        checked: report.checked,
        found: report.found,
        orphans: orphans.collect(),
        deliveries_without_message: report.deliveries_without_message,
        repaired: report.repaired,
        dry_run: !repairs,
    }))
}

fn time(text: &str) -> Result<Micros, Reject> {
    let at: Result<Timestamp, _> = text.parse();
    let at = at.map_err(|_| invalid("as_of must be a time such as 2027-01-31T00:00:00Z."))?;
    Ok(Micros(at.as_microsecond()))
}

fn text(at: Micros) -> String {
    Timestamp::from_microsecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

impl NightlyRunBody {
    fn of(run: &NightlyRun) -> Self {
        Self {
            started_at: text(Micros(run.started_at)),
            finished_at: run.finished_at.map(|at| text(Micros(at))),
            messages_pruned: run.messages_pruned,
            dedupe_expired: run.dedupe_expired,
            ids_checked: run.ids_checked,
            orphans_found: run.orphans_found,
        }
    }
}
