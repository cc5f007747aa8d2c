//! A ledger, a bank, a site, and a signing agent.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use consign_engine::{Clock, Engine, EngineClock, Options as EngineOptions, SealKey, WallClock};
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::json::canonical_value;
use consign_kernel::receipt::Signer;
use consign_testkit::ledger::{Ledger, Reads};
use consign_testkit::plants;
use consign_transactions::document::SiteSigner;
use consign_transactions::envelope::RequestOperation;
use consign_transactions::http::{ProblemResponse, SiteResponse};
use consign_transactions::instant;
use consign_transactions::problem::Problem;
use consign_transactions::site::{Options, Site};
use data_encoding::BASE64;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::bank::Bank;

pub(crate) const SITE: &str = "https://shop.example";
pub(crate) const KEY: &str = "9b1c6f0e-7f5e-4a53-9a6c-2f1d7a0f3b11";
pub(crate) const OTHER_KEY: &str = "another-key-of-the-same-agent";

/// Time that can be advanced.
#[derive(Debug)]
pub(crate) struct Moved {
    real: EngineClock,
    ahead_us: AtomicI64,
    /// How far the time of day is ahead of engine time.
    day_ahead_us: AtomicI64,
}

impl Clock for Moved {
    fn now(&self) -> Micros {
        self.real.now().plus(self.ahead_us.load(Ordering::SeqCst))
    }

    fn time_of_day(&self) -> Micros {
        self.now().plus(self.day_ahead_us.load(Ordering::SeqCst))
    }
}

impl WallClock for Moved {
    fn wall(&self) -> Micros {
        self.time_of_day()
    }
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) ledger: Ledger,
    /// The reads of engine and site from the ledger.
    pub(crate) reads: Arc<Reads>,
    pub(crate) bank: Bank,
    pub(crate) site: Site,
    clock: Arc<Moved>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl Fn(&mut Options)) -> Self {
        plants::from_environment();
        let clock = Arc::new(Moved {
            real: EngineClock::start(None),
            ahead_us: AtomicI64::new(0),
            day_ahead_us: AtomicI64::new(0),
        });
        let ledger = Ledger::new(crate::backend(), clock.clone());
        let reads = Arc::new(Reads::default());
        let engine = Engine::new(EngineOptions {
            store: reads.of(&ledger.store),
            clock: clock.clone(),
            wall: clock.clone(),
            entropy: [7; 32],
            seal: SealKey::new([7; 32]),
            signer: Signer::from_seed(&[7; 32]),
            main_key: "ck_main".to_owned(),
            cleanup_interval: Duration::from_hours(1),
        });
        let bank = Bank::default();
        let mut options = Options::new(SITE, Arc::new(bank.clone()));
        options.execute_wait = Duration::from_millis(500);
        change(&mut options);
        let site = Site::open(engine.clone(), options).await.unwrap();
        Self {
            engine,
            ledger,
            reads,
            bank,
            site,
            clock,
        }
    }

    /// The same ledger and bank from another process.
    pub(crate) async fn other(&self, change: impl Fn(&mut Options)) -> Site {
        let mut options = Options::new(SITE, Arc::new(self.bank.clone()));
        options.execute_wait = Duration::from_millis(500);
        "2".clone_into(&mut options.start);
        change(&mut options);
        Site::open(self.engine.clone(), options).await.unwrap()
    }

    pub(crate) fn now(&self) -> Micros {
        self.clock.time_of_day()
    }

    /// Sets the time of day this far ahead of engine time.
    pub(crate) fn set_day_ahead(&self, seconds: i64) {
        self.clock
            .day_ahead_us
            .store(seconds * SECOND_US, Ordering::SeqCst);
    }

    pub(crate) fn pass(&self, seconds: i64) {
        self.clock
            .ahead_us
            .fetch_add(seconds * SECOND_US, Ordering::SeqCst);
    }

    /// An intent of the agent, as it would be sent.
    pub(crate) fn intent(&self, id: &str) -> Value {
        let agent = agent();
        json!({
            "type": "atp.intent.v1",
            "intent_id": id,
            "site": SITE,
            "agent_id": "agent-7",
            "agent_key": agent_key(&agent),
            "purpose": "Buy a book ≤ €30",
            "scope": {"actions": ["checkout", "pay"]},
            "amount_cents": 1500,
            "currency": "EUR",
            "max_spend_cents": 3000,
            "nonce": format!("nonce-of-{id}"),
            "issued_at": instant::print(self.now()),
            "expires_at": instant::print(self.now().plus(600 * SECOND_US)),
        })
    }

    pub(crate) fn signed(&self, id: &str) -> Value {
        sign(self.intent(id), &agent())
    }

    pub(crate) async fn create(&self, intent: &Value) -> Result<SiteResponse, ProblemResponse> {
        response(self.site.create(intent.to_string().as_bytes()).await)
    }

    pub(crate) async fn authorize(
        &self,
        body: &Value,
        key: &str,
    ) -> Result<SiteResponse, ProblemResponse> {
        let body = body.to_string();
        let key = Some(key.as_bytes());
        response(self.site.authorize(key, body.as_bytes()).await)
    }

    /// Created and authorized in one step.
    pub(crate) async fn authorized(&self, id: &str) {
        self.authorize(&self.signed(id), KEY).await.unwrap();
    }

    pub(crate) async fn execute(
        &self,
        id: &str,
        key: &str,
    ) -> Result<SiteResponse, ProblemResponse> {
        self.execute_at(&self.site, id, key).await
    }

    pub(crate) async fn execute_at(
        &self,
        site: &Site,
        id: &str,
        key: &str,
    ) -> Result<SiteResponse, ProblemResponse> {
        let body = json!({"intent_id": id}).to_string();
        response(site.execute(Some(key.as_bytes()), body.as_bytes()).await)
    }

    pub(crate) async fn compensate(
        &self,
        id: &str,
        key: &str,
    ) -> Result<SiteResponse, ProblemResponse> {
        let body = json!({"intent_id": id, "reason": "user_cancelled"}).to_string();
        let key = Some(key.as_bytes());
        response(self.site.compensate(key, body.as_bytes()).await)
    }

    pub(crate) async fn cancel(&self, id: &str) -> Result<SiteResponse, ProblemResponse> {
        let body = json!({"intent_id": id}).to_string();
        response(self.site.cancel(None, body.as_bytes()).await)
    }

    /// The intent as shown.
    pub(crate) async fn shown(&self, id: &str) -> Value {
        body(&self.site.intent(id).await.unwrap())
    }

    pub(crate) async fn wait_for_payments(&self, count: usize) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.bank.payments().len() < count {
            assert!(Instant::now() < until, "fewer than {count} payments");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the intent has this state.
    pub(crate) async fn wait_until(&self, id: &str, state: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let shown = self.shown(id).await["state"].clone();
            if shown == state {
                return;
            }
            assert!(Instant::now() < until, "{id} is {shown}, not {state}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn is_sound(&self) {
        let findings = self.ledger.store.check().await.unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

pub(crate) fn agent() -> Signer {
    Signer::from_seed(&[0x22; 32])
}

pub(crate) fn agent_key(agent: &Signer) -> String {
    format!("ed25519:{}", BASE64.encode(&agent.public_key()))
}

/// Signs as the protocol requires: the canonical form without the signature.
pub(crate) fn sign(mut document: Value, signer: &Signer) -> Value {
    let bytes = canonical_value(&document).unwrap();
    document["signature"] = BASE64.encode(&signer.sign_bytes(&bytes)).into();
    document
}

/// A request as an agent signs it: for one operation, at this site, now, with this key.
pub(crate) fn request(
    world: &World,
    operation: RequestOperation,
    key: &str,
    members: Value,
) -> Value {
    let mut body = members;
    body["type"] = operation.document_type().into();
    body["site"] = SITE.into();
    body["issued_at"] = instant::print(world.now()).into();
    body["idempotency_key"] = key.into();
    sign(body, &agent())
}

/// The protocol's id of a key.
pub(crate) fn key_id(seed: u8) -> String {
    SiteSigner::from_seed(&[seed; 32]).public().id().to_owned()
}

/// A result of the site, as it is sent.
pub(crate) fn response<T: Into<SiteResponse>>(
    result: Result<T, Problem>,
) -> Result<SiteResponse, ProblemResponse> {
    result.map(Into::into).map_err(Into::into)
}

/// The body that is sent for a result.
pub(crate) fn body<T: Clone + Into<SiteResponse>>(answer: &T) -> Value {
    let sent: SiteResponse = answer.clone().into();
    serde_json::from_str(&sent.body).unwrap()
}

/// The exact text of a member.
pub(crate) fn text_of(object: &str, member: &str) -> String {
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(object).unwrap();
    members[member].get().to_owned()
}

pub(crate) fn name<T: Debug, E: Clone + Into<ProblemResponse>>(
    refused: &Result<T, E>,
) -> &'static str {
    match refused {
        Err(problem) => problem.clone().into().name(),
        Ok(answer) => panic!("not refused: {answer:?}"),
    }
}
