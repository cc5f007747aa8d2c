//! Topics, connections, messages and conflicts of a mesh, for dashboards.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use consign_web::reject::Reject;
use serde_json::{Value, json};

use super::{invalid, rejection, shown};
use crate::broker::TopicRecord;
use crate::http::face::MeshFace;
use crate::limits::{MESSAGE_PAGE_DEFAULT, MESSAGE_PAGE_MAX};
use crate::query::QueryPairs;

pub(super) fn routes() -> Router<MeshFace> {
    Router::new()
        .route("/v1/meshes/{slug}/topics", get(topics))
        .route("/v1/meshes/{slug}/peers", get(peers))
        .route("/v1/meshes/{slug}/messages", get(messages))
        .route("/v1/meshes/{slug}/dedupe", get(dedupe))
}

async fn topics(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    face.authenticate_operator(request).await?;
    let mesh = face.broker.mesh_by_slug(&slug).await.map_err(rejection)?;
    let topics = face.broker.topics(&mesh.id).await.map_err(rejection)?;
    let topics = topics.iter().map(topic_body);
    Ok(shown(&json!({"topics": topics.collect::<Vec<_>>()})))
}

pub(super) fn topic_body(topic: &TopicRecord) -> Value {
    let queues = topic.subscriptions.iter().map(|subscription| {
        json!({"queue": subscription.queue, "by_automation": subscription.by_automation})
    });
    json!({
        "topic_id": topic.id,
        "name": topic.name,
        "description": topic.description,
        "visibility": topic.visibility,
        "member_count": topic.members.len(),
        "queues": queues.collect::<Vec<_>>(),
        "created_at": topic.created_at,
    })
}

async fn peers(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, ..) = face.authenticate_operator(request).await?;
    let peers = face.broker.peers(operator, &slug).await;
    let peers = peers.map_err(rejection)?;
    let peers = peers.iter().map(|peer| {
        json!({
            "presence_id": peer.presence_id,
            "member_id": peer.member_id,
            "pubkey": peer.pubkey,
            "session_pubkey": peer.session,
            "name": peer.name,
            "role": peer.role,
            "status": peer.status,
            "groups": peer.groups,
            "hostname": peer.hostname,
            "connected_at": peer.connected_at,
        })
    });
    Ok(shown(&json!({"peers": peers.collect::<Vec<_>>()})))
}

/// A limit out of its range is clamped.
async fn messages(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, parts, _) = face.authenticate_operator(request).await?;
    let query = QueryPairs::parse(parts.uri.query().unwrap_or_default());
    let limit = limit(&query)?;
    let messages = face.broker.latest_messages(operator, &slug, limit).await;
    let messages = messages.map_err(rejection)?;
    let messages = messages.iter().map(|message| {
        let state = if message.is_delivered {
            "delivered"
        } else {
            "accepted"
        };
        json!({
            "message_id": message.id,
            "client_message_id": message.client_message_id,
            "destination_kind": message.destination_kind,
            "destination_ref": message.destination_ref,
            "sender_member_id": message.sender_member_id,
            "state": state,
            "created_at": message.created_at,
            "expires_at": message.expires_at,
        })
    });
    Ok(shown(&json!({"messages": messages.collect::<Vec<_>>()})))
}

/// How many rows a list has.
pub(super) fn limit(query: &QueryPairs) -> Result<u32, Reject> {
    let Some(text) = query.get("limit") else {
        return Ok(MESSAGE_PAGE_DEFAULT);
    };
    let limit: Result<u32, _> = text.parse();
    let limit = limit.map_err(|_| invalid("limit must be a whole number."))?;
    Ok(limit.clamp(1, MESSAGE_PAGE_MAX))
}

async fn dedupe(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, ..) = face.authenticate_operator(request).await?;
    let broker = &face.broker;
    let waiting = broker.waiting_in(operator, &slug).await;
    let waiting = waiting.map_err(rejection)?;
    let conflicts = broker.conflicts(operator, &slug).await;
    let conflicts = conflicts.map_err(rejection)?;
    let conflicts = conflicts
        .iter()
        .map(|(member, count)| json!({"member_id": member, "mismatches": count}));
    Ok(shown(&json!({
        "waiting": waiting,
        "conflicts": conflicts.collect::<Vec<_>>(),
    })))
}
