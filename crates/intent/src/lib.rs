//! The Intent Protocol 2.1: publishers and workers in any language over plain HTTP.
//!
//! Handlers translate requests into commands and results into responses. `docs/protocols/intent.md` lists what the
//! protocol leaves open and what we add to it.

mod admin;
mod authed_request;
mod batch;
mod claim;
mod dashboard;
mod events;
mod json_out;
mod kv;
mod lease;
mod metrics;
mod nodes;
pub mod openapi;
mod path_segment;
mod publish;
pub mod query;
mod rate_limited_keys;
mod read;
mod reject;
mod routes;
pub mod settings;
pub mod signature;
mod wire;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_engine::{Engine, LedgerHealth};
use consign_kernel::error::Code;
use tokio::sync::watch;

use consign_web::credentials::SecretDigest;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::request_id::RequestId;

use json_out::Json;
use rate_limited_keys::RateLimitedKeys;
use reject::Reject;

/// The server version that the protocol defines; clients compare it.
const API_VERSION: &str = "7.61";

/// The configuration of the face. An absent secret matches nothing.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the protocol names these as independent switches"
)]
pub struct Options {
    pub admin_secret: Option<SecretDigest>,
    pub dashboard_password: Option<SecretDigest>,
    pub metrics_token: Option<SecretDigest>,
    pub trust_proxy: bool,
    pub enforce_https: bool,
    pub require_signatures: bool,
    pub maintenance: bool,
    /// Becomes true when the process shuts down: long polls and streams end.
    pub draining: watch::Receiver<bool>,
    /// Releases the reserve of disk space.
    pub release_reserve: Option<ReleaseReserve>,
    /// Public keys of other faces, for the one JWK set of this server.
    pub additional_keys: Option<AdditionalKeys>,
    /// The `OpenAPI` document of another face, to be merged into this one's.
    pub additional_openapi: Option<serde_json::Value>,
}

impl Options {
    const fn policy(&self) -> ListenerPolicy {
        ListenerPolicy {
            trust_proxy: self.trust_proxy,
            enforce_https: self.enforce_https,
            maintenance: self.maintenance,
        }
    }
}

/// Returns the current keys, each a JWK.
#[derive(Clone)]
pub struct AdditionalKeys(pub Arc<dyn Fn() -> Vec<serde_json::Value> + Send + Sync>);

impl fmt::Debug for AdditionalKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdditionalKeys")
    }
}

/// Releases disk space on a full disk, once, for an operator who deletes something.
#[derive(Clone)]
pub struct ReleaseReserve(pub Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for ReleaseReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReleaseReserve")
    }
}

/// The state that every handler shares.
#[derive(Clone)]
struct IntentFace {
    engine: Engine,
    options: Arc<Options>,
    rate_limited_keys: Arc<RateLimitedKeys>,
}

impl fmt::Debug for IntentFace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("intent::IntentFace")
    }
}

pub fn router(engine: Engine, options: Options) -> Router {
    let face = IntentFace {
        engine,
        options: Arc::new(options),
        rate_limited_keys: Arc::default(),
    };
    routes::router()
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .with_state(face)
}

/// The error body for a request whose head cannot be parsed.
pub const UNREADABLE_BODY: &str = r#"{"error":{"code":"invalid_request","message":"The request line or its headers are malformed or too large."}}"#;

/// The response to a request whose handler panicked.
pub fn on_panic(id: Option<&RequestId>) -> Response {
    let id = id.map(RequestId::as_str).unwrap_or_default();
    Reject::new(
        Code::Internal,
        format!("Internal error; tell the operator request id {id}."),
    )
    .into_response()
}

/// The response to an address that presented too many wrong credentials.
pub fn on_too_many_failures(_path: &str) -> Response {
    Reject::new(
        Code::RateLimited,
        "Too many wrong credentials came from this address; try again in a minute.",
    )
    .into_response()
}

async fn root() -> Response {
    format!("Intent Bus V{API_VERSION}").into_response()
}

async fn health(State(face): State<IntentFace>) -> Response {
    let ledger = face.engine.ledger_health().await;
    if ledger != LedgerHealth::Healthy {
        return Reject::unwell(ledger);
    }
    let draining = face.engine.claims_paused().is_some() || *face.options.draining.borrow();
    let mut body = Json::object();
    body.bool("ok", true)
        .seconds("ts", Some(face.engine.wall()))
        .text("version", API_VERSION)
        .text("consign_version", env!("CARGO_PKG_VERSION"))
        .bool("draining", draining);
    body.into_response()
}

/// The key is checked first, as for every other path, so that an unauthenticated client does not learn which paths
/// exist.
async fn unknown_path(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    face.reject_unknown(request).await?;
    Err(Reject::new(
        Code::NotFound,
        "There is nothing at this path.",
    ))
}

async fn wrong_method(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    face.reject_unknown(request).await?;
    Err(Reject::new(
        Code::MethodNotAllowed,
        "This path does not take this method; see the Allow header.",
    ))
}
