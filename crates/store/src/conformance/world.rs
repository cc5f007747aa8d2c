//! The world of one case: an empty store, a clock that the case sets, and short methods for requests.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use consign_kernel::command::{
    Admit, Admitted, Answer, Audience, Claim, Command, Extend, Gate, NewIntent, OnRefusal, Operate,
    Reply, Request, Settle, Settlement,
};
use consign_kernel::error::Refusal;
use consign_kernel::fact::Fact;
use consign_kernel::ids::{DAY_US, IntentId, Micros, SECOND_US, Token};
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::Verb;

use super::audit;
use crate::{Clock, SharedStore, TypedReads as _};

/// The time at which every case begins.
pub const START: Micros = Micros(1_700_000_000_000_000);

/// A clock that does not advance by itself.
#[derive(Debug)]
pub struct ManualClock {
    at: AtomicI64,
    /// How far the time of day is ahead of engine time.
    day_ahead: AtomicI64,
}

impl ManualClock {
    pub fn new(at: Micros) -> Self {
        Self {
            at: AtomicI64::new(at.0),
            day_ahead: AtomicI64::new(0),
        }
    }

    pub fn set(&self, at: Micros) {
        self.at.store(at.0, Ordering::SeqCst);
    }

    /// Sets how far the time of day is ahead of engine time.
    pub fn set_day_ahead(&self, us: i64) {
        self.day_ahead.store(us, Ordering::SeqCst);
    }

    pub fn advance(&self, us: i64) {
        self.at.fetch_add(us, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new(START)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        Micros(self.at.load(Ordering::SeqCst))
    }

    fn time_of_day(&self) -> Micros {
        self.now().plus(self.day_ahead.load(Ordering::SeqCst))
    }
}

#[derive(Clone)]
pub struct World {
    pub store: SharedStore,
    pub clock: Arc<ManualClock>,
    seeds: Arc<AtomicU64>,
    /// A value that must outlive the store, such as the directory of its file.
    _keep: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl World {
    pub fn new(
        store: SharedStore,
        clock: Arc<ManualClock>,
        keep: impl Any + Send + Sync + 'static,
    ) -> Self {
        Self {
            store,
            clock,
            seeds: Arc::default(),
            _keep: Arc::new(keep),
        }
    }

    /// The same world on another node: a shared clock, and seeds that are never used twice.
    #[must_use]
    pub fn through(&self, store: SharedStore) -> Self {
        Self {
            store,
            ..self.clone()
        }
    }

    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Executes one request; the storage itself must not fail.
    pub async fn ask(&self, gate: Option<Gate>, steps: Vec<Command>) -> Reply {
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&self.seeds.fetch_add(1, Ordering::SeqCst).to_le_bytes());
        let request = Request {
            gate,
            steps,
            on_refusal: OnRefusal::Continue,
            seed,
        };
        self.store.execute(request).await.expect("storage works")
    }

    pub async fn steps(&self, steps: Vec<Command>) -> Vec<Result<Answer, Refusal>> {
        self.ask(None, steps).await.expect("there is no gate")
    }

    pub async fn step(&self, step: Command) -> Result<Answer, Refusal> {
        self.steps(vec![step])
            .await
            .pop()
            .expect("an answer per step")
    }

    pub async fn admit(&self, items: Vec<NewIntent>) -> Result<Vec<Admitted>, Refusal> {
        let answer = self
            .step(Command::Admit(Admit { items, cap: None }))
            .await?;
        let Answer::Admitted(admitted) = answer else {
            panic!("an admission answered {answer:?}");
        };
        Ok(admitted)
    }

    pub async fn publish(&self, item: NewIntent) -> IntentId {
        self.admit(vec![item]).await.expect("it is admitted")[0].id
    }

    pub async fn claim(&self, claim: Claim) -> Vec<Intent> {
        match self.step(Command::Claim(claim)).await {
            Ok(Answer::Claimed(claimed)) => claimed,
            other => panic!("a claim answered {other:?}"),
        }
    }

    /// Claims as `holder` and expects exactly one intent.
    pub async fn take(&self, holder: &str) -> Intent {
        let mut claimed = self.claim(claim_by(holder)).await;
        assert_eq!(claimed.len(), 1, "one intent waits for {holder}");
        claimed.remove(0)
    }

    pub async fn extend(&self, held: &Intent, lease_us: i64) -> Result<Answer, Refusal> {
        let (holder, token) = lease_of(held);
        self.step(Command::Extend(Extend {
            detail: None,
            id: held.id,
            holder,
            token,
            lease_us,
        }))
        .await
    }

    pub async fn complete(&self, held: &Intent) -> Result<Answer, Refusal> {
        self.settle(held, Settlement::Complete { result: None })
            .await
    }

    pub async fn fail(&self, held: &Intent, error: &str) -> Result<Answer, Refusal> {
        let error = error.to_owned();
        self.settle(held, Settlement::Fail { error }).await
    }

    pub async fn settle(&self, held: &Intent, how: Settlement) -> Result<Answer, Refusal> {
        let (holder, token) = lease_of(held);
        self.step(Command::Settle(Settle {
            detail: None,
            id: held.id,
            holder,
            token,
            how,
        }))
        .await
    }

    pub async fn cancel(&self, id: IntentId) -> Result<Answer, Refusal> {
        self.step(Command::Cancel(operate(id))).await
    }

    pub async fn requeue(&self, id: IntentId) -> Result<Answer, Refusal> {
        self.step(Command::Requeue(operate(id))).await
    }

    pub async fn observe(&self, id: IntentId) -> Intent {
        match self.step(Command::Observe(id)).await {
            Ok(Answer::Observed(Some(intent))) => *intent,
            other => panic!("looking at {id} answered {other:?}"),
        }
    }

    /// The row as stored, without the effects of time.
    pub async fn get(&self, id: IntentId) -> Option<Intent> {
        self.store.intent(id).await.expect("storage works")
    }

    pub async fn load(&self, id: IntentId) -> Intent {
        self.get(id).await.expect("the intent exists")
    }

    pub async fn facts(&self, intent: &Intent) -> Vec<Fact> {
        self.store
            .facts(intent.seq, 1_000)
            .await
            .expect("storage works")
    }

    pub async fn verbs(&self, intent: &Intent) -> Vec<Verb> {
        self.facts(intent)
            .await
            .iter()
            .map(|fact| fact.verb)
            .collect()
    }

    /// Checks that the content of the store is consistent.
    pub async fn is_sound(&self) {
        let dump = self.store.dump().await.expect("storage works");
        let findings = audit(&dump);
        assert!(findings.is_empty(), "{findings:#?}");
        let findings = self.store.check().await.expect("storage works");
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

fn lease_of(held: &Intent) -> (String, Token) {
    (
        held.holder.clone().expect("a claimed intent has a holder"),
        held.token.expect("a claimed intent has a token"),
    )
}

fn operate(id: IntentId) -> Operate {
    Operate {
        id,
        face: Face::Intent,
        reason: "by hand".to_owned(),
    }
}

/// A private intent of alice in the default namespace, due now.
pub fn item() -> NewIntent {
    NewIntent {
        profile: ProfileId::Intent,
        namespace: "default".to_owned(),
        goal: "greet".to_owned(),
        owner: "alice".to_owned(),
        public: false,
        target: None,
        capability: None,
        priority: 100,
        payload: r#"{"n":1}"#.to_owned(),
        ties: Ties::default(),
        unless: None,
        traceparent: None,
        delay_us: 0,
        ttl_us: DAY_US,
        attempts_max: 3,
        backoff_us: 5 * SECOND_US,
        once: None,
    }
}

/// The same intent, made for another profile.
pub fn in_face(profile: ProfileId) -> NewIntent {
    NewIntent { profile, ..item() }
}

/// A claim of one intent in the default namespace, leased for a minute.
pub fn claim_by(holder: &str) -> Claim {
    Claim {
        face: Face::Intent,
        namespace: "default".to_owned(),
        goal: None,
        holder: holder.to_owned(),
        audience: Audience::Caller,
        worker_id: None,
        capabilities: Vec::new(),
        max: 1,
        lease_us: 60 * SECOND_US,
        grant: None,
    }
}
