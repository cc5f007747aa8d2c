//! What handlers read from a request: the path, the idempotency key, and the body within its limits.

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequestParts, Path, Request};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

use super::{ProblemResponse, TransactionFace};
use crate::problem::Problem;
use consign_web::body::{self, BodyError, ReceivedBody};
use consign_web::rate_limit::{RateCharge, RateLimit};

impl TransactionFace {
    /// Charges a request to the limit of the public routes.
    pub(super) fn charge_public(&self, request: &Request) -> Result<(), Problem> {
        self.take(&self.public, request, 0).map(|_| ())
    }

    /// Receives the complete body of a write.
    pub(super) async fn receive_write(
        &self,
        request: Request,
        max_bytes: usize,
    ) -> Result<(HeaderMap, ReceivedBody), ProblemResponse> {
        // Without an announced length, the body may have the maximal length.
        let announced = request.body().size_hint().upper();
        let announced = announced.and_then(|bytes| usize::try_from(bytes).ok());
        let announced = announced.unwrap_or(max_bytes).min(max_bytes);
        let taken = self.take(&self.writes, &request, announced)?;
        let read = whole(request, max_bytes).await;
        if let Ok((_, body)) = &read {
            taken.give_back(announced.saturating_sub(body.len()));
        }
        read
    }

    pub(super) fn take<'a>(
        &self,
        allowance: &'a RateLimit,
        request: &Request,
        bytes: usize,
    ) -> Result<RateCharge<'a>, Problem> {
        allowance
            .take(
                request.extensions(),
                request.headers(),
                self.options.policy.trust_proxy,
                bytes,
            )
            .map_err(|retry_after_s| Problem::RateLimited { retry_after_s })
    }
}

/// A path segment. Segments that are not UTF-8 name nothing.
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        let named = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) = named.map_err(|_| Problem::NotFound { what: "path" })?;
        Ok(Self(name))
    }
}

/// The complete body, within its limit.
pub(super) async fn whole(
    request: Request,
    max_bytes: usize,
) -> Result<(HeaderMap, ReceivedBody), ProblemResponse> {
    let (head, body) = request.into_parts();
    let body: Body = body;
    let sender = body::sender(&head.extensions);
    match body::receive(body, max_bytes, body::DEADLINE_DEFAULT, sender).await {
        Ok(body) => Ok((head.headers, body)),
        // Nothing was changed, and the request may be sent again, as this error says.
        Err(BodyError::NoRoom) => Err(ProblemResponse(Problem::StoreUnavailable)),
        Err(BodyError::TooLarge) => Err(ProblemResponse(Problem::PayloadTooLarge { max_bytes })),
        Err(BodyError::TooSlow) => Err(ProblemResponse(Problem::RequestTimeout)),
        Err(error @ BodyError::Broken) => Err(ProblemResponse(Problem::InvalidRequest {
            field: None,
            reason: error.to_string(),
        })),
    }
}

/// Two keys are ambiguous, and a guess could pay twice.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<&[u8]>, Problem> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let first = keys.next().map(HeaderValue::as_bytes);
    match keys.next() {
        None => Ok(first),
        Some(_) => Err(Problem::IdempotencyKeyInvalid {
            reason: "occurs twice",
        }),
    }
}
