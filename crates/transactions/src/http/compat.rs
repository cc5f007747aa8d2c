//! The routes of the compatibility profile, for clients that have a token and sign nothing.
//!
//! They exist beside the routes of agents. On shared paths, a token selects the profile.

use crate::document::REQUEST_BYTES_MAX;
use crate::problem::Problem;
use crate::site::compat::ForUser;
use axum::Router;
use axum::extract::{Request, State};
use axum::routing::post;
use http::HeaderMap;

use super::TransactionFace;
use super::handlers::HandlerResult;
use super::receive::{Segment, key};
use consign_web::credentials::bearer;

pub(super) fn with_routes(router: Router<TransactionFace>) -> Router<TransactionFace> {
    router
        .route("/api/atp/intents/{intent_id}/authorize", post(authorize))
        .route("/api/atp/transactions", post(begin))
        .route("/api/atp/transactions/{transaction_id}/steps", post(step))
        .route(
            "/api/atp/transactions/{transaction_id}/transition",
            post(transition),
        )
        .route(
            "/api/atp/transactions/{transaction_id}/receipt",
            post(receipt),
        )
}

impl TransactionFace {
    /// The user of the request's token; none without a token or if the profile is off.
    pub(super) fn user(&self, headers: &HeaderMap) -> Result<Option<ForUser>, Problem> {
        let Some((tokens, token)) = self.options.compat.as_ref().zip(bearer(headers)) else {
            return Ok(None);
        };
        let user = tokens.user(token, self.site.now())?;
        Ok(Some(self.site.for_user(user)))
    }

    fn need_user(&self, headers: &HeaderMap) -> Result<ForUser, Problem> {
        self.user(headers)?.ok_or(Problem::Unauthorized)
    }

    /// Without a token, the body must be a signed document.
    pub(super) fn check_is_document(&self, body: &[u8]) -> Result<(), Problem> {
        if self.options.compat.is_none() {
            return Ok(());
        }
        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        match body.get("type") {
            Some(_) => Ok(()),
            None => Err(Problem::Unauthorized),
        }
    }
}

async fn authorize(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    let user = face.need_user(request.headers())?;
    face.take(&face.writes, &request, 0)?;
    Ok(user.authorize(&id).await?.into())
}

async fn begin(State(face): State<TransactionFace>, request: Request) -> HandlerResult {
    let user = face.need_user(request.headers())?;
    let (headers, body) = face.receive_write(request, REQUEST_BYTES_MAX).await?;
    Ok(user.begin(key(&headers)?, &body).await?.into())
}

async fn step(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    let user = face.need_user(request.headers())?;
    let body = face.receive_write(request, REQUEST_BYTES_MAX).await?.1;
    Ok(user.step(&id, &body).await?.into())
}

async fn transition(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    request: Request,
) -> HandlerResult {
    let user = face.need_user(request.headers())?;
    let body = face.receive_write(request, REQUEST_BYTES_MAX).await?.1;
    Ok(user.transition(&id, &body).await?.into())
}

async fn receipt(
    State(face): State<TransactionFace>,
    Segment(id): Segment,
    headers: HeaderMap,
) -> HandlerResult {
    let user = face.need_user(&headers)?;
    Ok(user.receipt(&id).await?.into())
}
