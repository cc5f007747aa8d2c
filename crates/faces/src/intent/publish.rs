//! `POST /intent`.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_kernel::command::{Admit, Admitted, Answer, Command};
use consign_kernel::error::Code;
use consign_kernel::limits;
use http::StatusCode;

use super::json_out::Json;
use super::reject::Reject;
use super::visit::Visit;
use super::{Face, wire};

pub(super) async fn publish(
    State(face): State<Face>,
    request: Request,
) -> Result<Response, Reject> {
    let visit = face.enter(request, limits::BODY_BYTES_MAX).await?;
    let admit = visit.checked(parse(&visit)).await?;
    let admitted = admitted(visit.apply(Command::Admit(admit)).await.map_err(single)?)?;
    let first = admitted
        .first()
        .ok_or_else(|| Reject::new(Code::Internal, "Internal error."))?;
    Ok((StatusCode::CREATED, published(first)).into_response())
}

fn parse(visit: &Visit) -> Result<Admit, Reject> {
    let object = wire::object(&visit.body)?;
    let owner = visit.caller.id();
    let mut item = wire::new_intent(&object, owner, traceparent(visit), None)?;
    if let Some(key) = idempotency_key(visit)? {
        item.once = Some(wire::once_guard(owner, key, &visit.body)?);
    }
    Ok(Admit {
        items: vec![item],
        cap: cap(visit),
    })
}

fn idempotency_key(visit: &Visit) -> Result<Option<&str>, Reject> {
    let Some(value) = visit.parts.headers.get("idempotency-key") else {
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

/// Stored and handed to the worker; one that cannot be a trace context is dropped, not refused.
pub(super) fn traceparent(visit: &Visit) -> Option<&str> {
    visit.header("traceparent").filter(|value| {
        !value.is_empty()
            && value.len() <= limits::TRACEPARENT_BYTES_MAX
            && value
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    })
}

/// The main key may have as many open intents as it likes.
pub(super) fn cap(visit: &Visit) -> Option<u64> {
    (!visit.caller.is_main()).then_some(limits::OPEN_INTENTS_MAX)
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

/// With one item there is no index to tell.
fn single(mut reject: Reject) -> Reject {
    reject.index = None;
    reject
}
