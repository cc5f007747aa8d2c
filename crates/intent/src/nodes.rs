//! The operator's routes for nodes: list, drain, resume.
//!
//! Any node can change any other: the ledger stores the request, and the node reads it at its next heartbeat.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::NodeInfo;
use consign_kernel::error::Code;

use super::path_segment::PathId;
use super::{IntentFace, ignored};
use consign_web::json_out::{Json, array, json_response};
use consign_web::reject::Reject;

pub(super) async fn list(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, _) = face.authenticate_operator(request).await?;
    ignored::NODES.refuse_unknown(&uri)?;
    let nodes = face.engine.nodes(operator).await?;
    Ok(json_response(array(
        nodes.iter().map(|node| node_out(node).finish()),
    )))
}

pub(super) async fn drain(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    set_drain(&face, &id, request, true).await
}

pub(super) async fn resume(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    set_drain(&face, &id, request, false).await
}

async fn set_drain(
    face: &IntentFace,
    id: &str,
    request: Request,
    drain: bool,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, _) = face.authenticate_operator(request).await?;
    ignored::NODES.refuse_unknown(&uri)?;
    let unknown = || Reject::new(Code::NotFound, "Node not found.");
    let id = id.parse().map_err(|_| unknown())?;
    let node = face.engine.drain_node(operator, id, drain).await?;
    Ok(node_out(&node.ok_or_else(unknown)?).into_response())
}

fn node_out(node: &NodeInfo) -> Json {
    let mut body = Json::object();
    body.integer("id", node.id)
        .text("name", &node.name)
        .text("address", &node.address)
        .text("version", &node.version)
        .seconds("started_at", Some(node.started_at))
        .seconds("seen_at", Some(node.seen_at))
        .text("state", node.state.name())
        .number("leases", node.leases)
        .bool("here", node.here);
    body
}
