//! The operator's routes: open transactions, the log of transitions, a manual sweep, keys. All of them need the admin
//! token.

use crate::problem::Problem;
use crate::site::SiteKeyError;
use axum::extract::{Request, State};
use http::HeaderMap;
use serde_json::json;

use super::handlers::HandlerResult;
use super::receive::{Segment, whole};
use super::{SiteResponse, TransactionFace};
use crate::document::{AtpDocument, NOTE_BYTES_MAX};
use consign_web::credentials::bearer;

pub(super) const LIST_DEFAULT: u32 = 50;

impl TransactionFace {
    pub(super) fn operator(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let secret = self.options.admin_secret.as_ref();
        let shown = bearer(headers);
        match secret.zip(shown) {
            Some((secret, shown)) if secret.matches(shown) => Ok(()),
            _ => Err(Problem::Unauthorized),
        }
    }
}

pub(super) async fn transactions(
    State(face): State<TransactionFace>,
    request: Request,
) -> HandlerResult {
    face.operator(request.headers())?;
    let limit = number(&request, "limit")?.unwrap_or(u64::from(LIST_DEFAULT));
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let from = number(&request, "from")?;
    let state = query(&request, "state");
    let shown = face.site.transactions_shown(state.as_deref(), limit, from);
    Ok(shown.await?.into())
}

/// Records the outcome of an effect that the rail cannot report.
pub(super) async fn resolve(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    face.operator(request.headers())?;
    let body = whole(request, NOTE_BYTES_MAX).await?.1;
    Ok(face.site.resolve(&id, &body).await?.into())
}

pub(super) async fn audit(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    face.operator(request.headers())?;
    let after = number(&request, "after")?.unwrap_or(0);
    Ok(face.site.audit(after).await?.into())
}

pub(super) async fn reconcile(
    State(face): State<TransactionFace>,
    request: Request,
) -> HandlerResult {
    face.operator(request.headers())?;
    let site = face.site.clone();
    // The sweep continues if the client disconnects.
    let swept = tokio::spawn(async move { site.reconcile().await }).await;
    let swept = swept.map_err(|_| Problem::InternalError)??;
    Ok(swept.into())
}

/// Announces the key that will sign next, so that verifiers can pin it in time.
pub(super) async fn announce(
    State(face): State<TransactionFace>,
    request: Request,
) -> HandlerResult {
    face.operator(request.headers())?;
    let key = face.site.announce_key().await;
    let key = key.map_err(|error| refused(&error))?;
    Ok(SiteResponse::new(
        200,
        &json!({"ok": true, "next_public_key": key}),
    ))
}

pub(super) async fn rotate(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    face.operator(request.headers())?;
    let reason = reason(request).await?;
    let key = face
        .site
        .rotate_key(&reason)
        .await
        .map_err(|error| refused(&error))?;
    Ok(SiteResponse::new(
        200,
        &json!({"ok": true, "public_key": key}),
    ))
}

pub(super) async fn revoke(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    face.operator(request.headers())?;
    let reason = reason(request).await?;
    face.site
        .revoke_key(&id, &reason)
        .await
        .map_err(|error| refused(&error))?;
    Ok(SiteResponse::new(200, &json!({"ok": true, "key_id": id})))
}

async fn reason(request: Request) -> Result<String, super::ProblemResponse> {
    let body = whole(request, NOTE_BYTES_MAX).await?.1;
    if body.is_empty() {
        return Ok(String::new());
    }
    let body = AtpDocument::read(&body, NOTE_BYTES_MAX)?;
    let Some(reason) = body.get("reason").filter(|reason| !reason.is_null()) else {
        return Ok(String::new());
    };
    let text = reason.as_str().map(std::borrow::Cow::into_owned);
    text.ok_or_else(|| super::ProblemResponse(invalid("reason", "must be text")))
}

fn invalid(field: &str, reason: &str) -> Problem {
    Problem::InvalidRequest {
        field: Some(field.to_owned()),
        reason: reason.to_owned(),
    }
}

fn refused(error: &SiteKeyError) -> Problem {
    match error {
        SiteKeyError::Unknown(_) => Problem::NotFound { what: "key" },
        SiteKeyError::Current => Problem::InvalidRequest {
            field: None,
            reason: error.to_string(),
        },
        SiteKeyError::Ledger(_) => Problem::StoreUnavailable,
        SiteKeyError::Damaged(_) => Problem::InternalError,
    }
}

fn query(request: &Request, name: &str) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
}

pub(super) fn number(request: &Request, name: &str) -> Result<Option<u64>, Problem> {
    let Some(text) = query(request, name) else {
        return Ok(None);
    };
    let number = text.parse().map(Some);
    number.map_err(|_| invalid(name, "is not a number"))
}
