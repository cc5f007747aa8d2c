//! `POST /join`: adds a member to a mesh. It needs no credential: the signed invite is one.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use consign_web::body::{self, BodyError};
use consign_web::json_out::json_response;
use consign_web::reject::Reject;
use consign_web::throttle::FailedCredential;
use http::StatusCode;

use super::face::MeshFace;
use super::{JoinAnswer, JoinRequest};
use crate::broker::{BrokerError, NewMember};
use crate::id::MemberId;
use crate::invite::JoinRefusal;
use crate::limits::HTTP_BODY_BYTES_MAX;

pub(super) fn routes() -> Router<MeshFace> {
    Router::new().route("/join", post(join))
}

async fn join(State(face): State<MeshFace>, request: Request) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let sender = body::sender(&parts.extensions);
    let body = body::receive(body, HTTP_BODY_BYTES_MAX, body::DEADLINE_DEFAULT, sender).await;
    let body = match body {
        Err(BodyError::Broken) => return Ok(malformed("the body ended early")),
        received => received?,
    };
    let request = match JoinRequest::parse(&body) {
        Ok(request) => request,
        Err(invalid) => return Ok(malformed(invalid)),
    };
    let member = NewMember {
        token: request.token,
        payload: request.payload,
        pubkey: request.pubkey,
        display_name: request.display_name,
    };
    let answer = match face.broker.join(&member).await {
        Ok(joined) => match MemberId::parse(&joined.member_id) {
            Ok(id) => JoinAnswer::joined(&id, joined.already_member),
            Err(_) => JoinAnswer::refused(JoinRefusal::MemberInsertFailed),
        },
        Err(BrokerError::Join(refusal)) => {
            let mut refused = response(&JoinAnswer::refused(refusal));
            if refusal.is_wrong_credential() {
                refused.extensions_mut().insert(FailedCredential);
            }
            return Ok(refused);
        }
        Err(error) => return Err(super::operators::rejection(error)),
    };
    Ok(response(&answer))
}

/// Clients read `error` of this body, so a malformed request has no other format.
fn malformed(why: impl std::fmt::Display) -> Response {
    response(&JoinAnswer {
        ok: false,
        member_id: None,
        already_member: None,
        error: Some(format!("malformed: {why}")),
    })
}

fn response(answer: &JoinAnswer) -> Response {
    let text = serde_json::to_string(answer).expect("texts and flags are JSON");
    let mut response = json_response(text);
    *response.status_mut() = StatusCode::from_u16(answer.status()).expect("200 or 400");
    response
}
