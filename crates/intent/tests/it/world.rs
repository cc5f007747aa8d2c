//! One server without a socket, and requests to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use consign_engine::{Engine, Options as EngineOptions, SealKey, SharedStore};
use consign_intent::Options;
use consign_kernel::receipt::Signer;
use consign_testkit::clock::SimClock;
use consign_testkit::ledger::Ledger;
use consign_testkit::plants;
use consign_web::credentials::SecretDigest;
use consign_web::layers::{self, Layered};
use consign_web::operator::OperatorCredentials;
use consign_web::server::Peer;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;

pub(crate) const MAIN: &str = "ck_main_key_of_the_tests";
pub(crate) const ADMIN: &str = "admin-secret-of-the-tests";
pub(crate) const PASSWORD: &str = "dashboard-password-of-the-tests";
pub(crate) const METRICS: &str = "metrics-token-of-the-tests";

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) drain: watch::Sender<bool>,
    service: Layered<axum::Router>,
    _ledger: Ledger,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A world with changed options of the face.
    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        Self::build(change, |store| store)
    }

    /// A world whose store is wrapped by the test.
    pub(crate) fn over(wrap: impl FnOnce(SharedStore) -> SharedStore) -> Self {
        Self::build(|_| {}, wrap)
    }

    fn build(
        change: impl FnOnce(&mut Options),
        wrap: impl FnOnce(SharedStore) -> SharedStore,
    ) -> Self {
        plants::from_environment();
        let clock = Arc::new(SimClock::default());
        let ledger = Ledger::new(crate::backend(), clock.clone());
        let engine = Engine::new(EngineOptions {
            store: wrap(Arc::clone(&ledger.store)),
            clock: clock.clone(),
            wall: clock.clone(),
            entropy: rand_seed(),
            seal: SealKey::new([7; 32]),
            signer: Signer::from_seed(&[9; 32]),
            main_key: MAIN.to_owned(),
            cleanup_interval: Duration::from_hours(6),
        });
        let (drain, draining) = watch::channel(false);
        let mut options = Options {
            operators: OperatorCredentials {
                admin_secret: Some(SecretDigest::new(ADMIN.to_owned())),
                dashboard_password: Some(SecretDigest::new(PASSWORD.to_owned())),
                metrics_token: Some(SecretDigest::new(METRICS.to_owned())),
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
        change(&mut options);
        let layers = layers::Options {
            trust_proxy: options.trust_proxy,
            request_id_seed: 1,
            on_panic: consign_web::shell::on_panic,
            // Tests of refusals send many requests from one address. `throttle` has its own tests.
            on_too_many_failures: None,
        };
        let service = layers::around(
            consign_intent::shell(engine.clone(), options, Vec::new()).router(),
            layers,
        );
        Self {
            engine,
            clock,
            drain,
            service,
            _ledger: ledger,
        }
    }

    pub(crate) async fn send(&self, call: Call) -> Answer {
        let response = self.respond(call).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// The response with an unread body, for streams.
    pub(crate) async fn respond(&self, call: Call) -> Response {
        let mut request = Request::builder().method(call.method).uri(&call.uri);
        for (name, value) in &call.headers {
            // From bytes, so that a test can send non-ASCII values.
            request = request.header(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let mut request = request.body(Body::from(call.body)).unwrap();
        let addr: SocketAddr = call.peer.parse().unwrap();
        request.extensions_mut().insert(Peer {
            addr,
            tls: call.tls,
        });
        self.service.clone().oneshot(request).await.unwrap()
    }

    /// Publishes with the main key and returns the id.
    pub(crate) async fn publish(&self, body: Value) -> String {
        let answer = self.send(Call::post("/intent").key(MAIN).json(&body)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Claims with the main key in `default` and returns the job, if any.
    pub(crate) async fn claim(&self) -> Option<Value> {
        self.claim_with("/claim", MAIN).await
    }

    pub(crate) async fn claim_with(&self, uri: &str, key: &str) -> Option<Value> {
        let answer = self.send(Call::post(uri).key(key)).await;
        match answer.status.as_u16() {
            200 => Some(answer.json()),
            204 => None,
            other => panic!("claim answered {other}: {}", answer.text()),
        }
    }

    pub(crate) async fn status(&self, id: &str) -> Value {
        let answer = self
            .send(Call::get(&format!("/status/{id}")).key(MAIN))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Creates a tester key.
    pub(crate) async fn tester(&self, owner: &str) -> String {
        let answer = self
            .send(
                Call::post("/admin/generate_key")
                    .admin()
                    .json(&json!({"owner": owner})),
            )
            .await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["api_key"].as_str().unwrap().to_owned()
    }
}

fn rand_seed() -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&std::process::id().to_le_bytes().repeat(2));
    seed[8..16].copy_from_slice(
        &std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos()
            .to_le_bytes()[..8],
    );
    seed
}

/// A request to send.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) uri: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) peer: String,
    pub(crate) tls: bool,
}

impl Call {
    pub(crate) fn new(method: Method, uri: &str) -> Self {
        Self {
            method,
            uri: uri.to_owned(),
            headers: vec![("host".to_owned(), "127.0.0.1:7070".to_owned())],
            body: Vec::new(),
            peer: "127.0.0.1:40000".to_owned(),
            tls: false,
        }
    }

    pub(crate) fn get(uri: &str) -> Self {
        Self::new(Method::GET, uri)
    }

    pub(crate) fn post(uri: &str) -> Self {
        Self::new(Method::POST, uri)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("x-api-key", key)
    }

    pub(crate) fn admin(self) -> Self {
        self.header("x-admin-token", ADMIN)
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json")
            .raw(body.to_string().into_bytes())
    }

    pub(crate) fn raw(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The error code of the response.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

#[tokio::test]
async fn a_world_publishes_and_claims() {
    let world = World::new();
    let id = world
        .publish(json!({"goal": "g", "payload": {"a": 1}}))
        .await;
    let job = world.claim().await.unwrap();
    assert_eq!(job["id"], id.as_str());
    assert_eq!(job["payload"], json!({"a": 1}));
    assert!(world.claim().await.is_none());
    world.clock.advance_s(61);
    assert_eq!(world.claim().await.unwrap()["claim_attempts"], 2);
    assert_eq!(world.status(&id).await["status"], "claimed");
}

#[test]
fn every_file_of_tests_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    consign_testkit::ledger::assert_all_listed(folder);
}
