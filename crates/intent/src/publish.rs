//! `POST /intent`.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_kernel::command::{Admit, Admitted, Answer, Command};
use consign_kernel::error::Code;
use consign_kernel::limits;
use consign_kernel::record::KeyScope;
use http::StatusCode;

use super::authed_request::AuthedRequest;
use super::{IntentFace, ignored, wire};
use consign_web::json_out::Json;
use consign_web::reject::Reject;

pub(super) async fn publish(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let request = face
        .authenticate(request, limits::BODY_BYTES_MAX, Some(KeyScope::Publish))
        .await?;
    let (admit, ignored) = request.charge_then_reject(parse(&request)).await?;
    let admitted = admitted(request.apply(Command::Admit(admit)).await.map_err(single)?)?;
    let first = admitted
        .first()
        .ok_or_else(|| Reject::new(Code::Internal, "Internal error."))?;
    let response = (StatusCode::CREATED, published(first)).into_response();
    Ok(ignored::named(response, &ignored))
}

/// The intent, and the names that were ignored.
fn parse(request: &AuthedRequest) -> Result<(Admit, Vec<String>), Reject> {
    let object = wire::object(&request.body)?;
    let owner = request.caller.id();
    let mut item = wire::new_intent(&object, owner, traceparent(request), None)?;
    request.check_namespace(&item.namespace)?;
    if let Some(key) = idempotency_key(request)? {
        item.once = Some(wire::once_guard(owner, key, &request.body)?);
    }
    let mut ignored = ignored::PUBLISH.unknown_members(&object);
    ignored.extend(ignored::PUBLISH.unknown_parameters(&request.parts.uri));
    let admit = Admit {
        items: vec![item],
        cap: cap(request),
    };
    Ok((admit, ignored))
}

fn idempotency_key(request: &AuthedRequest) -> Result<Option<&str>, Reject> {
    let Some(value) = request.parts.headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = value.to_str().map_err(|_| {
        Reject::new(
            Code::InvalidIdempotencyKey,
            "Idempotency-Key must consist of visible ASCII characters.",
        )
    })?;
    Ok(Some(key).filter(|key| !key.is_empty()))
}

/// Stored and passed to the worker; a malformed trace context is dropped, not refused.
pub(super) fn traceparent(request: &AuthedRequest) -> Option<&str> {
    request.header("traceparent").filter(|value| {
        !value.is_empty()
            && value.len() <= limits::TRACEPARENT_BYTES_MAX
            && value
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    })
}

/// The main key has no limit of open intents.
pub(super) fn cap(request: &AuthedRequest) -> Option<u64> {
    request.caller.open_intents_max()
}

pub(super) fn admitted(answer: Answer) -> Result<Vec<Admitted>, Reject> {
    let Answer::Admitted(admitted) = answer else {
        return Err(Reject::new(Code::Internal, "Internal error."));
    };
    Ok(admitted)
}

pub(super) fn published(admitted: &Admitted) -> Json {
    let mut body = Json::object();
    body.text("id", &admitted.id.to_string())
        .text("status", "published")
        .text("namespace", &admitted.namespace);
    body
}

/// A single publish has no index.
fn single(mut reject: Reject) -> Reject {
    reject.index = None;
    reject
}
