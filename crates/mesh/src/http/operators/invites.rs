//! Create, list and revoke invites. The token of an invite is in the response that creates it, and nowhere else.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use consign_web::reject::Reject;
use serde::{Deserialize, Serialize};

use super::{created, invalid, read, rejection, shown};
use crate::broker::{MeshInvite, NewInvite};
use crate::http::face::MeshFace;
use crate::limits::{
    INVITE_SECONDS_DEFAULT, INVITE_SECONDS_MAX, INVITE_USES_DEFAULT, INVITE_USES_MAX,
};
use crate::role::MemberRole;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewInviteBody {
    role: Option<MemberRole>,
    uses: Option<u32>,
    valid_for_s: Option<u64>,
}

#[derive(Serialize)]
struct CreatedInviteBody {
    token: String,
    link: String,
    mesh_id: String,
    slug: String,
    role: MemberRole,
    uses: u32,
    /// Seconds since 1970, as in the token.
    expires_at: u64,
}

#[derive(Serialize)]
struct InviteBody {
    id: String,
    role: MemberRole,
    uses_max: u32,
    uses: u32,
    /// Seconds since 1970.
    expires_at: u64,
    revoked: bool,
}

#[derive(Serialize)]
struct InviteListBody {
    invites: Vec<InviteBody>,
}

pub(super) fn routes() -> Router<MeshFace> {
    Router::new()
        .route("/v1/meshes/{slug}/invites", get(list).post(create))
        .route("/v1/meshes/{slug}/invites/{id}/revoke", post(revoke))
}

async fn create(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _, body) = face.authenticate_operator(request).await?;
    let body: NewInviteBody = read(&body)?;
    let new = NewInvite {
        role: body.role.unwrap_or(MemberRole::Member),
        uses_max: body.uses.unwrap_or(INVITE_USES_DEFAULT),
        valid_for_s: body.valid_for_s.unwrap_or(INVITE_SECONDS_DEFAULT),
    };
    if !(1..=INVITE_USES_MAX).contains(&new.uses_max) {
        return Err(invalid(format!("uses must be 1 to {INVITE_USES_MAX}.")));
    }
    if !(1..=INVITE_SECONDS_MAX).contains(&new.valid_for_s) {
        let text = format!("valid_for_s must be 1 to {INVITE_SECONDS_MAX}.");
        return Err(invalid(text));
    }
    let invite = face.broker.invite(operator, &slug, new).await;
    let invite = invite.map_err(rejection)?;
    Ok(created(&CreatedInviteBody {
        token: invite.token(),
        link: invite.link(),
        mesh_id: invite.mesh_id,
        slug: invite.mesh_slug,
        role: invite.role,
        uses: new.uses_max,
        expires_at: invite.expires_at,
    }))
}

async fn list(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, ..) = face.authenticate_operator(request).await?;
    let invites = face.broker.invites(operator, &slug).await;
    let mut invites = invites.map_err(rejection)?;
    invites.sort_by_key(|invite| invite.expires_at_s);
    let invites = invites.into_iter().map(InviteBody::of).collect();
    Ok(shown(&InviteListBody { invites }))
}

async fn revoke(
    State(face): State<MeshFace>,
    Path((slug, id)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, ..) = face.authenticate_operator(request).await?;
    let invite = face.broker.revoke_invite(operator, &slug, &id).await;
    Ok(shown(&InviteBody::of(invite.map_err(rejection)?)))
}

impl InviteBody {
    fn of(invite: MeshInvite) -> Self {
        Self {
            id: invite.id,
            role: invite.role,
            uses_max: invite.uses_max,
            uses: invite.uses,
            expires_at: invite.expires_at_s,
            revoked: invite.is_revoked,
        }
    }
}
