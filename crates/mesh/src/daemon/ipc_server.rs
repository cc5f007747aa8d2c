//! The listeners of the local interface: the socket file, and loopback if the settings open it.
//!
//! Invariant: a request is checked for its caller, then counted, and only then read and routed. A token that is not valid is
//! refused by the first of these checks, so it uses up nothing of what valid callers share.

use std::convert::Infallible;
use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use consign_web::server::{Options as ServerOptions, Peer, Server};
use consign_web::unix::{LOCAL_PEER, UnixSocket};
use http::{HeaderValue, Request, header};
use serde_json::json;
use tokio::task::JoinSet;
use tower::service_fn;

use super::DaemonEnd;
use super::ipc_limits::{RefusalLine, RefusalLog};
use super::metrics::DaemonMetric;
use super::private_file::{self, PRIVATE, PUBLIC};
use super::routes;
use super::shared::DaemonShared;
use crate::ipc::{
    IpcCaller, IpcHead, IpcPolicy, IpcRefusal, IpcTransport, check_head, path,
    redacted_authorization,
};

/// How long running requests have at the end of the daemon.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct IpcServer {
    unix: UnixSocket,
    tcp: Option<Server>,
}

impl IpcServer {
    /// Binds the listeners. The lock of the folder must be held.
    pub(super) fn bind(shared: &DaemonShared) -> Result<Self, DaemonEnd> {
        let sock = shared.folder.sock();
        let failed = |what: &dyn std::fmt::Display, error: &dyn std::fmt::Display| {
            DaemonEnd::general(format!("{what}: {error}"))
        };
        let unix = UnixSocket::bind(&sock)
            .map_err(|error| failed(&sock.display(), &error))?
            .with_peer(LOCAL_PEER);
        let config = shared.config();
        // The settings were checked; the socket is private until then.
        let mode = config.ipc.uds_permissions().unwrap_or(PRIVATE);
        std::fs::set_permissions(&sock, Permissions::from_mode(mode))
            .map_err(|error| failed(&sock.display(), &error))?;
        let tcp = if config.tcp_enabled(&shared.environment) {
            let host: IpAddr = config
                .ipc
                .http_bind
                .parse()
                .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let address = SocketAddr::new(host, config.ipc.http_port);
            let server = Server::bind(ServerOptions {
                connections_per_client_max: Some(CONNECTIONS_MAX),
                connections_max: CONNECTIONS_MAX,
                drain_timeout: PATIENCE,
                ..ServerOptions::new(address)
            });
            let server = server.map_err(|error| failed(&address, &error))?;
            let port = server.local_addr().port().to_string();
            let path = shared.folder.http_port();
            private_file::replace(&path, port.as_bytes(), PUBLIC)
                .map_err(|error| failed(&path.display(), &error))?;
            Some(server)
        } else {
            None
        };
        Ok(Self { unix, tcp })
    }

    /// Serves until the daemon ends.
    pub(super) fn spawn(self, shared: &Arc<DaemonShared>, tasks: &mut JoinSet<()>) {
        let (state, ending) = (Arc::clone(shared), Arc::clone(shared));
        let service = service_fn(move |request: Request<Body>| {
            let state = Arc::clone(&state);
            async move { Ok::<_, Infallible>(handle(state, IpcTransport::Unix, request).await) }
        });
        tasks.spawn(async move {
            self.unix.run(service, ending.until_end(), PATIENCE).await;
        });
        if let Some(server) = self.tcp {
            let (state, ending) = (Arc::clone(shared), Arc::clone(shared));
            let service = service_fn(move |request: Request<Body>| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(handle(state, IpcTransport::Tcp, request).await) }
            });
            tasks.spawn(async move {
                // Requests that were cut off are reported by their callers.
                let _ = server.run(service, ending.until_end()).await;
            });
        }
    }
}

/// More than the requests and streams that are served, so that a refusal has a connection, too.
const CONNECTIONS_MAX: usize = 512;

async fn handle(
    shared: Arc<DaemonShared>,
    transport: IpcTransport,
    request: Request<Body>,
) -> Response {
    let started = Instant::now();
    let endpoint = path::ALL.iter().find(|one| **one == request.uri().path());
    let endpoint = endpoint.copied().unwrap_or("other");
    let metrics = shared.metrics.clone();
    let mut response = match admit(&shared, transport, &request) {
        Ok(caller) => routes::route(shared, caller, request).await,
        Err(refusal) => routes::refused(&refusal),
    };
    let transport = match transport {
        IpcTransport::Unix => "uds",
        IpcTransport::Tcp => "tcp",
    };
    let status = response.status().as_u16().to_string();
    metrics.count(DaemonMetric::IpcRequests, &[endpoint, &status, transport]);
    metrics.observe(DaemonMetric::IpcDuration, &[endpoint], started.elapsed());
    let headers = response.headers_mut();
    // The server takes a refusal without these headers for one of hyper, and replaces its body.
    consign_web::headers::put(headers);
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    response
}

/// Who calls; an owned form of [`IpcCaller`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LocalCaller {
    User(IpcTransport),
    Hook(String),
}

fn admit(
    shared: &Arc<DaemonShared>,
    transport: IpcTransport,
    request: &Request<Body>,
) -> Result<LocalCaller, IpcRefusal> {
    let config = shared.config();
    let header = |name: header::HeaderName| {
        let value = request.headers().get(name)?;
        // What is no text equals nothing that is allowed.
        Some(value.to_str().unwrap_or("?"))
    };
    let head = IpcHead {
        transport,
        method: request.method().as_str(),
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        host: header(header::HOST),
        origin: header(header::ORIGIN),
        authorization: header(header::AUTHORIZATION),
    };
    let peer = request.extensions().get::<Peer>();
    let is_local = peer.is_some_and(|peer| peer.addr.ip().to_canonical().is_loopback());
    let caller = shared.tokens.with(is_local, |tokens| {
        let policy = IpcPolicy {
            tokens,
            origin_allowlist: &config.ipc.origin_allowlist,
            public_health_check: config.ipc.public_health_check,
            is_external: shared.tokens.has_external(),
        };
        check_head(&head, &policy)
    });
    let caller = caller.and_then(|caller| match caller {
        IpcCaller::Hook(token) if !shared.hooks.knows(token) => {
            Err(IpcRefusal::invalid_capability_token())
        }
        IpcCaller::User | IpcCaller::Hook(_) => Ok(caller),
    });
    let caller = caller.inspect_err(|refusal| log_refusal(shared, &head, refusal))?;
    let caller = match caller {
        IpcCaller::User => LocalCaller::User(transport),
        IpcCaller::Hook(token) => LocalCaller::Hook(token.to_owned()),
    };
    // Callers of the socket file have no token, and are this user's own programs.
    let bucket = match &caller {
        LocalCaller::User(IpcTransport::Unix) => None,
        LocalCaller::User(IpcTransport::Tcp) if is_local => Some("local_token"),
        LocalCaller::User(IpcTransport::Tcp) => Some("external_token"),
        LocalCaller::Hook(token) => Some(token.as_str()),
    };
    let is_admitted = bucket.is_none_or(|bucket| {
        let (rate, burst) = (config.ipc.rate_per_s, config.ipc.rate_burst);
        shared.rates.admits(bucket, rate, burst, Instant::now())
    });
    if is_admitted {
        Ok(caller)
    } else {
        Err(IpcRefusal::rate_limited())
    }
}

fn log_refusal(shared: &Arc<DaemonShared>, head: &IpcHead<'_>, refusal: &IpcRefusal) {
    match shared.refusal_log.admit(Instant::now()) {
        RefusalLine::Written => {}
        RefusalLine::Counted => return,
        RefusalLine::FirstCounted => {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                tokio::time::sleep(RefusalLog::WINDOW).await;
                let fields = json!({"security": true, "count": shared.refusal_log.take()});
                shared.log.warn("ipc_requests_rejected", &fields);
            });
            return;
        }
    }
    let msg = if refusal.status == 400 {
        "ipc_token_in_query_string_rejected"
    } else {
        "ipc_request_rejected"
    };
    let fields = json!({
        "security": true,
        "status": refusal.status,
        "error": refusal.error,
        "method": head.method,
        "path": head.path,
        "credential": head.authorization.map(redacted_authorization),
    });
    shared.log.warn(msg, &fields);
}
