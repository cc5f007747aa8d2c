//! The documentation of the face: an `OpenAPI` 3.1 document and an HTML page, both generated from the table of
//! routes.
//!
//! Invariant: every route is documented, because a `Route` cannot be created without its description. Neither
//! document contains a secret, but both need credentials, so that an unauthenticated client does not learn which
//! routes exist.

mod document;
pub(super) mod operation;
pub(super) mod operations;
mod page;
mod schema;
mod schemas;

use std::sync::LazyLock;

use serde_json::Value;

use super::routes::routes;

/// The `OpenAPI` document of the protocol and of the routes of the server itself.
pub fn document() -> Value {
    document::document(&routes())
}

/// The documentation as one self-contained HTML page.
pub fn html() -> &'static str {
    static HTML: LazyLock<String> = LazyLock::new(|| page::page(&routes()));
    &HTML
}
