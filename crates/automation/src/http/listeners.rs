//! The listeners of a configuration: API and webhooks, each with its own server.
//!
//! Both are bound before anything is served, so that an address in use is detected at the start. The control socket is served
//! separately.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::program::Program;
use crate::runtime::Runtime;
use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::watch;

use super::api_error::ApiError;
use super::loader::Loader;
use super::{
    ApiAccess, Options, UNREADABLE_BODY, listener_policy, on_panic, on_too_many_failures, router,
    until_draining, webhooks,
};
use consign_web::credentials::{self, SecretDigest};
use consign_web::layers;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::server::{self, Server};
use consign_web::throttle::TooManyFailures;
use consign_web::unix::UnixSocket;

/// Each connection may hold a body, and anyone may send one.
const WEBHOOK_CONNECTIONS_MAX: usize = 512;
/// A limit per client, so that no client uses all connections; a proxy still gets enough.
const WEBHOOK_CONNECTIONS_PER_CLIENT_MAX: usize = 128;
/// Short, because the signature is checked only after the request was received.
const WEBHOOK_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The value is not quoted, because it may come from a variable.
    #[error("`{key}` is not an address; write one such as 127.0.0.1:8080")]
    Address {
        key: &'static str,
        source: io::Error,
    },
    #[error(transparent)]
    Server(#[from] server::Error),
}

/// The maximum number of connections of each listener.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionShares {
    pub api: usize,
    pub webhooks: usize,
}

/// The common settings of all listeners.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Becomes true when the process is about to stop.
    pub draining: watch::Receiver<bool>,
    pub binary_path: Option<PathBuf>,
    pub loader: Loader,
    /// Random per process; request ids are derived from it.
    pub request_id_seed: u128,
    /// Whether wrong credentials are counted; off in tests that present many from one address.
    pub throttles: bool,
    /// The policy of the server. It does not apply to the control socket, which belongs to the operator.
    pub policy: ListenerPolicy,
}

impl Serving {
    fn options(&self, access: ApiAccess) -> Options {
        Options {
            access,
            draining: self.draining.clone(),
            binary_path: self.binary_path.clone(),
            loader: self.loader.clone(),
        }
    }

    fn layers(&self) -> layers::Options {
        layers::Options {
            trust_proxy: self.policy.trust_proxy,
            request_id_seed: self.request_id_seed,
            on_panic,
            on_too_many_failures: self
                .throttles
                .then(|| TooManyFailures(Arc::new(on_too_many_failures))),
        }
    }
}

/// Bound addresses that are not served yet.
#[derive(Debug)]
pub struct AutomationListeners {
    api: Option<Server>,
    webhooks: Option<Server>,
}

impl AutomationListeners {
    /// Must be called inside a tokio runtime.
    pub async fn bind(
        program: &Program,
        shares: ConnectionShares,
        behind_proxy: bool,
    ) -> Result<Self, Error> {
        let config = program.config();
        let api = if config.api.enabled {
            let addr = address("api.listen", &config.api.listen).await?;
            Some(Server::bind(server::Options {
                connections_max: shares.api.min(server::CONNECTIONS_MAX_DEFAULT),
                behind_proxy,
                ..api_options(addr)
            })?)
        } else {
            None
        };
        let listen = config.webhooks.as_ref();
        let listen = listen.and_then(|webhooks| webhooks.listen.as_deref());
        let webhooks = match listen {
            Some(listen) => {
                let addr = address("webhooks.listen", listen).await?;
                Some(Server::bind(server::Options {
                    connections_max: shares.webhooks.min(WEBHOOK_CONNECTIONS_MAX),
                    behind_proxy,
                    ..webhook_options(addr)
                })?)
            }
            None => None,
        };
        Ok(Self { api, webhooks })
    }

    pub fn api(&self) -> Option<SocketAddr> {
        self.api.as_ref().map(Server::local_addr)
    }

    pub fn webhooks(&self) -> Option<SocketAddr> {
        self.webhooks.as_ref().map(Server::local_addr)
    }

    /// Serves until the drain starts, then until open requests are answered or time out.
    pub async fn run(self, runtime: Runtime, serving: Serving) -> Result<(), Error> {
        let options = || serving.options(ApiAccess::Tokens);
        let api = router(runtime.clone(), options());
        let hooks = webhooks::router(runtime, options());
        let (api, hooks) = tokio::join!(
            serve(self.api, api, &serving),
            serve(self.webhooks, hooks, &serving)
        );
        api.and(hooks)
    }
}

/// Serves the control socket to callers that send its token as a bearer token with each request. The mode of the socket file is
/// not enough: a plugin runs as the same user, and no sandbox prevents it from connecting.
pub async fn control(socket: UnixSocket, runtime: Runtime, serving: &Serving, token: SecretDigest) {
    let router = router(runtime, serving.options(ApiAccess::Local));
    let router = router.layer(from_fn_with_state(token, require_control_token));
    let service = layers::around(router, serving.layers());
    let mut draining = serving.draining.clone();
    let patience = server::DRAIN_TIMEOUT_DEFAULT;
    socket
        .run(service, until_draining(&mut draining), patience)
        .await;
}

async fn require_control_token(
    State(token): State<SecretDigest>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let presented = credentials::bearer(request.headers());
    if presented.is_some_and(|presented| token.matches(presented)) {
        return next.run(request).await;
    }
    ApiError::without_control_token().into_response()
}

fn api_options(addr: SocketAddr) -> server::Options {
    server::Options {
        unreadable_body: UNREADABLE_BODY,
        ..server::Options::new(addr)
    }
}

fn webhook_options(addr: SocketAddr) -> server::Options {
    server::Options {
        connections_max: WEBHOOK_CONNECTIONS_MAX,
        connections_per_client_max: Some(WEBHOOK_CONNECTIONS_PER_CLIENT_MAX),
        head_timeout: WEBHOOK_HEAD_TIMEOUT,
        ..api_options(addr)
    }
}

async fn address(key: &'static str, listen: &str) -> Result<SocketAddr, Error> {
    let found = resolved(listen).await;
    found.map_err(|source| Error::Address { key, source })
}

/// A port without a host means all addresses of the machine.
async fn resolved(listen: &str) -> io::Result<SocketAddr> {
    let everywhere;
    let listen = if listen.starts_with(':') {
        everywhere = format!("0.0.0.0{listen}");
        &everywhere
    } else {
        listen
    };
    let mut found = tokio::net::lookup_host(listen).await?;
    let nothing = || io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    found.next().ok_or_else(nothing)
}

async fn serve(
    server: Option<Server>,
    router: axum::Router,
    serving: &Serving,
) -> Result<(), Error> {
    let Some(server) = server else {
        return Ok(());
    };
    let mut draining = serving.draining.clone();
    let router = listener_policy::apply(router, serving.policy);
    let service = layers::around(router, serving.layers());
    Ok(server.run(service, until_draining(&mut draining)).await?)
}
