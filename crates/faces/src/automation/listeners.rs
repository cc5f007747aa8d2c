//! The two addresses of a configuration: the API's and the webhooks', each with a server of its own.
//!
//! They are bound before anything is served, so that a taken address is known at the start. The control socket is the third way in.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use consign_automation::program::Program;
use consign_automation::runtime::Runtime;
use tokio::sync::watch;

use super::loader::Loader;
use super::reject::Reject;
use super::{
    Access, Options, UNREADABLE_BODY, drained, listener_policy, on_panic, on_too_many_failures,
    router, webhooks,
};
use crate::web::credentials::{self, SecretDigest};
use crate::web::layers;
use crate::web::listener_policy::ListenerPolicy;
use crate::web::server::{self, Server};
use crate::web::unix::UnixSocket;

/// Each may hold a body, and anybody may send one.
const WEBHOOK_CONNECTIONS_MAX: usize = 512;
/// So that no stranger takes all of them alone; a proxy in front still gets enough.
const WEBHOOK_CONNECTIONS_PER_CLIENT_MAX: usize = 128;
/// Whoever is silent must soon make room, for no signature is asked for before the request has come.
const WEBHOOK_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Does not quote it, for a variable may have filled it in.
    #[error("`{key}` is no address; write one such as 127.0.0.1:8080")]
    Address {
        key: &'static str,
        source: io::Error,
    },
    #[error(transparent)]
    Server(#[from] server::Error),
}

/// How many connections each of the two may have.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    pub api: usize,
    pub webhooks: usize,
}

/// What both servers are told.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Turns true when the process is about to end.
    pub draining: watch::Receiver<bool>,
    pub binary_path: Option<PathBuf>,
    pub loader: Loader,
    /// Random per process; request ids are derived from it.
    pub request_id_seed: u128,
    /// Whether wrong credentials are counted; off in tests that present many from one address.
    pub throttles: bool,
    /// The switches of the server beside which this runs. They do not hold for the control socket, which is the operator's.
    pub policy: ListenerPolicy,
}

impl Serving {
    fn options(&self, access: Access) -> Options {
        Options {
            access,
            draining: self.draining.clone(),
            binary_path: self.binary_path.clone(),
            loader: self.loader.clone(),
        }
    }

    const fn layers(&self) -> layers::Options {
        layers::Options {
            trust_proxy: self.policy.trust_proxy,
            request_id_seed: self.request_id_seed,
            on_panic,
            on_too_many_failures: if self.throttles {
                Some(on_too_many_failures)
            } else {
                None
            },
        }
    }
}

/// Bound addresses at which nobody answers yet.
#[derive(Debug)]
pub struct Listeners {
    api: Option<Server>,
    webhooks: Option<Server>,
}

impl Listeners {
    /// Must be called inside a tokio runtime.
    pub async fn bind(
        program: &Program,
        shares: Shares,
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

    /// Serves until it is time to drain, then until requests under way are answered or took too long.
    pub async fn run(self, runtime: Runtime, serving: Serving) -> Result<(), Error> {
        let options = || serving.options(Access::Tokens);
        let api = router(runtime.clone(), options());
        let hooks = webhooks::router(runtime, options());
        let (api, hooks) = tokio::join!(
            serve(self.api, api, &serving),
            serve(self.webhooks, hooks, &serving)
        );
        api.and(hooks)
    }
}

/// Serves everything on a socket to whoever sends its token with each request, as a bearer. That the file of the socket is its
/// user's alone is not enough: a plugin runs as that user, and no sandbox keeps it from connecting.
pub async fn control(socket: UnixSocket, runtime: Runtime, serving: &Serving, token: SecretDigest) {
    let router = router(runtime, serving.options(Access::Local));
    let router = router.layer(from_fn_with_state(token, token_first));
    let service = layers::around(router, serving.layers());
    let mut draining = serving.draining.clone();
    let patience = server::DRAIN_TIMEOUT_DEFAULT;
    socket.run(service, drained(&mut draining), patience).await;
}

async fn token_first(
    State(token): State<SecretDigest>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let presented = credentials::bearer(request.headers());
    if presented.is_some_and(|presented| token.matches(presented)) {
        return next.run(request).await;
    }
    Reject::without_control_token().into_response()
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
    let nothing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
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
    let router = listener_policy::layered(router, serving.policy);
    let service = layers::around(router, serving.layers());
    Ok(server.run(service, drained(&mut draining)).await?)
}
