//! The documentation of the face: an `OpenAPI` 3.1 document and an HTML page, both generated from the table of
//! routes.
//!
//! Invariant: every route is documented, because a `Route` cannot be created without its description. Neither
//! document contains a secret, but both need credentials, so that an unauthenticated client does not learn which
//! routes exist.

mod access;
mod document;
pub(super) mod operations;
mod schemas;

use std::sync::LazyLock;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_kernel::error::Code;
use consign_kernel::limits;
use consign_web::openapi::{Endpoint, merge};
use http::{HeaderValue, header};
use serde_json::Value;

use super::IntentFace;
use super::dashboard::POLICY;
use super::json_out::json_response;
use super::reject::Reject;
use super::routes::routes;

fn endpoints() -> Vec<Endpoint> {
    routes().into_iter().map(Endpoint::from).collect()
}

/// The `OpenAPI` document as JSON text.
pub fn json() -> &'static str {
    static JSON: LazyLock<String> = LazyLock::new(|| json_with(&[]));
    &JSON
}

/// The same with the routes of other protocols of this server.
pub fn json_with(others: &[&Value]) -> String {
    let whole = merge(document::document(&endpoints()), others.iter().copied());
    serde_json::to_string_pretty(&whole).expect("it is JSON already")
}

/// The documentation as one self-contained HTML page.
pub fn html() -> &'static str {
    static HTML: LazyLock<String> = LazyLock::new(|| document::page(&endpoints()));
    &HTML
}

pub(super) async fn document(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    admit(&face, request).await?;
    let text = face
        .options
        .additional_openapi
        .as_ref()
        .map(|other| json_with(&[other]));
    Ok(json_response(text.unwrap_or_else(|| json().to_owned())))
}

pub(super) async fn docs(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    admit(&face, request).await?;
    let mut response = html().into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    );
    Ok(response)
}

/// Any client, or an operator. A request without an API key gets the Basic challenge that browsers need.
async fn admit(face: &IntentFace, request: Request) -> Result<(), Reject> {
    if request.headers().contains_key("x-api-key") {
        let request = face.authenticate(request, limits::BODY_BYTES_MAX).await?;
        return request.pass().await;
    }
    match face.authenticate_operator(request).await {
        Ok(_) => Ok(()),
        Err(mut reject) if reject.code == Code::Unauthorized => {
            reject.message =
                "Authentication required. Send X-API-KEY or X-Admin-Token, or Basic credentials of the user admin."
                    .into();
            Err(reject)
        }
        Err(reject) => Err(reject),
    }
}
