//! The handlers of agents, rails and verifiers: a body is read within its limit, the site does the work, and its result
//! becomes a response.

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use consign_engine::LedgerHealth;
use consign_kernel::error::Code;
use consign_web::access_log::ErrorCode;
use consign_web::error_status;
use http::HeaderMap;
use serde_json::json;

use super::receive::{Segment, key, whole};
use super::response::{json_text, json_value};
use super::{CALLBACK_BYTES_MAX, ProblemResponse, SiteResponse, TransactionFace, operator};
use crate::document::{NOTE_BYTES_MAX, REQUEST_BYTES_MAX, VERIFY_BYTES_MAX};
use crate::problem::Problem;

pub(super) type HandlerResult = Result<SiteResponse, ProblemResponse>;

pub(super) async fn create(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    let user = face.user(request.headers())?;
    let body = face.receive_write(request, REQUEST_BYTES_MAX).await?.1;
    if let Some(user) = user {
        return Ok(user.create(&body).await?.into());
    }
    face.check_is_document(&body)?;
    Ok(face.site.create(&body).await?.into())
}

/// All intents for operators; a user's own for users.
pub(super) async fn intents(
    State(face): State<TransactionFace>,
    request: Request,
) -> HandlerResult {
    let user = match face.operator(request.headers()) {
        Ok(()) => None,
        Err(refused) => Some(face.user(request.headers())?.ok_or(refused)?),
    };
    let limit = operator::number(&request, "limit")?.map(bounded);
    let offset = operator::number(&request, "offset")?.map(bounded);
    if let Some(user) = user {
        return Ok(user.intents(limit, offset).await?.into());
    }
    let limit = limit.unwrap_or(operator::LIST_DEFAULT);
    let before = operator::number(&request, "from")?;
    let intents = face.site.intents(limit, offset.unwrap_or(0), before);
    Ok(intents.await?.into())
}

fn bounded(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(super) async fn authorize(
    State(face): State<TransactionFace>,
    request: Request,
) -> HandlerResult {
    let (headers, body) = face.receive_write(request, REQUEST_BYTES_MAX).await?;
    Ok(face.site.authorize(key(&headers)?, &body).await?.into())
}

pub(super) async fn execute(
    State(face): State<TransactionFace>,
    request: Request,
) -> HandlerResult {
    let (headers, body) = face.receive_write(request, REQUEST_BYTES_MAX).await?;
    Ok(face.site.execute(key(&headers)?, &body).await?.into())
}

pub(super) async fn compensate(
    State(face): State<TransactionFace>,
    request: Request,
) -> HandlerResult {
    let (headers, body) = face.receive_write(request, NOTE_BYTES_MAX).await?;
    Ok(face.site.compensate(key(&headers)?, &body).await?.into())
}

pub(super) async fn cancel(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    let (headers, body) = face.receive_write(request, NOTE_BYTES_MAX).await?;
    Ok(face.site.cancel(key(&headers)?, &body).await?.into())
}

/// With a user's token, the compatibility profile; otherwise the request of an agent.
pub(super) async fn compensate_named(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    let user = face.user(request.headers())?;
    let (headers, body) = face.receive_write(request, NOTE_BYTES_MAX).await?;
    if let Some(user) = user {
        return Ok(user.compensate(&id, &body).await?.into());
    }
    let compensated = face.site.compensate_named(&id, key(&headers)?, &body);
    Ok(compensated.await?.into())
}

pub(super) async fn revoke(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    let user = face.user(request.headers())?;
    let (headers, body) = face.receive_write(request, NOTE_BYTES_MAX).await?;
    if let Some(user) = user {
        return Ok(user.revoke(&id, &body).await?.into());
    }
    let cancelled = face.site.cancel_named(&id, key(&headers)?, &body);
    Ok(cancelled.await?.into())
}

/// For operators, regardless of the owner.
pub(super) async fn intent(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    headers: HeaderMap,
) -> HandlerResult {
    if face.operator(&headers).is_ok() {
        return Ok(face.site.any_intent(&id).await?.into());
    }
    if let Some(user) = face.user(&headers)? {
        return Ok(user.intent(&id).await?.into());
    }
    Ok(face.site.intent(&id).await?.into())
}

pub(super) async fn receipts(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
) -> HandlerResult {
    Ok(face.site.receipts_of(&id).await?.into())
}

pub(super) async fn transaction(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    headers: HeaderMap,
) -> HandlerResult {
    if face.operator(&headers).is_ok() {
        return Ok(face.site.any_transaction(&id).await?.into());
    }
    if let Some(user) = face.user(&headers)? {
        return Ok(user.transaction_shown(&id).await?.into());
    }
    Ok(face.site.transaction_shown(&id).await?.into())
}

pub(super) async fn receipt(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    face.charge_public(&request)?;
    Ok(face.site.receipt_shown(&id).await?.into())
}

pub(super) async fn verify(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    face.charge_public(&request)?;
    let body = whole(request, VERIFY_BYTES_MAX).await?.1;
    Ok(face.site.verify(&body).await?.into())
}

pub(super) async fn callback(
    State(face): State<TransactionFace>,
    Segment(rail): Segment,
    request: Request,
) -> HandlerResult {
    // Checked before the body is read.
    if !face.site.has_rail(&rail) {
        return Err(Problem::NotFound { what: "rail" }.into());
    }
    let (headers, body) = face.receive_write(request, CALLBACK_BYTES_MAX).await?;
    let headers: Vec<_> = headers
        .iter()
        .filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        })
        .collect();
    face.site.callback(&rail, &headers, &body).await?;
    Ok(SiteResponse::new(200, &json!({"ok": true})))
}

pub(super) async fn keys(State(face): State<TransactionFace>) -> Response {
    json_text(face.site.key_list().to_string())
}

pub(super) async fn manifest(State(face): State<TransactionFace>) -> Response {
    json_text(face.site.manifest())
}

pub(super) async fn revocations(State(face): State<TransactionFace>) -> Response {
    json_text(face.site.revocations())
}

pub(super) async fn health(State(face): State<TransactionFace>) -> Response {
    let ledger = face.site.ledger_health().await;
    let writer = ledger == LedgerHealth::Healthy;
    let mut body = json!({
        "ok": writer,
        "service": "atp",
        "version": env!("CARGO_PKG_VERSION"),
        "writer": writer,
    });
    if writer {
        return json_value(&body);
    }
    let problem = ProblemResponse(Problem::StoreUnavailable);
    body["error"] = problem.name().into();
    body["message"] = problem.0.to_string().into();
    body["ledger"] = ledger.name().into();
    body["reason"] = ledger.reason().into();
    problem.with_body(&body)
}

pub(super) async fn unknown_path() -> ProblemResponse {
    ProblemResponse(Problem::NotFound { what: "path" })
}

pub(super) async fn wrong_method() -> Response {
    let code = Code::MethodNotAllowed;
    let mut body = ProblemResponse(Problem::NotFound { what: "method" }).body();
    body["error"] = code.name().into();
    body["message"] = "this path does not support this method; see the Allow header".into();
    let mut response = (error_status::of(code), json_value(&body)).into_response();
    response.extensions_mut().insert(ErrorCode(code));
    response
}
