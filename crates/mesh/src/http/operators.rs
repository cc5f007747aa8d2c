//! The routes of operators: meshes, members and invites, retention and checks.
//!
//! Invariant: every route needs an operator's credentials, and no response has a key or a token, except the invite that was
//! created just now.

mod dead_items;
mod guard;
mod invites;
mod keys;
mod members;
mod meshes;
mod reads;
mod subscriptions;
mod upkeep;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use consign_kernel::error::Code;
use consign_web::json_out::json_response;
use consign_web::reject::Reject;
use http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::face::MeshFace;
use crate::broker::BrokerError;

pub(super) fn routes(face: &MeshFace) -> Router<MeshFace> {
    let routes = Router::new()
        .merge(meshes::routes())
        .merge(invites::routes())
        .merge(keys::routes())
        .merge(members::routes())
        .merge(reads::routes())
        .merge(subscriptions::routes())
        .merge(dead_items::routes())
        .merge(upkeep::routes());
    routes.route_layer(from_fn_with_state(face.clone(), guard::guard))
}

/// The body of a request; an absent one is an empty object.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Reject> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        Reject::new(
            Code::InvalidRequest,
            format!("The body is invalid: {error}"),
        )
    })
}

fn invalid(text: impl std::fmt::Display) -> Reject {
    Reject::new(Code::InvalidRequest, text.to_string())
}

fn shown(body: &impl Serialize) -> Response {
    json_response(serde_json::to_string(body).expect("bodies have string keys only"))
}

fn created(body: &impl Serialize) -> Response {
    let mut response = shown(body);
    *response.status_mut() = StatusCode::CREATED;
    response
}

/// An error of the broker in the format of the server.
pub(super) fn rejection(error: BrokerError) -> Reject {
    match error {
        BrokerError::NoSuchMesh(_)
        | BrokerError::NoSuchMember(_)
        | BrokerError::NoSuchInvite(_)
        | BrokerError::NoSuchTopic(_)
        | BrokerError::NoSuchSubscription { .. }
        | BrokerError::NoSuchItem(_)
        | BrokerError::NoSuchKey(_) => Reject::new(Code::NotFound, error.to_string()),
        BrokerError::SlugTaken(_) => Reject::new(Code::SlugTaken, error.to_string()),
        BrokerError::StateFull
        | BrokerError::TopicsFull
        | BrokerError::TooManySubscriptions(_)
        | BrokerError::Rotation(_) => Reject::new(Code::InvalidRequest, error.to_string()),
        BrokerError::Join(refusal) => Reject::new(Code::InvalidRequest, refusal.as_str()),
        BrokerError::Ledger(error) => error.into(),
    }
}
