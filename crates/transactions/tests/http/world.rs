//! A site on the null rail without a socket, and requests to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use consign_engine::{Clock, Engine, EngineClock, Options as EngineOptions, SealKey};
use consign_kernel::ids::SECOND_US;
use consign_kernel::json::canonical_value;
use consign_kernel::receipt::Signer;
use consign_testkit::ledger::Ledger;
use consign_transactions::http::{SiteHosts, SiteMount, UserTokens};
use consign_transactions::instant;
use consign_transactions::rail::{NullRail, Rail};
use consign_transactions::site::{Options, Site};
use consign_web::credentials::SecretDigest;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::operator::OperatorCredentials;
use consign_web::secret_text::SecretText;
use consign_web::server::Peer;
use data_encoding::BASE64;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;

pub(crate) const SITE: &str = "https://shop.example";
pub(crate) const KEY: &str = "9b1c6f0e-7f5e-4a53-9a6c-2f1d7a0f3b11";
pub(crate) const ADMIN: &str = "admin-secret-of-the-tests";

pub(crate) struct World {
    router: Router,
    clock: Arc<EngineClock>,
    _ledger: Ledger,
    _drain: watch::Sender<bool>,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }
}

/// The settings that differ between worlds.
pub(crate) struct Setup<'a> {
    pub(crate) public_per_minute: u32,
    pub(crate) writes_per_minute: u32,
    pub(crate) compat: Option<&'a str>,
    pub(crate) policy: ListenerPolicy,
    pub(crate) rail: Arc<dyn Rail>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            public_per_minute: 0,
            writes_per_minute: 0,
            compat: None,
            policy: ListenerPolicy::default(),
            rail: Arc::new(NullRail),
        }
    }
}

impl World {
    pub(crate) async fn new(public_per_minute: u32) -> Self {
        Self::limited(public_per_minute, 0).await
    }

    pub(crate) async fn limited(public_per_minute: u32, writes_per_minute: u32) -> Self {
        Self::with(Setup {
            public_per_minute,
            writes_per_minute,
            ..Setup::default()
        })
        .await
    }

    /// With the compatibility profile; this secret signs its tokens.
    pub(crate) async fn compatible(writes_per_minute: u32, secret: &str) -> Self {
        Self::with(Setup {
            writes_per_minute,
            compat: Some(secret),
            ..Setup::default()
        })
        .await
    }

    pub(crate) async fn with(setup: Setup<'_>) -> Self {
        let clock = Arc::new(EngineClock::start(None));
        let ledger = Ledger::new(crate::backend(), clock.clone());
        let engine = Engine::new(EngineOptions {
            store: Arc::clone(&ledger.store),
            clock: clock.clone(),
            wall: clock.clone(),
            entropy: [7; 32],
            seal: SealKey::new([7; 32]),
            signer: Signer::from_seed(&[7; 32]),
            main_key: "ck_main".to_owned(),
            cleanup_interval: Duration::from_hours(1),
        });
        let options = Options::new(SITE, setup.rail);
        let site = Site::open(engine.clone(), options).await.unwrap();
        let (drain, draining) = watch::channel(false);
        let intent = consign_intent::Options {
            operators: OperatorCredentials {
                admin_secret: Some(SecretDigest::new(ADMIN.to_owned())),
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
        let transactions = consign_transactions::http::Options {
            admin_secret: Some(SecretDigest::new(ADMIN.to_owned())),
            policy: setup.policy,
            hosts: SiteHosts::new(SITE, &[]),
            public_per_minute: setup.public_per_minute,
            writes_per_minute: setup.writes_per_minute,
            write_bytes_per_minute: 0,
            compat: setup
                .compat
                .map(|secret| UserTokens::new(SecretText::new(secret.to_owned()))),
        };
        let mount = Arc::new(SiteMount::new(site, transactions));
        let router = consign_intent::shell(engine, intent, vec![mount]).router();
        Self {
            router,
            clock,
            _ledger: ledger,
            _drain: drain,
        }
    }

    pub(crate) fn signed(&self, id: &str) -> Value {
        let agent = Signer::from_seed(&[0x22; 32]);
        let now = self.clock.now();
        let mut intent = json!({
            "type": "atp.intent.v1",
            "intent_id": id,
            "site": SITE,
            "agent_key": format!("ed25519:{}", BASE64.encode(&agent.public_key())),
            "purpose": "Buy a book ≤ €30",
            "scope": {"actions": ["pay"]},
            "amount_cents": 1500,
            "nonce": format!("nonce-of-{id}"),
            "issued_at": instant::print(now),
            "expires_at": instant::print(now.plus(600 * SECOND_US)),
        });
        let bytes = canonical_value(&intent).unwrap();
        intent["signature"] = BASE64.encode(&agent.sign_bytes(&bytes)).into();
        intent
    }

    pub(crate) async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send("POST", path, headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        self.answer(request).await
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> Answer {
        self.answer_to([127, 0, 0, 1], request).await
    }

    /// The response to a client at this address.
    pub(crate) async fn answer_to(&self, address: [u8; 4], mut request: Request<Body>) -> Answer {
        request.extensions_mut().insert(Peer {
            addr: SocketAddr::from((address, 50_000)),
            tls: false,
        });
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(body.to_vec()).unwrap(),
        }
    }
}
