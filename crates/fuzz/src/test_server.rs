//! A server without socket, disk or randomness: the real router on the memory store, in simulated time.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use consign_engine::{Clock, Engine, Options as EngineOptions, SealKey, WallClock};
use consign_intent::Options;
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::receipt::Signer;
use consign_store::memory::Memory;
use consign_web::credentials::SecretDigest;
use consign_web::layers::{self, Layered};
use consign_web::operator::OperatorCredentials;
use consign_web::server::Peer;
use tokio::sync::watch;
use tower::ServiceExt as _;

use crate::requests::ScriptRequest;

/// Short, so that a fuzzer can find them; they are in the seeds and in the dictionary.
const MAIN_KEY: &str = "main";
const ADMIN_TOKEN: &str = "admin";

pub(crate) struct TestServer {
    clock: Arc<SimulatedClock>,
    service: Layered<Router>,
    /// Held so that the server is not draining.
    _drain: watch::Sender<bool>,
}

impl TestServer {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(SimulatedClock(AtomicI64::new(1_800_000_000 * SECOND_US)));
        let engine = Engine::new(EngineOptions {
            store: Arc::new(Memory::new(clock.clone())),
            clock: clock.clone(),
            wall: clock.clone(),
            entropy: [5; 32],
            seal: SealKey::new([7; 32]),
            signer: Signer::from_seed(&[9; 32]),
            main_key: MAIN_KEY.to_owned(),
            cleanup_interval: Duration::from_hours(6),
        });
        let (drain, draining) = watch::channel(false);
        let options = Options {
            operators: OperatorCredentials {
                admin_secret: Some(SecretDigest::new(ADMIN_TOKEN.to_owned())),
                dashboard_password: Some(SecretDigest::new(ADMIN_TOKEN.to_owned())),
                metrics_token: Some(SecretDigest::new(ADMIN_TOKEN.to_owned())),
                ..OperatorCredentials::default()
            },
            trust_proxy: false,
            enforce_https: false,
            require_signatures: false,
            maintenance: false,
            draining,
            release_reserve: None,
            queues: Vec::new(),
        };
        let layers = layers::Options {
            trust_proxy: false,
            request_id_seed: 1,
            on_panic: consign_web::shell::on_panic,
            on_too_many_failures: None,
        };
        Self {
            clock,
            service: layers::around(
                consign_intent::shell(engine, options, Vec::new()).router(),
                layers,
            ),
            _drain: drain,
        }
    }

    pub(crate) fn wait(&self, seconds: i64) {
        self.clock
            .0
            .fetch_add(seconds * SECOND_US, Ordering::SeqCst);
    }

    pub(crate) async fn send(&self, request: ScriptRequest) -> Response {
        let mut sent = http::Request::new(Body::from(request.body));
        *sent.method_mut() = request.method;
        *sent.uri_mut() = request.uri;
        *sent.headers_mut() = request.headers;
        sent.extensions_mut().insert(Peer {
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000)),
            tls: false,
        });
        let answer = self.service.clone().oneshot(sent).await;
        answer.unwrap_or_else(|never| match never {})
    }
}

/// Advances only when a script waits.
struct SimulatedClock(AtomicI64);

impl Clock for SimulatedClock {
    fn now(&self) -> Micros {
        Micros(self.0.load(Ordering::SeqCst))
    }
}

impl WallClock for SimulatedClock {
    fn wall(&self) -> Micros {
        self.now()
    }
}
