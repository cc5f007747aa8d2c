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

use consign_web::openapi::Endpoint;
use serde_json::Value;

use super::routes::routes;

fn endpoints() -> Vec<Endpoint> {
    routes().into_iter().map(Endpoint::from).collect()
}

/// The `OpenAPI` document of the protocol and of the routes of the server itself.
pub fn document() -> Value {
    document::document(&endpoints())
}

/// The documentation as one self-contained HTML page.
pub fn html() -> &'static str {
    static HTML: LazyLock<String> = LazyLock::new(|| document::page(&endpoints()));
    &HTML
}
