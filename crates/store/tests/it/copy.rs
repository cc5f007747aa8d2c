//! Copies of a ledger from one database to the other and back: they are complete, and work continues on them.

mod cut_off;
mod fill;
mod refused;

use std::path::Path;
use std::sync::Arc;

use consign_kernel::ids::IntentId;
use consign_store::conformance::{ManualClock, START, World, claim_by, item};
use consign_store::copy::{self, CopyEnd, CopyProgress, CopyReport, LedgerTable, TargetContent};
use consign_store::postgres::{DatabaseAddress, Postgres};
use consign_store::sqlite::{self, QUEUE_REQUESTS_MAX, Sqlite};
use consign_store::{Clock, Dump, Error, SharedStore};
use consign_testkit::ledger;
use consign_testkit::postgres::Database;
use tempfile::TempDir;

/// The number of copied intents; an environment variable sets it for long runs.
fn rows() -> usize {
    let asked = std::env::var("CONSIGN_COPY_ROWS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(3_000)
}

fn file(folder: &TempDir, name: &str) -> CopyEnd {
    CopyEnd::File(folder.path().join(name))
}

async fn fresh_database() -> Arc<Database> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    Arc::new(ledger::database(&clock))
}

fn database(database: &Database) -> CopyEnd {
    let address = DatabaseAddress::parse(&database.url(), None).unwrap();
    CopyEnd::Database(Box::new(address))
}

/// An open ledger at an end.
async fn open(end: &CopyEnd, clock: &Arc<ManualClock>) -> Result<SharedStore, Error> {
    Ok(match end {
        CopyEnd::File(path) => Arc::new(Sqlite::open(sqlite::Options {
            path: path.clone(),
            clock: clock.clone(),
            queue_max: QUEUE_REQUESTS_MAX,
        })?),
        CopyEnd::Database(address) => {
            let options = crate::postgres::options_at((**address).clone(), clock, 9);
            Arc::new(Postgres::open(options).await?)
        }
    })
}

async fn world(end: &CopyEnd, clock: &Arc<ManualClock>) -> World {
    World::new(open(end, clock).await.unwrap(), clock.clone(), ())
}

/// A file with rows of every kind that a ledger can contain.
async fn filled(folder: &TempDir, name: &str, clock: &Arc<ManualClock>, rows: usize) -> CopyEnd {
    let end = file(folder, name);
    drop(world(&end, clock).await);
    // The file simulates long use: its numbers are beyond the first blocks of PostgreSQL.
    let meddler = rusqlite::Connection::open(folder.path().join(name)).unwrap();
    let sql = "UPDATE position SET last_seq = 100000, last_fact = 200000";
    assert_eq!(meddler.execute(sql, []).unwrap(), 1);
    drop(meddler);
    let world = world(&end, clock).await;
    fill::fill(&world, rows).await;
    world.is_sound().await;
    end
}

fn options(from: &CopyEnd, to: &CopyEnd) -> copy::Options {
    copy::Options {
        from: from.clone(),
        to: to.clone(),
        anew: false,
        batch_rows: 700,
        now_us: START.0,
    }
}

async fn copied(from: &CopyEnd, to: &CopyEnd) -> CopyReport {
    run(options(from, to), |_| {}).await.unwrap()
}

async fn run(
    options: copy::Options,
    progress: impl FnMut(CopyProgress) + Send + 'static,
) -> Result<CopyReport, Error> {
    tokio::task::spawn_blocking(move || copy::copy(&options, progress))
        .await
        .unwrap()
}

/// The content of a ledger, in an order that does not depend on the collation of texts.
async fn content(end: &CopyEnd, clock: &Arc<ManualClock>) -> Dump {
    let world = world(end, clock).await;
    is_sound(&world).await;
    let mut dump = world.store.dump().await.unwrap();
    dump.once.sort_by(|left, right| left.key.cmp(&right.key));
    dump.records.sort_by(|left, right| left.key.cmp(&right.key));
    dump.counts.sort();
    dump
}

/// Returns the next claimed rows, in order, and checks that new rows get new numbers.
async fn goes_on(end: &CopyEnd, clock: &Arc<ManualClock>, before: &Dump) -> Vec<IntentId> {
    let world = world(end, clock).await;
    let mut ids = Vec::new();
    for owner in ["alice", "bob"] {
        for _ in 0..20 {
            let claimed = world.claim(claim_by(owner)).await;
            ids.extend(claimed.iter().map(|row| row.id));
        }
    }
    let id = world.publish(item()).await;
    let row = world.load(id).await;
    let last = before.intents.iter().map(|row| row.seq).max();
    assert!(Some(row.seq) > last, "a number twice");
    let last = before.facts.iter().map(|fact| fact.seq).max();
    assert!(row.last_fact > last, "a number of a fact twice");
    is_sound(&world).await;
    ids
}

/// Uses the store's own check only: the suite's audit expects texts in the order of their characters, and PostgreSQL
/// stores the zero character in another form.
async fn is_sound(world: &World) {
    assert_eq!(world.store.check().await.unwrap(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_travels_to_postgres_and_back_and_work_goes_on() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, rows()).await;
    let before = content(&first, &clock).await;
    let kept = fresh_database().await;
    let (second, third) = (database(&kept), file(&folder, "third.db"));

    let report = copied(&first, &second).await;
    assert!(!report.resumed);
    let expected = [
        (LedgerTable::Intents, before.intents.len()),
        (LedgerTable::Facts, before.facts.len()),
        (LedgerTable::Records, before.records.len()),
        (LedgerTable::Counts, before.counts.len()),
    ];
    for (table, rows) in expected {
        let found = report.tables.iter().find(|copied| copied.table == table);
        assert_eq!(found.unwrap().rows, rows as u64, "{table:?}");
    }
    same(&content(&second, &clock).await, &before);
    let back = copied(&second, &third).await;
    assert_eq!(back.tables, report.tables, "same rows, same digests");
    same(&content(&third, &clock).await, &before);

    let order = goes_on(&first, &clock, &before).await;
    assert_eq!(order.len(), 40, "there is enough to claim");
    assert_eq!(goes_on(&second, &clock, &before).await, order);
    assert_eq!(goes_on(&third, &clock, &before).await, order);
}

/// Compares without printing: a difference of thousands of rows is not readable.
fn same(found: &Dump, expected: &Dump) {
    assert!(found.intents == expected.intents, "intents");
    assert!(found.lanes == expected.lanes, "lanes");
    assert!(found.facts == expected.facts, "facts");
    assert!(found.once == expected.once, "once");
    assert!(found.records == expected.records, "records");
    assert_eq!(found.counts, expected.counts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_and_nonces_travel_too() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 50).await;
    let (second, kept) = (file(&folder, "second.db"), fresh_database().await);
    let third = database(&kept);
    copied(&first, &second).await;
    copied(&first, &third).await;
    let last = |end: &CopyEnd| match end {
        CopyEnd::File(path) => Sqlite::last_time(path).unwrap(),
        CopyEnd::Database(_) => None,
    };
    assert_eq!(last(&second), last(&first));
    assert_eq!(last(&second), Some(clock_now(&clock)));
    for end in [&second, &third] {
        let world = world(end, &clock).await;
        assert!(!fill::passes(&world, "twice").await, "it was used");
        assert!(fill::passes(&world, "never").await);
    }
}

fn clock_now(clock: &ManualClock) -> consign_kernel::ids::Micros {
    consign_store::Clock::now(clock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_saved_as_a_file_while_nodes_run() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 200).await;
    let kept = fresh_database().await;
    let second = database(&kept);
    copied(&first, &second).await;
    let node = world(&second, &clock).await;
    node.publish(item()).await;
    let path = folder.path().join("saved.db");
    save(&second, &path).await.unwrap();
    let log = folder.path().join("saved.db-wal");
    assert!(!log.exists(), "everything is in the file itself");
    node.publish(item()).await;

    let saved = content(&CopyEnd::File(path.clone()), &clock).await;
    let now = content(&second, &clock).await;
    assert_eq!(saved.intents.len() + 1, now.intents.len());
    assert_eq!(saved.intents[..], now.intents[..saved.intents.len()]);
    assert_eq!(saved.facts[..], now.facts[..saved.facts.len()]);
}

async fn save(from: &CopyEnd, to: &Path) -> Result<CopyReport, Error> {
    let CopyEnd::Database(address) = from.clone() else {
        panic!("a database is saved");
    };
    let to = to.to_owned();
    tokio::task::spawn_blocking(move || copy::save(&address, &to, START.0, |_| {}))
        .await
        .unwrap()
}

async fn look(from: &CopyEnd, to: &CopyEnd) -> copy::CopyPlan {
    let (from, to) = (from.clone(), to.clone());
    let plan = tokio::task::spawn_blocking(move || copy::plan(&from, &to, false));
    plan.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_tells_what_would_happen_and_makes_nothing() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 50).await;
    let second = file(&folder, "second.db");
    let plan = look(&first, &second).await;
    assert_eq!(plan.tables[0], (LedgerTable::Intents, 51));
    assert_eq!(
        (plan.found, plan.obstacles),
        (TargetContent::Nothing, vec![])
    );
    assert!(!folder.path().join("second.db").exists());

    let kept = fresh_database().await;
    let third = database(&kept);
    let plan = look(&first, &third).await;
    assert_eq!((plan.found, plan.obstacles), (TargetContent::Empty, vec![]));
    copied(&first, &third).await;
    let plan = look(&first, &third).await;
    assert_eq!(plan.found, TargetContent::Ledger);
    assert_eq!(plan.obstacles.len(), 1);
    let node = world(&third, &clock).await;
    let plan = look(&third, &second).await;
    assert!(plan.obstacles[0].contains("in use"), "{plan:?}");
    drop(node);
}
