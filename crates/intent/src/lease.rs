//! Routes for the holder of a lease: `POST /extend_claim/<id>`, `/fulfill/<id>`, `/fail/<id>`.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_kernel::command::{Command, Extend, Settle, Settlement};
use consign_kernel::error::Code;
use consign_kernel::ids::{IntentId, SECOND_US, Token};
use consign_kernel::json::Object;
use consign_kernel::limits;
use consign_kernel::record::KeyScope;

use super::authed_request::AuthedRequest;
use super::failure::FailureReport;
use super::path_segment::PathId;
use super::{IntentFace, wire};
use consign_web::json_out::Json;
use consign_web::reject::{LEASE_LOST, Reject};

pub(super) async fn extend(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let request = face
        .authenticate(request, limits::BODY_BYTES_MAX, Some(KeyScope::Claim))
        .await?;
    let (extend, seconds) = request
        .charge_then_reject(parse_extend(&request, &id))
        .await?;
    let extended = request.apply(Command::Extend(extend)).await;
    extended.map_err(Reject::of_lease)?;
    let mut body = Json::object();
    body.bool("ok", true)
        .text("id", &id)
        .integer("extended_by", seconds);
    Ok(body.into_response())
}

pub(super) async fn fulfill(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let request = face
        .authenticate(request, limits::BODY_BYTES_MAX, Some(KeyScope::Claim))
        .await?;
    let settle = request.charge_then_reject(parse_settle(&request, &id, |object| {
        Ok(Settlement::Complete {
            result: wire::outcome(object)?,
        })
    }));
    Ok(settled(&request, settle.await?).await?.into_response())
}

pub(super) async fn fail(
    State(face): State<IntentFace>,
    PathId(id): PathId,
    request: Request,
) -> Result<Response, Reject> {
    let request = face
        .authenticate(
            request,
            limits::FAILURE_BODY_BYTES_MAX,
            Some(KeyScope::Claim),
        )
        .await?;
    let mut truncated = false;
    let settle = request.charge_then_reject(parse_settle(&request, &id, |object| {
        let report = FailureReport::parse(object)?;
        truncated = report.truncated;
        Ok(report.settlement)
    }));
    let settle = settle.await?;
    let mut body = settled(&request, settle).await?;
    if truncated {
        body.bool("error_truncated", true);
    }
    Ok(body.into_response())
}

async fn settled(request: &AuthedRequest, settle: Settle) -> Result<Json, Reject> {
    let id = settle.id;
    let settled = request.apply(Command::Settle(settle)).await;
    settled.map_err(Reject::of_lease)?;
    let mut body = Json::object();
    body.bool("ok", true).text("id", &id.to_string());
    Ok(body)
}

fn parse_extend(request: &AuthedRequest, id: &str) -> Result<(Extend, i64), Reject> {
    let object = wire::object_or_empty(&request.body)?;
    let token = token(&object)?;
    let seconds = match wire::field(&object, "seconds") {
        Some(raw) => {
            // A fraction of a second is cut off; the protocol uses whole seconds.
            let whole = wire::clamped(&raw, limits::LEASE_MIN_S, limits::LEASE_MAX_S);
            whole
                .or_else(|| raw.as_f64().map(within_bounds))
                .ok_or_else(|| {
                    Reject::new(Code::InvalidSeconds, "seconds must be a number (10-3600).")
                })?
        }
        None => limits::LEASE_DEFAULT_S,
    };
    let extend = Extend {
        detail: None,
        id: known(id)?,
        holder: request.caller.id().to_owned(),
        token: token?,
        lease_us: seconds * SECOND_US,
    };
    Ok((extend, seconds))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a float cast saturates, and the bounds follow"
)]
fn within_bounds(seconds: f64) -> i64 {
    (seconds.floor() as i64).clamp(limits::LEASE_MIN_S, limits::LEASE_MAX_S)
}

fn parse_settle(
    request: &AuthedRequest,
    id: &str,
    how: impl FnOnce(&Object<'_>) -> Result<Settlement, Reject>,
) -> Result<Settle, Reject> {
    let object = wire::object_or_empty(&request.body)?;
    let token = token(&object)?;
    let how = how(&object)?;
    Ok(Settle {
        detail: None,
        id: known(id)?,
        holder: request.caller.id().to_owned(),
        token: token?,
        how,
    })
}

/// The outer error: no token was given. The inner error: the token is malformed, so it cannot be the right one.
pub(super) fn token(object: &Object<'_>) -> Result<Result<Token, Reject>, Reject> {
    let text = wire::field(object, "claim_token")
        .and_then(|raw| raw.as_str().map(std::borrow::Cow::into_owned));
    match text.filter(|text| !text.is_empty()) {
        Some(text) => Ok(Token::parse(&text).map_err(|_| Reject::new(Code::NotFound, LEASE_LOST))),
        None => Err(Reject::new(Code::InvalidRequest, "Missing claim_token.")),
    }
}

pub(super) fn known(id: &str) -> Result<IntentId, Reject> {
    id.parse()
        .map_err(|_| Reject::new(Code::NotFound, LEASE_LOST))
}
