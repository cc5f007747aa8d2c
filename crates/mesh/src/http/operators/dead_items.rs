//! Items of queues that no worker finished.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use consign_web::reject::Reject;
use serde_json::json;

use super::reads::limit;
use super::{rejection, shown};
use crate::http::face::MeshFace;
use crate::query::QueryPairs;

pub(super) fn routes() -> Router<MeshFace> {
    Router::new()
        .route("/v1/meshes/{slug}/dead", get(list))
        .route("/v1/meshes/{slug}/dead/{id}/requeue", post(requeue))
}

/// A limit out of its range is clamped.
async fn list(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, parts, _) = face.authenticate_operator(request).await?;
    let query = QueryPairs::parse(parts.uri.query().unwrap_or_default());
    let items = face
        .broker
        .dead_items(operator, &slug, limit(&query)?)
        .await;
    let items = items.map_err(rejection)?;
    let items = items.iter().map(|item| {
        json!({
            "item_id": item.id,
            "queue": item.queue,
            "topic": item.topic,
            "client_message_id": item.client_message_id,
            "sender_name": item.sender_name,
            "attempts": item.attempts,
            "reason": item.reason,
            "created_at": item.created_at,
            "dead_at": item.dead_at,
        })
    });
    Ok(shown(&json!({"items": items.collect::<Vec<_>>()})))
}

async fn requeue(
    State(face): State<MeshFace>,
    Path((slug, id)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, ..) = face.authenticate_operator(request).await?;
    let requeued = face.broker.requeue_item(operator, &slug, &id).await;
    requeued.map_err(rejection)?;
    Ok(shown(&json!({"item_id": id, "requeued": true})))
}
