//! The queues that a topic fills.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::post;
use consign_web::reject::Reject;
use serde::Deserialize;

use super::reads::topic_body;
use super::{read, rejection, shown};
use crate::http::face::MeshFace;
use crate::id::{QueueName, TopicRef};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubscriptionBody {
    topic: TopicRef,
    queue: QueueName,
}

pub(super) fn routes() -> Router<MeshFace> {
    Router::new()
        .route("/v1/meshes/{slug}/subscribe", post(subscribe))
        .route("/v1/meshes/{slug}/unsubscribe", post(unsubscribe))
}

async fn subscribe(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _, body) = face.authenticate_operator(request).await?;
    let SubscriptionBody { topic, queue } = read(&body)?;
    let broker = &face.broker;
    let changed = broker.subscribe(operator, &slug, topic.as_str(), &queue);
    Ok(shown(&topic_body(&changed.await.map_err(rejection)?)))
}

async fn unsubscribe(
    State(face): State<MeshFace>,
    Path(slug): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (operator, _, body) = face.authenticate_operator(request).await?;
    let SubscriptionBody { topic, queue } = read(&body)?;
    let broker = &face.broker;
    let changed = broker.unsubscribe(operator, &slug, topic.as_str(), &queue);
    Ok(shown(&topic_body(&changed.await.map_err(rejection)?)))
}
