//! What only the PostgreSQL backend promises: many nodes on one database.

use std::sync::Arc;

use consign_store::SharedStore;
use consign_store::conformance::{self, ManualClock};
use consign_store::postgres::{Address, Options, Postgres, QUEUE_REQUESTS_MAX, TEMPLATE, WRITERS_DEFAULT};
use consign_testkit::postgres::{self, Database};

/// A database of its own, and a node on it.
pub(crate) struct World {
    database: Arc<Database>,
    clock: Arc<ManualClock>,
    store: Arc<Postgres>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let database = tokio::task::spawn_blocking(fresh).await.unwrap();
        let clock = Arc::new(ManualClock::default());
        let store = open(&database, &clock).await;
        Self {
            database: Arc::new(database),
            clock,
            store: Arc::new(store),
        }
    }

    /// The same store, as the suite likes it.
    pub(crate) fn shared(&self) -> conformance::World {
        let store: SharedStore = self.store.clone();
        conformance::World::new(store, self.clock.clone(), Arc::clone(&self.database))
    }
}

fn fresh() -> Database {
    let cluster = postgres::shared().unwrap();
    let fill = |url: &str| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let clock = Arc::new(ManualClock::default());
            let options = options(url, &clock);
            Postgres::open(options).await.unwrap();
        });
    };
    cluster.database(TEMPLATE, fill).unwrap()
}

fn options(url: &str, clock: &Arc<ManualClock>) -> Options {
    Options {
        address: Address::parse(url, None).unwrap(),
        clock: clock.clone(),
        queue_max: QUEUE_REQUESTS_MAX,
        writers: WRITERS_DEFAULT,
    }
}

async fn open(database: &Database, clock: &Arc<ManualClock>) -> Postgres {
    Postgres::open(options(&database.url(), clock)).await.unwrap()
}
