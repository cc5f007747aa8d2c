//! One server without a socket, and requests to it. Tests move its clock.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use consign_engine::{Clock, Engine, Options as EngineOptions, SealKey};
use consign_kernel::receipt::Signer;
use consign_mesh::broker::{Broker, BrokerSettings};
use consign_mesh::http::MeshMount;
use consign_mesh::keys::{MeshPrivateKey, MeshPublicKey};
use consign_testkit::clock::SimClock;
use consign_testkit::ledger::Ledger;
use consign_testkit::plants;
use consign_web::credentials::SecretDigest;
use consign_web::layers::{self, Layered};
use consign_web::listener_policy::ListenerPolicy;
use consign_web::operator::OperatorCredentials;
use consign_web::throttle::FailedCredential;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt as _;

pub(crate) const MAIN: &str = "ck_main_key_of_the_tests";
pub(crate) const ADMIN: &str = "admin-secret-of-the-tests";
pub(crate) const METRICS: &str = "metrics-token-of-the-tests";
pub(crate) const MESH: &str = "acme";

pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) ledger: Ledger,
    service: Layered<axum::Router>,
    _drain: watch::Sender<bool>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
    /// It is counted as a wrong credential.
    pub(crate) is_counted: bool,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text))
    }

    /// The body of a response with this status.
    #[track_caller]
    pub(crate) fn of(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    /// Status and code of an error.
    #[track_caller]
    pub(crate) fn error(&self) -> (u16, String) {
        let code = self.json()["error"]["code"].as_str().map(str::to_owned);
        (self.status, code.unwrap_or_default())
    }
}

pub(crate) fn key(seed: u8) -> MeshPublicKey {
    MeshPrivateKey::from_seed(&[seed; 32]).public_key()
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(ListenerPolicy::default(), |_| ())
    }

    pub(crate) fn with(policy: ListenerPolicy, change: impl FnOnce(&mut BrokerSettings)) -> Self {
        plants::from_environment();
        let clock = Arc::new(SimClock::default());
        let now: Arc<dyn Clock> = clock.clone();
        let ledger = Ledger::new(crate::backend(), now.clone());
        let engine = Engine::new(EngineOptions {
            store: ledger.store.clone(),
            clock: now,
            wall: clock.clone(),
            entropy: [1; 32],
            seal: SealKey::new([7; 32]),
            signer: Signer::from_seed(&[7; 32]),
            main_key: MAIN.to_owned(),
            cleanup_interval: Duration::from_hours(6),
        });
        let mut settings = BrokerSettings::new("ws://127.0.0.1:7070/ws".to_owned());
        change(&mut settings);
        let broker = Broker::new(engine.clone(), settings);
        let (drain, draining) = watch::channel(false);
        let operators = OperatorCredentials {
            admin_secret: Some(SecretDigest::new(ADMIN.to_owned())),
            dashboard_password: None,
            metrics_token: Some(SecretDigest::new(METRICS.to_owned())),
            ..OperatorCredentials::default()
        };
        let intent = consign_intent::Options {
            operators: operators.clone(),
            trust_proxy: policy.trust_proxy,
            enforce_https: policy.enforce_https,
            require_signatures: false,
            maintenance: policy.maintenance,
            draining,
            release_reserve: None,
            queues: vec![Arc::new(broker.clone())],
        };
        let mount = Arc::new(MeshMount::new(broker.clone(), operators, policy));
        let shell = consign_intent::shell(engine.clone(), intent, vec![mount]);
        let layers = layers::Options {
            trust_proxy: policy.trust_proxy,
            request_id_seed: 1,
            on_panic: consign_web::shell::on_panic,
            on_too_many_failures: None,
        };
        Self {
            broker,
            engine,
            clock,
            ledger,
            service: layers::around(shell.router(), layers),
            _drain: drain,
        }
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Answer {
        let method: Method = method.parse().unwrap();
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Body::from(body.unwrap_or_default().to_owned());
        let request = request.body(body).unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status.as_u16(),
            text: String::from_utf8(bytes.to_vec()).unwrap(),
            is_counted: parts.extensions.get::<FailedCredential>().is_some(),
        }
    }

    pub(crate) async fn get(&self, uri: &str) -> Answer {
        let headers = [("x-admin-token", ADMIN)];
        self.request("GET", uri, &headers, None).await
    }

    pub(crate) async fn post(&self, uri: &str, body: &Value) -> Answer {
        let headers = [("x-admin-token", ADMIN)];
        let body = body.to_string();
        self.request("POST", uri, &headers, Some(&body)).await
    }

    /// Creates the mesh of the tests and returns its id.
    pub(crate) async fn mesh(&self, settings: &Value) -> String {
        let mut body = json!({"slug": MESH});
        for (name, value) in settings.as_object().unwrap() {
            body[name] = value.clone();
        }
        let created = self.post("/v1/meshes", &body).await.of(201);
        created["mesh_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn invite(&self, body: &Value) -> String {
        let invite = self.post("/v1/meshes/acme/invites", body).await.of(201);
        invite["token"].as_str().unwrap().to_owned()
    }

    /// `POST /join`, which needs no credential.
    pub(crate) async fn join(&self, token: &str, seed: u8, name: &str) -> Answer {
        let body = json!({"invite_token": token, "peer_pubkey": key(seed), "display_name": name});
        self.request("POST", "/join", &[], Some(&body.to_string()))
            .await
    }

    /// Adds a member to the mesh of the tests and returns its id.
    pub(crate) async fn member(&self, seed: u8, name: &str) -> String {
        let token = self.invite(&json!({})).await;
        let joined = self.join(&token, seed, name).await.of(200);
        joined["memberId"].as_str().unwrap().to_owned()
    }

    /// An API key of a member.
    pub(crate) async fn api_key(&self, seed: u8, body: Value) -> String {
        let mut body = body;
        body["member"] = json!(key(seed));
        let created = self.post("/v1/meshes/acme/keys", &body).await.of(201);
        created["key"].as_str().unwrap().to_owned()
    }

    /// `POST /v1/messages` with an API key.
    pub(crate) async fn send(&self, api_key: &str, body: &Value) -> Answer {
        self.send_with(api_key, &[], body).await
    }

    pub(crate) async fn send_with(
        &self,
        api_key: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let bearer = format!("Bearer {api_key}");
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend(headers);
        self.request("POST", "/v1/messages", &all, Some(&body.to_string()))
            .await
    }
}
