//! `POST /v1/beam/ack` and `POST /v1/beam/dead-letter/{id}/requeue`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use consign_kernel::error::Code;
use http::StatusCode;

use super::{BusCaller, views};
use crate::bus::Acknowledgement;
use crate::http::problem_response::BeamProblemResponse;
use crate::http::{BeamFace, receive};
use crate::lifecycle::state_word;
use crate::text::{BeamObject, BeamValue};

pub(super) async fn ack(
    State(face): State<BeamFace>,
    _: BusCaller,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (_, body) = receive::whole(request).await?;
    let ack = acknowledgement(&receive::json(&body)?)?;
    let acked = face.beam.acknowledge(ack).await?;
    let mut body = BeamObject::new();
    body.insert("message_id", acked.id.to_string());
    body.insert("status", state_word(acked.state));
    body.insert("updated_at", views::seconds(acked.updated_at));
    Ok(views::respond(StatusCode::OK, body))
}

fn acknowledgement(body: &BeamValue) -> Result<Acknowledgement, BeamProblemResponse> {
    let message_id = body.get("message_id").and_then(BeamValue::as_str);
    let message_id = message_id.filter(|id| !id.is_empty()).ok_or_else(|| {
        BeamProblemResponse::new(Code::MissingMessageId, "message_id is required")
    })?;
    let status = body.get("status").filter(|status| !status.is_null());
    let is_failure = match status.map(BeamValue::as_str) {
        None | Some(Some("acked")) => false,
        Some(Some("failed")) => true,
        Some(_) => {
            let text = "status must be \"acked\" or \"failed\"";
            return Err(BeamProblemResponse::new(Code::InvalidStatus, text));
        }
    };
    let response = body.get("response").filter(|response| !response.is_null());
    Ok(Acknowledgement {
        message_id: message_id.to_owned(),
        is_failure,
        response: response.map(BeamValue::to_text),
    })
}

pub(super) async fn requeue(
    State(face): State<BeamFace>,
    _: BusCaller,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    receive::whole(request).await?;
    let Ok(Path(id)) = id else {
        let text = "Message not found";
        return Err(BeamProblemResponse::new(Code::MessageNotFound, text));
    };
    let requeued = face.beam.requeue_message(&id).await?;
    let status = views::outcome_word(&requeued.outcome);
    let mut body = views::head(&requeued.message, status);
    body.insert("requeued", true);
    views::add_outcome(&mut body, &requeued.outcome);
    Ok(views::respond(StatusCode::OK, body))
}
