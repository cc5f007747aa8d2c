//! The Intent Protocol 2.1: publishers and workers in any language over plain HTTP.
//!
//! Handlers translate requests into commands and results into responses. `docs/protocols/intent.md` lists what the
//! protocol leaves open and what we add to it.

mod admin;
mod audit;
mod authed_request;
mod batch;
mod bulk;
mod claim;
mod dashboard;
mod events;
mod exposed;
mod failure;
mod find;
mod grants;
mod ignored;
mod keys;
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
mod routes;
pub mod settings;
pub mod signature;
mod users;
mod wire;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use consign_engine::{Engine, Error, ExposedQueues, Operator};
use consign_kernel::error::Code;
use consign_kernel::limits;
use tokio::sync::watch;

use consign_web::listener_policy::ListenerPolicy;
use consign_web::operator::OperatorCredentials;
use consign_web::operator_guard::OperatorGuard;

use consign_web::reject::Reject;
use consign_web::shell::{self, MetricsText, Mount, MountFuture, RootMount, Shell};
use http::request::Parts;
use rate_limited_keys::RateLimitedKeys;

/// The server version that the protocol defines; clients compare it.
pub const API_VERSION: &str = "7.61";

/// The configuration of the face.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the protocol names these as independent switches"
)]
pub struct Options {
    pub operators: OperatorCredentials,
    pub trust_proxy: bool,
    pub enforce_https: bool,
    pub require_signatures: bool,
    pub maintenance: bool,
    /// Becomes true when the process shuts down: long polls and streams end.
    pub draining: watch::Receiver<bool>,
    /// Releases the reserve of disk space.
    pub release_reserve: Option<ReleaseReserve>,
    /// The queues of other protocols that workers may serve.
    pub queues: Vec<Arc<dyn ExposedQueues>>,
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

/// Releases disk space on a full disk, once, for an operator who deletes something.
#[derive(Clone)]
pub struct ReleaseReserve(pub Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for ReleaseReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReleaseReserve")
    }
}

/// The protocol, as it is mounted in a server. Also the state that every handler shares.
#[derive(Clone)]
pub struct IntentFace {
    engine: Engine,
    options: Arc<Options>,
    operator_guard: OperatorGuard,
    rate_limited_keys: Arc<RateLimitedKeys>,
}

impl fmt::Debug for IntentFace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IntentFace")
    }
}

impl IntentFace {
    pub fn new(engine: Engine, options: Options) -> Self {
        let operators = options.operators.clone();
        Self {
            operator_guard: OperatorGuard::new(engine.clone(), operators, options.trust_proxy),
            engine,
            options: Arc::new(options),
            rate_limited_keys: Arc::default(),
        }
    }
}

/// A server whose root is this protocol.
pub fn shell(engine: Engine, options: Options, mounts: Vec<Arc<dyn Mount>>) -> Shell {
    let shell = shell::Options {
        engine: engine.clone(),
        operators: options.operators.clone(),
        draining: options.draining.clone(),
    };
    Shell::new(shell, Arc::new(IntentFace::new(engine, options)), mounts)
}

impl Mount for IntentFace {
    fn router(&self) -> Router {
        routes::router(self).with_state(self.clone())
    }

    fn openapi(&self) -> serde_json::Value {
        openapi::document()
    }

    fn metrics<'a>(
        &'a self,
        operator: Operator,
        text: &'a mut MetricsText,
    ) -> MountFuture<'a, Result<(), Error>> {
        Box::pin(metrics::write(&self.engine, operator, text))
    }

    fn is_path_of(&self, _path: &str) -> bool {
        true
    }

    fn on_too_many_failures(&self) -> Response {
        Reject::new(
            Code::RateLimited,
            "Too many wrong credentials came from this address; try again in a minute.",
        )
        .into_response()
    }
}

impl RootMount for IntentFace {
    fn greeting(&self) -> String {
        format!("Intent Bus V{API_VERSION}")
    }

    fn version(&self) -> &'static str {
        API_VERSION
    }

    fn documentation(&self) -> &'static str {
        openapi::html()
    }

    fn check_transport<'a>(&'a self, parts: &'a Parts) -> MountFuture<'a, Result<(), Reject>> {
        Box::pin(Self::check_transport(self, parts))
    }

    fn admit(&self, request: Request) -> MountFuture<'_, Result<(), Reject>> {
        Box::pin(async move {
            let request = self
                .authenticate(request, limits::BODY_BYTES_MAX, None)
                .await?;
            request.pass().await
        })
    }

    fn admit_unknown(&self, request: Request) -> MountFuture<'_, Result<(), Reject>> {
        Box::pin(self.reject_unknown(request))
    }
}
