//! Properties of the PostgreSQL backend alone: several nodes on one database.

mod entry;
mod locked;
mod mesh;
mod migrations;
mod nodes;
mod silent;
mod streams;
mod trouble;
mod warnings;

pub(crate) use trouble::stranger;

use std::sync::Arc;

use consign_store::conformance::{self, ManualClock};
use consign_store::postgres::{
    DatabaseAddress, Options, Postgres, QUEUE_REQUESTS_MAX, WRITERS_DEFAULT,
};
use consign_store::{Clock, SharedStore};
use consign_testkit::postgres::Database;
use consign_testkit::{ledger, plants};

/// A separate database, and nodes on it.
pub(crate) struct Cluster {
    database: Arc<Database>,
    nodes: Vec<Arc<Postgres>>,
    first: conformance::World,
}

impl Cluster {
    pub(crate) async fn new(nodes: i64) -> Self {
        plants::from_environment();
        let clock = Arc::new(ManualClock::default());
        let time: Arc<dyn Clock> = clock.clone();
        let database = ledger::database(&time);
        let mut stores = Vec::new();
        for node in 1..=nodes {
            let options = options(&database.url(), &clock, node);
            stores.push(Arc::new(Postgres::open(options).await.unwrap()));
        }
        let database = Arc::new(database);
        let first: SharedStore = stores[0].clone();
        Self {
            first: conformance::World::new(first, clock, Arc::clone(&database)),
            database,
            nodes: stores,
        }
    }

    /// A node as a world of the conformance suite.
    pub(crate) fn world(&self, node: usize) -> conformance::World {
        self.first.through(self.nodes[node].clone())
    }

    pub(crate) fn url(&self) -> String {
        self.database.url()
    }
}

fn options(url: &str, clock: &Arc<ManualClock>, node: i64) -> Options {
    options_at(DatabaseAddress::parse(url, None).unwrap(), clock, node)
}

pub(crate) fn options_at(address: DatabaseAddress, clock: &Arc<ManualClock>, node: i64) -> Options {
    Options {
        address,
        clock: clock.clone(),
        queue_max: QUEUE_REQUESTS_MAX,
        writers: WRITERS_DEFAULT,
        node,
        hold: None,
    }
}
