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
use consign_web::shell::{self, RootTexts};
use serde_json::Value;

use super::API_VERSION;
use super::routes::routes;

/// The routes of the protocol, and those of the shell.
fn endpoints() -> Vec<Endpoint> {
    let own = routes().into_iter().map(Endpoint::from);
    own.chain(shell::endpoints(&ROOT_TEXTS)).collect()
}

const ROOT_TEXTS: RootTexts = RootTexts {
    version: API_VERSION,
    anyone: access::ANYONE,
    metrics: access::METRICS,
    operator: access::OPERATOR,
    reader: access::READER,
    greeting_example: "Intent Bus V7.61",
    health_example: r#"{"ok":true,"ts":1794736915.312204,"version":"7.61","consign_version":"0.1.0","draining":false}"#,
    metrics_example: r#"intent_bus_intents_total{status="open",namespace="default"} 2"#,
};

/// The `OpenAPI` document of the protocol and of the routes of the server itself.
pub fn document() -> Value {
    document::document(&endpoints())
}

/// The documentation as one self-contained HTML page.
pub fn html() -> &'static str {
    static HTML: LazyLock<String> = LazyLock::new(|| document::page(&endpoints()));
    &HTML
}
