//! The message bus over HTTP.
//!
//! Invariant: every handler takes a [`BusCaller`] or a [`StatsReader`], which check the key of the bus.

mod ack;
mod cors;
mod events;
pub(super) mod reads;
pub(super) mod send;
mod views;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use http::header::AUTHORIZATION;
use http::request::Parts;

use super::access::BeamAccess;
use super::problem_response::BeamProblemResponse;
use super::{BeamFace, unrouted};
use crate::problem::BeamProblem;

pub(super) fn routes(face: &BeamFace) -> Router<BeamFace> {
    Router::new()
        .route("/v1/beam/send", post(send::send))
        .route("/v1/beam/poll", get(reads::poll))
        .route("/v1/beam/ack", post(ack::ack))
        .route("/v1/beam/history", get(reads::history))
        .route("/v1/beam/stats", get(reads::stats))
        .route("/v1/beam/dead-letter", get(reads::dead_letters))
        .route("/v1/beam/dead-letter/{id}/requeue", post(ack::requeue))
        .route("/v1/beam/events", get(events::events))
        .method_not_allowed_fallback(unrouted::wrong_method)
        .layer(from_fn_with_state(face.clone(), cors::answer))
}

/// A request that may use the bus.
#[derive(Clone, Copy, Debug)]
struct BusCaller;

impl FromRequestParts<BeamFace> for BusCaller {
    type Rejection = BeamProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        face: &BeamFace,
    ) -> Result<Self, BeamProblemResponse> {
        let Some(key) = &face.beam.settings().bus.api_key else {
            // Without a key, the bus is for programs on this machine.
            return if BeamAccess::of(face, parts).local {
                Ok(Self)
            } else {
                Err(BeamProblem::unauthorized().into())
            };
        };
        let mut all = parts.headers.get_all(AUTHORIZATION).iter();
        let Some(header) = all.next() else {
            return Err(BeamProblem::unauthorized().into());
        };
        // The scheme is compared exactly, and a second header is ambiguous.
        let presented = header.to_str().ok();
        let presented = presented.and_then(|text| text.strip_prefix("Bearer "));
        let is_right = presented.is_some_and(|presented| key.matches(presented));
        if is_right && all.next().is_none() {
            Ok(Self)
        } else {
            let problem = BeamProblem::unauthorized();
            Err(BeamProblemResponse::wrong_credential(problem))
        }
    }
}

/// A request that may read the statistics.
#[derive(Clone, Copy, Debug)]
struct StatsReader;

impl FromRequestParts<BeamFace> for StatsReader {
    type Rejection = BeamProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        face: &BeamFace,
    ) -> Result<Self, BeamProblemResponse> {
        if !face.beam.settings().bus.stats_public {
            BusCaller::from_request_parts(parts, face).await?;
        }
        Ok(Self)
    }
}
