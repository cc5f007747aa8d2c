//! A database behind a connection on which no data moves: every request returns an error in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consign_kernel::command::{Admit, Command, OnRefusal, Request};
use consign_kernel::ids::IntentId;
use consign_store::conformance::{ManualClock, World, item};
use consign_store::postgres::Postgres;
use consign_store::{Clock, Store as _, TypedReads as _};
use consign_testkit::ledger;
use consign_testkit::postgres::Database;
use consign_testkit::proxy::{Carrier, Mode, Wire};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::nodes::{LONG, until};
use super::options;

/// A database, and a simulated connection to it.
struct Apparatus {
    wire: Wire,
    _carrier: Carrier,
    database: Database,
    clock: Arc<ManualClock>,
}

impl Apparatus {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let time: Arc<dyn Clock> = clock.clone();
        let database = ledger::database(&time);
        let carrier = Carrier::start().unwrap();
        Self {
            wire: carrier.wire(database.cluster.port).unwrap(),
            _carrier: carrier,
            database,
            clock,
        }
    }

    /// A node that connects through the wire.
    async fn node(&self) -> World {
        let name = &self.database.name;
        let url = format!("postgres://postgres@127.0.0.1:{}/{name}", self.wire.port);
        let store = Postgres::open(options(&url, &self.clock, 1)).await.unwrap();
        World::new(Arc::new(store), self.clock.clone(), ())
    }
}

#[test]
fn many_reads_of_a_silent_database_are_all_answered_in_time_and_work_when_it_is_back() {
    let apparatus = Apparatus::new();
    Runtime::new().unwrap().block_on(async {
        let world = apparatus.node().await;
        let id = world.publish(item()).await;
        assert!(world.get(id).await.is_some());
        apparatus.wire.set(Mode::Hung);
        let mut reading = JoinSet::new();
        for _ in 0..64 {
            let store = Arc::clone(&world.store);
            reading.spawn(async move { store.intent(IntentId([0; 16])).await });
        }
        let answers = timeout(Duration::from_secs(15), reading.join_all()).await;
        assert!(answers.unwrap().iter().all(Result::is_err));
        // The old connections hang forever, and new ones work.
        apparatus.wire.forget();
        let began = Instant::now();
        until(async || world.store.intent(id).await.is_ok()).await;
        assert!(began.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn a_node_whose_notification_connection_hangs_takes_another_one() {
    let apparatus = Apparatus::new();
    Runtime::new().unwrap().block_on(async {
        let world = apparatus.node().await;
        let options = options(&apparatus.database.url(), &apparatus.clock, 2);
        let other = Postgres::open(options).await.unwrap();
        let heard = Arc::new(AtomicBool::new(false));
        let hearing = Arc::clone(&heard);
        other.listen(Box::new(move |news| {
            hearing.fetch_or(news.heard && !news.ripe.is_empty(), Ordering::Relaxed);
        }));
        let rings = async || {
            publish(&world).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            heard.load(Ordering::Relaxed)
        };
        until(rings).await;
        apparatus.wire.set(Mode::Hung);
        publish(&world).await;
        apparatus.wire.forget();
        heard.store(false, Ordering::Relaxed);
        // A few times the timeouts of a writer, of the notification listener and of a new connection together.
        let began = Instant::now();
        while !rings().await {
            assert!(began.elapsed() < 3 * LONG, "nobody hears of anything");
        }
    });
}

/// The publication may fail.
async fn publish(world: &World) {
    static SEEDS: AtomicU64 = AtomicU64::new(0);
    let mut seed = [9; 32];
    seed[..8].copy_from_slice(&SEEDS.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    let admit = Admit {
        items: vec![item()],
        cap: None,
    };
    let request = Request {
        gate: None,
        steps: vec![Command::Admit(admit)],
        on_refusal: OnRefusal::Continue,
        seed,
    };
    let _ = world.store.execute(request).await;
}
