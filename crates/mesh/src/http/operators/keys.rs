//! Create, list and revoke API keys. The text of a key is in the response that creates it, and nowhere else.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use consign_web::reject::Reject;
use serde::{Deserialize, Serialize};

use super::{created, invalid, read, rejection, shown};
use crate::broker::{MeshApiKey, NewMeshApiKey};
use crate::http::face::MeshFace;
use crate::id::TopicName;
use crate::keys::MeshPublicKey;
use crate::limits::{API_KEY_LABEL_CHARS_MAX, API_KEY_TOPICS_MAX};
use crate::role::{ApiCapability, ApiScope};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKeyBody {
    member: MeshPublicKey,
    capabilities: Vec<ApiCapability>,
    topics: Option<Vec<TopicName>>,
    #[serde(default)]
    label: String,
}

#[derive(Serialize)]
struct CreatedKeyBody {
    key: String,
    #[serde(flatten)]
    shown: KeyBody,
}

#[derive(Serialize)]
struct KeyBody {
    id: String,
    member_id: String,
    label: String,
    capabilities: Vec<ApiCapability>,
    topics: Option<Vec<TopicName>>,
    /// Milliseconds since 1970.
    created_at: i64,
    revoked: bool,
}

#[derive(Serialize)]
struct KeyListBody {
    keys: Vec<KeyBody>,
}

pub(super) fn routes() -> Router<MeshFace> {
    Router::new()
        .route("/v1/meshes/{slug}/keys", get(list).post(create))
        .route("/v1/meshes/{slug}/keys/{id}/revoke", post(revoke))
}

async fn create(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _, body) = face.authenticate_operator(request).await?;
    let body: NewKeyBody = read(&body)?;
    if body.capabilities.is_empty() {
        return Err(invalid("capabilities must name at least one."));
    }
    let topics = body.topics.as_ref().map_or(0, Vec::len);
    if topics > API_KEY_TOPICS_MAX {
        let text = format!("topics must be at most {API_KEY_TOPICS_MAX}.");
        return Err(invalid(text));
    }
    let is_label = !body.label.chars().any(char::is_control);
    if !is_label || body.label.chars().count() > API_KEY_LABEL_CHARS_MAX {
        let text = format!("label must have at most {API_KEY_LABEL_CHARS_MAX} characters.");
        return Err(invalid(text));
    }
    let new = NewMeshApiKey {
        member: body.member,
        label: body.label,
        scope: ApiScope {
            capabilities: body.capabilities,
            topics: body.topics,
        },
    };
    let made = face.broker.create_api_key(operator, &slug, new).await;
    let (key, shown) = made.map_err(rejection)?;
    Ok(created(&CreatedKeyBody {
        key: key.to_string(),
        shown: KeyBody::of(shown),
    }))
}

async fn list(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, ..) = face.authenticate_operator(request).await?;
    let keys = face.broker.api_keys(operator, &slug).await;
    let keys = keys.map_err(rejection)?.into_iter().map(KeyBody::of);
    Ok(shown(&KeyListBody {
        keys: keys.collect(),
    }))
}

async fn revoke(
    State(face): State<MeshFace>,
    Path((slug, id)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, ..) = face.authenticate_operator(request).await?;
    let key = face.broker.revoke_api_key(operator, &slug, &id).await;
    Ok(shown(&KeyBody::of(key.map_err(rejection)?)))
}

impl KeyBody {
    fn of(key: MeshApiKey) -> Self {
        Self {
            id: key.id,
            member_id: key.member_id,
            label: key.label,
            capabilities: key.scope.capabilities,
            topics: key.scope.topics,
            created_at: key.created_at,
            revoked: key.is_revoked,
        }
    }
}
