//! An engine over an empty ledger, with simulated time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_engine::{Caller, Engine, NewKey, Operator, Options, SealKey};
use consign_kernel::command::{
    Admit, Answer, Audience, Claim, Command, NewIntent, Settle, Settlement,
};
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::limits;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::receipt::Signer;
use consign_store::SharedStore;
use consign_testkit::clock::SimClock;
use consign_testkit::ledger::{self, Ledger};
use tokio::task::JoinHandle;

pub(crate) const MAIN: &str = "ck_main";

/// In real time, far longer than any wake takes.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) store: SharedStore,
    _ledger: Ledger,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::over(|store| store)
    }

    /// A world whose store is wrapped by the test.
    pub(crate) fn over(wrap: impl FnOnce(SharedStore) -> SharedStore) -> Self {
        let clock = Arc::new(SimClock::default());
        let ledger = Ledger::new(crate::backend(), clock.clone());
        let store = wrap(Arc::clone(&ledger.store));
        Self {
            engine: engine(&store, &clock, [7; 32]),
            clock,
            store,
            _ledger: ledger,
        }
    }

    /// Another engine over the same data, as after a restart.
    pub(crate) fn restarted_with_seal(&self, seal: [u8; 32]) -> Engine {
        engine(&self.store, &self.clock, seal)
    }

    /// A new key and the caller that presents it.
    pub(crate) async fn tester(&self) -> (NewKey, Caller) {
        let key = self
            .engine
            .create_key(Operator::vouched(), "alice", &[])
            .await
            .unwrap();
        let caller = self.engine.authenticate(&key.secret).await.unwrap();
        (key, caller.caller().unwrap())
    }

    pub(crate) async fn publish(&self, new: NewIntent) -> IntentId {
        let admit = Admit {
            items: vec![new],
            cap: None,
        };
        let answer = self
            .engine
            .apply(None, Command::Admit(admit))
            .await
            .unwrap();
        let Answer::Admitted(admitted) = answer else {
            panic!("{answer:?}");
        };
        admitted[0].id
    }

    pub(crate) async fn settle(&self, intent: &Intent, how: Settlement) {
        let settle = Settle {
            detail: None,
            id: intent.id,
            holder: "main".to_owned(),
            token: intent.token.unwrap(),
            how,
        };
        self.engine
            .apply(None, Command::Settle(settle))
            .await
            .unwrap();
    }
}

/// While this exists, the time of a paused runtime does not advance, so an intermediate poll cannot find the row. Tokio
/// advances paused time only when every task waits, and this task never waits.
pub(crate) struct Frozen(JoinHandle<()>);

impl Frozen {
    pub(crate) fn new() -> Self {
        Self(tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        }))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The result of a task. Without a wake the task would wait forever in frozen time, so a real-time limit fails the test.
pub(crate) async fn woken<T>(task: JoinHandle<T>) -> T {
    let began = Instant::now();
    while !task.is_finished() {
        assert!(began.elapsed() < PROBE_TIMEOUT, "nobody woke it");
        tokio::task::yield_now().await;
    }
    task.await.unwrap()
}

pub(crate) fn engine(store: &SharedStore, clock: &Arc<SimClock>, seal: [u8; 32]) -> Engine {
    engine_with(store, clock, seal, [9; 32], MAIN)
}

pub(crate) fn engine_with(
    store: &SharedStore,
    clock: &Arc<SimClock>,
    seal: [u8; 32],
    signer: [u8; 32],
    main_key: &str,
) -> Engine {
    Engine::new(Options {
        store: store.clone(),
        clock: clock.clone(),
        wall: clock.clone(),
        entropy: [3; 32],
        seal: SealKey::new(seal),
        signer: Signer::from_seed(&signer),
        main_key: main_key.to_owned(),
        cleanup_interval: Duration::from_mins(5),
    })
}

pub(crate) fn intent() -> NewIntent {
    NewIntent {
        profile: ProfileId::Intent,
        namespace: "default".to_owned(),
        goal: "g".to_owned(),
        owner: "main".to_owned(),
        public: false,
        target: None,
        capability: None,
        priority: 100,
        payload: "{}".to_owned(),
        ties: Ties::default(),
        unless: None,
        traceparent: None,
        delay_us: 0,
        ttl_us: limits::INTENT_TTL_US,
        attempts_max: 3,
        backoff_us: 5 * SECOND_US,
        once: None,
    }
}

pub(crate) fn claim() -> Claim {
    Claim {
        face: Face::Intent,
        namespace: "default".to_owned(),
        goal: None,
        holder: "main".to_owned(),
        audience: Audience::Caller,
        worker_id: None,
        capabilities: Vec::new(),
        max: 1,
        lease_us: 60 * SECOND_US,
        grant: None,
    }
}

#[test]
fn every_file_of_tests_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    ledger::assert_all_listed(folder);
}
