//! Intents over HTTP: send, the catalog, and the list of recent ones.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use serde_json::json;

use super::access::{BeamAccess, client_address};
use super::problem_response::BeamProblemResponse;
use super::public_limits::PublicRoute;
use super::query::QueryText;
use super::response::{json_text, private_json};
use super::{BeamFace, receive};
use crate::feed::entry;
use crate::frame::IntentFrame;
use crate::relay::{Ingress, RelayError};
use crate::text::{BeamObject, BeamValue};
use crate::timestamp;

pub(super) const RECENT_DEFAULT: u32 = 50;
pub(super) const RECENT_MAX: u32 = 200;

pub(super) fn routes() -> Router<BeamFace> {
    Router::new()
        .route("/intents/send", post(send))
        .route("/intents/catalog", get(catalog))
        .route("/intents/recent", get(recent))
}

async fn send(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, body) = face.receive_stored(request).await?;
    face.charge(PublicRoute::SendIntent, &parts)?;
    let value = receive::json_object(&body)?;
    let frame = frame_of_request(&face, value).map_err(|error| relay_problem(&error))?;
    let address = client_address(&face, &parts);
    let relayed = face.beam.relay_of(frame, Ingress::Http, Some(&address));
    match relayed.await {
        Ok(result) => Ok(json_text(StatusCode::OK, result)),
        Err(error) => Err(relay_problem(&error)),
    }
}

/// The frame that a request means: a missing nonce, timestamp or payload is filled in, unknown fields are dropped.
pub(super) fn frame_of_request(
    face: &BeamFace,
    value: BeamValue,
) -> Result<IntentFrame, RelayError> {
    let BeamValue::Object(mut fields) = value else {
        return Err(RelayError::Shape("Invalid intent frame body".to_owned()));
    };
    fields.insert("v", "1");
    if !fields.contains("nonce") {
        fields.insert("nonce", face.beam.new_nonce().as_str());
    }
    if !fields.contains("timestamp") {
        let now = timestamp::format(face.beam.engine().wall());
        fields.insert("timestamp", now.as_str());
    }
    // A sender that leaves out an empty payload has signed it as `{}`.
    let is_missing = |name: &str| fields.get(name).is_none_or(BeamValue::is_null);
    if is_missing("payload") && is_missing("params") {
        fields.insert("payload", BeamObject::new());
    }
    let frame = IntentFrame::parse(BeamValue::Object(fields));
    let frame = frame.map_err(|error| RelayError::Shape(error.to_string()))?;
    Ok(frame.without_unknown_fields())
}

pub(super) fn relay_problem(error: &RelayError) -> BeamProblemResponse {
    BeamProblemResponse::new(error.code(), error.to_string())
}

async fn catalog(State(face): State<BeamFace>) -> Response {
    json_text(
        StatusCode::OK,
        face.beam.settings().catalog.document().to_owned(),
    )
}

async fn recent(
    State(face): State<BeamFace>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (parts, _) = request.into_parts();
    let access = BeamAccess::of(&face, &parts);
    let reader = access.intent_reader(&face).await?;
    let limit = QueryText::of(&parts)
        .number("limit")
        .unwrap_or(RECENT_DEFAULT);
    let limit = limit.clamp(1, RECENT_MAX);
    let rows = face.beam.recent_intents(&reader, limit).await?;
    let intents: Vec<_> = rows.iter().map(entry).collect();
    let body = json!({"total": intents.len(), "intents": intents});
    Ok(private_json(&body))
}
