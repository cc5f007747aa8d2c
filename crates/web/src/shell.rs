//! The server itself: the routes that belong to no protocol, and the protocols that are mounted beside them.
//!
//! The shell owns `/`, `/health`, `/metrics`, `/admin/status`, `/admin/events`, `/docs`, `/openapi.json`, the JWK set, and the responses to unknown paths, unless
//! a protocol answers those below its own paths. A protocol adds a [`Mount`]: its routes, its part of the documents, its public
//! keys and its metrics. One of them is the
//! [`RootMount`]: the protocol whose clients also use the routes of the shell, so it authenticates them.

mod descriptions;
mod metrics;
mod operator_events;
mod report;
mod status;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get};
use consign_engine::{Engine, Error, LedgerHealth, Operator};
use consign_kernel::error::Code;
use consign_kernel::limits;
use consign_kernel::receipt;
use http::request::Parts;
use http::{HeaderValue, Method, Uri, header};
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt as _;

use crate::body;
use crate::body_budget::BodySender;
use crate::http_meter::HttpMeter;
use crate::json_out::{Json, json_response};
use crate::openapi::merge;
use crate::operator::{AdminRight, OperatorCredentials};
use crate::reject::Reject;
use crate::request_id::RequestId;
use crate::throttle::TooManyFailures;

pub use descriptions::{RootTexts, SERVER_TAG, endpoints};
pub use metrics::MetricsText;
pub use report::{PartReport, ProblemLevel, Reporter, ServerProblem};

/// The content security policy of every page: no scripts, no requests, no frames.
pub const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The error body for a request whose head cannot be parsed.
pub const UNREADABLE_BODY: &str = r#"{"error":{"code":"invalid_request","message":"The request line or its headers are malformed or too large."}}"#;

/// The path of sockets, which protocols share.
pub const SOCKET_PATH: &str = "/ws";

/// The routes of the shell. The router has a handler for each of them, and [`endpoints`] a description.
const PATHS: [&str; 8] = [
    "/",
    "/health",
    "/.well-known/jwks.json",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/admin/status",
    "/admin/events",
];

/// The fields of the shell in the response of `/health`.
const HEALTH_FIELDS: [&str; 5] = ["ok", "ts", "version", "consign_version", "draining"];

pub type MountFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A protocol's share of the requests for [`SOCKET_PATH`].
#[derive(Clone, Debug)]
pub struct SocketRoute {
    /// Whether a request belongs to the protocol. The first mount that takes it answers.
    pub takes: fn(&Uri) -> bool,
    /// Answers these requests, with its state and its layers.
    pub router: Router,
}

/// What a protocol adds to the server.
pub trait Mount: Send + Sync + 'static {
    /// The routes, with their state.
    fn router(&self) -> Router;

    /// What the protocol answers under [`SOCKET_PATH`], which is not among its routes.
    fn socket(&self) -> Option<SocketRoute> {
        None
    }

    /// The `OpenAPI` document of the routes.
    fn openapi(&self) -> Value;

    /// The current public keys, each a JWK.
    fn public_keys(&self) -> Vec<Value> {
        Vec::new()
    }

    /// Writes the metrics of the protocol.
    fn metrics<'a>(
        &'a self,
        operator: Operator,
        text: &'a mut MetricsText,
    ) -> MountFuture<'a, Result<(), Error>> {
        let _ = (operator, text);
        Box::pin(std::future::ready(Ok(())))
    }

    /// The figures and problems of the protocol for operators, and their name in `/admin/status`.
    fn report(
        &self,
        operator: Operator,
    ) -> MountFuture<'_, Result<Option<(&'static str, PartReport)>, Error>> {
        let _ = operator;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Fields of the protocol in the response of `/health`. They do not replace fields of the shell or of an earlier
    /// mount.
    fn health_fields(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Whether the responses of the server to requests for this path have the format of this protocol.
    fn is_path_of(&self, path: &str) -> bool;

    /// The response to a request for an unknown path of this protocol. Without one, the root mount authenticates the client
    /// and the shell responds.
    fn on_unknown_path(&self, request: &Request) -> Option<Response> {
        let _ = request;
        None
    }

    /// The response to an address that presented too many wrong credentials.
    fn on_too_many_failures(&self) -> Response;
}

/// The protocol whose clients also use the routes of the shell.
pub trait RootMount: Mount {
    /// The text of `/`.
    fn greeting(&self) -> String;

    /// The version in `/health`, which clients of the protocol compare.
    fn version(&self) -> &'static str;

    /// The page of `/docs`.
    fn documentation(&self) -> &'static str;

    /// Refuses plain HTTP where HTTPS is enforced.
    fn check_transport<'a>(&'a self, parts: &'a Parts) -> MountFuture<'a, Result<(), Reject>>;

    /// Authenticates a client for the documents.
    fn admit(&self, request: Request) -> MountFuture<'_, Result<(), Reject>>;

    /// Authenticates a request for an unknown path or with a wrong method, as for every other path, so that an
    /// unauthenticated client does not learn which paths exist.
    fn admit_unknown(&self, request: Request) -> MountFuture<'_, Result<(), Reject>>;
}

#[derive(Debug)]
pub struct Options {
    pub engine: Engine,
    pub operators: OperatorCredentials,
    /// Becomes true when the process shuts down.
    pub draining: watch::Receiver<bool>,
}

/// The routes of the server and of all mounts.
#[derive(Clone)]
pub struct Shell {
    inner: Arc<ShellState>,
}

struct ShellState {
    options: Options,
    root: Arc<dyn RootMount>,
    mounts: Vec<Arc<dyn Mount>>,
    /// The merged document.
    openapi: String,
    meter: Arc<HttpMeter>,
    reporters: OnceLock<Vec<Arc<dyn Reporter>>>,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shell")
    }
}

impl Shell {
    pub fn new(options: Options, root: Arc<dyn RootMount>, mounts: Vec<Arc<dyn Mount>>) -> Self {
        let further: Vec<Value> = mounts.iter().map(|mount| mount.openapi()).collect();
        let openapi = merged_openapi(root.openapi(), &further);
        let document = serde_json::from_str(&openapi).unwrap_or_default();
        Self {
            inner: Arc::new(ShellState {
                options,
                root,
                mounts,
                openapi,
                meter: Arc::new(HttpMeter::new(&document)),
                reporters: OnceLock::new(),
            }),
        }
    }

    /// Adds the parts that are not protocols. Only the first call has an effect.
    pub fn report_on(&self, reporters: Vec<Arc<dyn Reporter>>) {
        // A second call would be a mistake of the wiring, and loses figures only.
        let _ = self.inner.reporters.set(reporters);
    }

    fn reporters(&self) -> &[Arc<dyn Reporter>] {
        self.inner.reporters.get().map_or(&[], Vec::as_slice)
    }

    /// The counters of the routes, for the layers around the router.
    pub fn http_meter(&self) -> Arc<HttpMeter> {
        Arc::clone(&self.inner.meter)
    }

    /// All routes. Unknown paths, and wrong methods of the routes of the shell and of the root mount, are answered by
    /// the shell; the other mounts answer wrong methods themselves.
    pub fn router(&self) -> Router {
        let handlers: [MethodRouter<Self>; PATHS.len()] = [
            get(root),
            get(health),
            get(public_keys),
            get(metrics::metrics),
            get(openapi),
            get(docs),
            get(status::status),
            get(operator_events::events),
        ];
        let own = PATHS.into_iter().zip(handlers);
        let own = own
            .fold(Router::new(), |router, (path, handler)| {
                router.route(path, handler)
            })
            .with_state(self.clone());
        let (unknown, wrong) = (self.clone(), self.clone());
        let mut router = own
            .merge(self.inner.root.router())
            .method_not_allowed_fallback(async move |request: Request| {
                wrong.refuse(request, Code::MethodNotAllowed).await
            })
            .fallback(async move |request: Request| unknown.unknown_path(request).await);
        for mount in &self.inner.mounts {
            router = router.merge(mount.router());
        }
        let sockets = self.inner.mounts.iter().filter_map(|mount| mount.socket());
        let sockets: Arc<[SocketRoute]> = sockets.collect();
        if sockets.is_empty() {
            return router;
        }
        let shell = self.clone();
        let socket = any(async move |request: Request| {
            // A wrong method belongs to no protocol: the first one says so.
            let is_get = request.method() == Method::GET;
            let takes = |socket: &&SocketRoute| !is_get || (socket.takes)(request.uri());
            match sockets.iter().find(takes) {
                Some(socket) => match socket.router.clone().oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                },
                None => shell.unknown_path(request).await,
            }
        });
        router.route(SOCKET_PATH, socket)
    }

    /// The responses to addresses with too many wrong credentials, in the format of the requested protocol.
    pub fn on_too_many_failures(&self) -> TooManyFailures {
        let shell = self.clone();
        TooManyFailures(Arc::new(move |path| match shell.mount_of(path) {
            Some(mount) => mount.on_too_many_failures(),
            None => shell.inner.root.on_too_many_failures(),
        }))
    }

    fn mount_of(&self, path: &str) -> Option<&Arc<dyn Mount>> {
        let mut mounts = self.inner.mounts.iter();
        mounts.find(|mount| mount.is_path_of(path))
    }

    async fn unknown_path(&self, request: Request) -> Response {
        let mount = self.mount_of(request.uri().path());
        match mount.and_then(|mount| mount.on_unknown_path(&request)) {
            Some(response) => response,
            None => self.refuse(request, Code::NotFound).await.into_response(),
        }
    }

    async fn refuse(&self, request: Request, code: Code) -> Reject {
        if let Err(reject) = self.inner.root.admit_unknown(request).await {
            return reject;
        }
        let message = if code == Code::NotFound {
            "There is nothing at this path."
        } else {
            "This path does not take this method; see the Allow header."
        };
        Reject::new(code, message)
    }
}

/// The response to a request whose handler panicked.
pub fn on_panic(id: Option<&RequestId>) -> Response {
    let id = id.map(RequestId::as_str).unwrap_or_default();
    Reject::new(
        Code::Internal,
        format!("Internal error; tell the operator request id {id}."),
    )
    .into_response()
}

/// One document of all routes, as JSON text.
pub fn merged_openapi(root: Value, further: &[Value]) -> String {
    serde_json::to_string_pretty(&merge(root, further)).expect("it is JSON already")
}

async fn root(State(shell): State<Shell>) -> Response {
    shell.inner.root.greeting().into_response()
}

async fn health(State(shell): State<Shell>) -> Response {
    let Options {
        engine, draining, ..
    } = &shell.inner.options;
    let ledger = engine.ledger_health().await;
    if ledger != LedgerHealth::Healthy {
        return Reject::unwell(ledger);
    }
    let draining = engine.claims_paused().is_some() || *draining.borrow();
    let mut body = Json::object();
    body.bool("ok", true)
        .seconds("ts", Some(engine.wall()))
        .text("version", shell.inner.root.version())
        .text("consign_version", env!("CARGO_PKG_VERSION"))
        .bool("draining", draining);
    let fields = shell.inner.mounts.iter();
    for (name, value) in further_fields(fields.flat_map(|mount| mount.health_fields())) {
        body.raw(name, &value.to_string());
    }
    body.into_response()
}

/// The fields that the shell does not have itself, each once.
fn further_fields(
    fields: impl Iterator<Item = (&'static str, Value)>,
) -> Vec<(&'static str, Value)> {
    let mut further: Vec<(&'static str, Value)> = Vec::new();
    for (name, value) in fields {
        let is_taken = HEALTH_FIELDS.contains(&name) || further.iter().any(|(had, _)| *had == name);
        if !is_taken {
            further.push((name, value));
        }
    }
    further
}

/// Public: verification needs the keys, and they are not secret.
async fn public_keys(State(shell): State<Shell>) -> Response {
    let own = receipt::jwks(&shell.inner.options.engine.public_keys());
    let further: Vec<Value> = shell
        .inner
        .mounts
        .iter()
        .flat_map(|mount| mount.public_keys())
        .collect();
    if further.is_empty() {
        return json_response(own);
    }
    let mut set: Value = serde_json::from_str(&own).unwrap_or_default();
    if let Some(keys) = set["keys"].as_array_mut() {
        keys.extend(further);
    }
    json_response(set.to_string())
}

async fn openapi(State(shell): State<Shell>, request: Request) -> Result<Response, Reject> {
    shell.admit(request).await?;
    Ok(json_response(shell.inner.openapi.clone()))
}

async fn docs(State(shell): State<Shell>, request: Request) -> Result<Response, Reject> {
    shell.admit(request).await?;
    let mut response = shell.inner.root.documentation().into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(PAGE_POLICY),
    );
    Ok(response)
}

impl Shell {
    /// An operator who may read, with the complete request.
    async fn operator(&self, request: Request) -> Result<Operator, Reject> {
        let (parts, body) = request.into_parts();
        self.inner.root.check_transport(&parts).await?;
        let Options {
            operators, engine, ..
        } = &self.inner.options;
        let caller = operators.require(engine, &parts, AdminRight::Read).await?;
        let (max, deadline) = (limits::BODY_BYTES_MAX, body::DEADLINE_DEFAULT);
        body::receive(body, max, deadline, BodySender::Trusted).await?;
        Ok(caller.operator)
    }

    /// Any client, or an operator. A request without an API key gets the Basic challenge that browsers need.
    async fn admit(&self, request: Request) -> Result<(), Reject> {
        let root = &self.inner.root;
        if request.headers().contains_key("x-api-key") {
            return root.admit(request).await;
        }
        let (parts, body) = request.into_parts();
        root.check_transport(&parts).await?;
        let Options {
            operators, engine, ..
        } = &self.inner.options;
        match operators.require(engine, &parts, AdminRight::Read).await {
            Ok(_) => {
                let (max, deadline) = (limits::BODY_BYTES_MAX, body::DEADLINE_DEFAULT);
                body::receive(body, max, deadline, BodySender::Trusted).await?;
                Ok(())
            }
            Err(mut reject) if reject.code == Code::Unauthorized => {
                reject.message =
                    "Authentication required. Send X-API-KEY or X-Admin-Token, or Basic credentials of a user."
                        .into();
                Err(reject)
            }
            Err(reject) => Err(reject),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_of_a_mount_replaces_no_other_field_of_the_health() {
        let fields = [
            ("version", json!("0.6.0")),
            ("protocol", json!("beam/1")),
            ("protocol", json!("other/1")),
        ];
        let further = further_fields(fields.into_iter());
        assert_eq!(further, [("protocol", json!("beam/1"))]);
    }
}
