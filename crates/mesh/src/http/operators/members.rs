//! List, rename and revoke the members of a mesh, and set what a member lets others do.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use consign_web::reject::Reject;
use serde::{Deserialize, Serialize};

use super::{invalid, read, rejection, shown};
use crate::broker::MeshMember;
use crate::http::face::MeshFace;
use crate::id::DisplayName;
use crate::keys::MeshPublicKey;
use crate::query::QueryPairs;
use crate::role::{MemberRole, PeerGrant};

#[derive(Serialize)]
struct MemberBody {
    member_id: String,
    pubkey: MeshPublicKey,
    name: String,
    role: MemberRole,
    /// Milliseconds since 1970.
    joined_at: i64,
    revoked: bool,
    revoked_at: Option<i64>,
    /// The machine of the member's daemon, when it connected last.
    last_seen_host_fingerprint: Option<String>,
    clone_suspected_at: Option<i64>,
    grants: Vec<GrantsBody>,
}

/// What the member lets another one do, where it is not the default.
#[derive(Serialize)]
struct GrantsBody {
    member: MeshPublicKey,
    grants: Vec<PeerGrant>,
}

#[derive(Serialize)]
struct MemberListBody {
    members: Vec<MemberBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenameBody {
    name: DisplayName,
}

/// Without a list, the member may do what members may by default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetGrantsBody {
    member: MeshPublicKey,
    #[serde(default)]
    grants: Option<Vec<PeerGrant>>,
}

pub(super) fn routes() -> Router<MeshFace> {
    Router::new()
        .route("/v1/meshes/{slug}/members", get(list))
        .route("/v1/meshes/{slug}/members/{pubkey}/rename", post(rename))
        .route("/v1/meshes/{slug}/members/{pubkey}/revoke", post(revoke))
        .route("/v1/meshes/{slug}/members/{pubkey}/grants", post(grant))
}

/// Revoked members only with `?all=true`.
async fn list(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, parts, _) = face.authenticate_operator(request).await?;
    let query = QueryPairs::parse(parts.uri.query().unwrap_or_default());
    let all = query.get("all") == Some("true");
    let members = face.broker.members(operator, &slug).await;
    let members = members.map_err(rejection)?.into_iter();
    let members = members
        .filter(|member| all || member.revoked_at.is_none())
        .map(MemberBody::of)
        .collect();
    Ok(shown(&MemberListBody { members }))
}

async fn rename(
    State(face): State<MeshFace>,
    Path((slug, pubkey)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _, body) = face.authenticate_operator(request).await?;
    let RenameBody { name } = read(&body)?;
    let broker = &face.broker;
    let renamed = broker.rename_member(operator, &slug, key(&pubkey)?, &name);
    Ok(shown(&MemberBody::of(renamed.await.map_err(rejection)?)))
}

async fn revoke(
    State(face): State<MeshFace>,
    Path((slug, pubkey)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, ..) = face.authenticate_operator(request).await?;
    let revoked = face
        .broker
        .revoke_member(operator, &slug, key(&pubkey)?)
        .await;
    Ok(shown(&MemberBody::of(revoked.map_err(rejection)?)))
}

async fn grant(
    State(face): State<MeshFace>,
    Path((slug, pubkey)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _, body) = face.authenticate_operator(request).await?;
    let SetGrantsBody { member, grants } = read(&body)?;
    let broker = &face.broker;
    let changed = broker
        .grant_for(operator, &slug, key(&pubkey)?, member, grants.as_deref())
        .await;
    Ok(shown(&MemberBody::of(changed.map_err(rejection)?)))
}

fn key(text: &str) -> Result<MeshPublicKey, Reject> {
    let invalid_key = |_| invalid("The key of a member is 64 hex digits.");
    MeshPublicKey::parse(text).map_err(invalid_key)
}

impl MemberBody {
    fn of(member: MeshMember) -> Self {
        Self {
            member_id: member.id,
            pubkey: member.pubkey,
            name: member.display_name,
            role: member.role,
            joined_at: member.joined_at,
            revoked: member.revoked_at.is_some(),
            revoked_at: member.revoked_at,
            last_seen_host_fingerprint: member.last_seen_host_fingerprint,
            clone_suspected_at: member.clone_suspected_at,
            grants: member
                .grants
                .0
                .into_iter()
                .map(|(member, grants)| GrantsBody { member, grants })
                .collect(),
        }
    }
}
