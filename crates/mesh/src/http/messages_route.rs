//! `POST /v1/messages`: sends a message with an API key. The statuses are those of an `ack`: 201, 200, 409 and the refusals.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use consign_kernel::error::Code;
use consign_web::json_out::json_response;
use consign_web::reject::Reject;
use consign_web::{body, credentials};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::face::MeshFace;
use super::operators::rejection;
use super::{MessagePost, MessagePostAnswer};
use crate::broker::{KeyHolder, MeshSender};
use crate::limits::FRAME_BYTES_MAX;

pub(super) fn routes() -> Router<MeshFace> {
    Router::new().route("/v1/messages", post(send))
}

async fn send(State(face): State<MeshFace>, request: Request) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let holder = face.key_holder(&parts).await?;
    let sender = body::sender(&parts.extensions);
    let body = body::receive(body, FRAME_BYTES_MAX, body::DEADLINE_DEFAULT, sender).await?;
    let key = idempotency_key(&parts.headers)?;
    let post = MessagePost::parse(&body, key)
        .map_err(|invalid| Reject::new(Code::InvalidRequest, invalid.to_string()))?;
    if !holder.scope.may_send(&post.destination) {
        let text = "This key may not send to this destination.";
        return Err(Reject::new(Code::Forbidden, text));
    }
    let sender = MeshSender {
        mesh: Arc::new(holder.mesh),
        member_id: holder.member.id,
        session: None,
        connection: None,
    };
    let ack = face.broker.accept(&sender, &post.send).await;
    let answer = MessagePostAnswer::new(ack);
    let status = StatusCode::from_u16(answer.status());
    let text = serde_json::to_string(&answer).expect("texts and flags are JSON");
    let mut response = json_response(text);
    *response.status_mut() = status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    Ok(response)
}

/// The only `Idempotency-Key`, if there is one.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Reject> {
    let mut all = headers.get_all("idempotency-key").iter();
    let Some(only) = all.next() else {
        return Ok(None);
    };
    let text = only.to_str().ok().filter(|_| all.next().is_none());
    let text = text.ok_or_else(|| {
        let text = "Idempotency-Key must be one header of printable ASCII.";
        Reject::new(Code::InvalidRequest, text)
    })?;
    Ok(Some(text.trim()))
}

impl MeshFace {
    /// The member that the API key of a request stands for.
    pub(super) async fn key_holder(&self, parts: &Parts) -> Result<KeyHolder, Reject> {
        let missing = || {
            let text = "Send an API key of the mesh as a Bearer token.";
            Reject::new(Code::Unauthorized, text)
        };
        let key = credentials::bearer(&parts.headers).ok_or_else(missing)?;
        let holder = self.broker.key_holder(key).await.map_err(rejection)?;
        holder.ok_or_else(|| {
            let text = "The API key is unknown or revoked.";
            Reject::new(Code::Unauthorized, text).of_wrong_credential()
        })
    }
}
