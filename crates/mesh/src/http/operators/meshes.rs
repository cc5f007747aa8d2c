//! Create, list and show meshes.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use consign_web::reject::Reject;
use serde::{Deserialize, Serialize};

use super::{created, invalid, read, rejection, shown};
use crate::broker::{DedupeRetention, MeshRecord, NewMesh};
use crate::http::face::MeshFace;
use crate::id::{DisplayName, MeshSlug};
use crate::keys::MeshPublicKey;
use crate::limits::{
    DEDUPE_DAYS_DEFAULT, DEDUPE_DAYS_MIN, MESSAGE_DAYS_DEFAULT, RETENTION_DAYS_MAX,
};
use crate::role::{ClonePolicy, DedupeMode};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewMeshBody {
    slug: MeshSlug,
    name: Option<DisplayName>,
    dedupe_mode: Option<DedupeMode>,
    dedupe_days: Option<u32>,
    message_days: Option<u32>,
    clone_policy: Option<ClonePolicy>,
}

/// A mesh without its secrets.
#[derive(Serialize)]
struct MeshBody<'a> {
    mesh_id: &'a str,
    slug: &'a str,
    name: &'a str,
    owner_pubkey: MeshPublicKey,
    clone_policy: ClonePolicy,
    dedupe_mode: DedupeMode,
    dedupe_days: Option<u32>,
    message_days: u32,
    /// Milliseconds since 1970.
    created_at: i64,
}

#[derive(Serialize)]
struct MeshListBody<'a> {
    meshes: Vec<MeshBody<'a>>,
}

pub(super) fn routes() -> Router<MeshFace> {
    Router::new()
        .route("/v1/meshes", get(list).post(create))
        .route("/v1/meshes/{slug}", get(show))
}

async fn create(State(face): State<MeshFace>, request: Request) -> Result<Response, Reject> {
    let (operator, _, body) = face.authenticate_operator(request).await?;
    let new = new_mesh(read(&body)?)?;
    let mesh = face.broker.create_mesh(operator, new).await;
    Ok(created(&MeshBody::of(&mesh.map_err(rejection)?)))
}

async fn list(State(face): State<MeshFace>, request: Request) -> Result<Response, Reject> {
    let (operator, ..) = face.authenticate_operator(request).await?;
    let meshes = face.broker.meshes(operator).await.map_err(rejection)?;
    let meshes = meshes.iter().map(MeshBody::of).collect();
    Ok(shown(&MeshListBody { meshes }))
}

async fn show(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    face.authenticate_operator(request).await?;
    let mesh = face.broker.mesh_by_slug(&slug).await.map_err(rejection)?;
    Ok(shown(&MeshBody::of(&mesh)))
}

fn new_mesh(body: NewMeshBody) -> Result<NewMesh, Reject> {
    let dedupe = match (body.dedupe_mode, body.dedupe_days) {
        (Some(DedupeMode::Permanent), None) => DedupeRetention::Permanent,
        (Some(DedupeMode::Permanent), Some(_)) => {
            return Err(invalid("dedupe_days has no meaning in the mode permanent."));
        }
        (None | Some(DedupeMode::RetentionScoped), days) => {
            let days = days.unwrap_or(DEDUPE_DAYS_DEFAULT);
            if !(DEDUPE_DAYS_MIN..=RETENTION_DAYS_MAX).contains(&days) {
                let rule = format!("{DEDUPE_DAYS_MIN} to {RETENTION_DAYS_MAX}");
                return Err(invalid(format!("dedupe_days must be {rule}.")));
            }
            DedupeRetention::Days(days)
        }
    };
    let message_days = body.message_days.unwrap_or(MESSAGE_DAYS_DEFAULT);
    if !(1..=RETENTION_DAYS_MAX).contains(&message_days) {
        let text = format!("message_days must be 1 to {RETENTION_DAYS_MAX}.");
        return Err(invalid(text));
    }
    let name = match body.name {
        Some(name) => name,
        None => DisplayName::parse(body.slug.as_str()).map_err(invalid)?,
    };
    Ok(NewMesh {
        slug: body.slug,
        name,
        clone_policy: body.clone_policy.unwrap_or(ClonePolicy::PreferNewest),
        dedupe,
        message_days,
    })
}

impl<'a> MeshBody<'a> {
    fn of(mesh: &'a MeshRecord) -> Self {
        let (dedupe_mode, dedupe_days) = match mesh.dedupe {
            DedupeRetention::Days(days) => (DedupeMode::RetentionScoped, Some(days)),
            DedupeRetention::Permanent => (DedupeMode::Permanent, None),
        };
        Self {
            mesh_id: &mesh.id,
            slug: &mesh.slug,
            name: &mesh.name,
            owner_pubkey: mesh.owner_pubkey,
            clone_policy: mesh.clone_policy,
            dedupe_mode,
            dedupe_days,
            message_days: mesh.message_days,
            created_at: mesh.created_at,
        }
    }
}
