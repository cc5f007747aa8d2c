//! The simulated machine loses exactly the data that a real one would lose.

use std::sync::Arc;
use std::time::Duration;

use consign_kernel::command::{Command, OnRefusal, Reply, Request};
use consign_kernel::record::{self, Put};
use consign_store::conformance::ManualClock;
use consign_store::memory::simulated::{self, DiskFault, Simulated, SimulatedMachine, Turn};
use consign_store::{Error, Store, TypedReads as _};
use tokio::task::JoinHandle;

fn put(store: &Arc<Simulated>) -> JoinHandle<Result<Reply, Error>> {
    let store = Arc::clone(store);
    let request = Request {
        gate: None,
        steps: vec![Command::Put(Put {
            key: key(),
            value: "v".to_owned(),
            expires_at: None,
            expect: None,
        })],
        on_refusal: OnRefusal::Continue,
        seed: [0; 32],
    };
    tokio::spawn(async move { store.execute(request).await })
}

fn key() -> record::Key {
    record::Key {
        kind: record::Kind::Kv,
        owner: "main".to_owned(),
        name: "n".to_owned(),
    }
}

fn start() -> (Arc<Simulated>, SimulatedMachine) {
    simulated::start(clock(), 16)
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::default())
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_refused_commit_is_told_and_leaves_nothing() {
    let (store, mut machine) = start();
    let request = put(&store);
    settle().await;
    assert_eq!(machine.turn(DiskFault::Refused), Turn::Failed);
    let refused = request.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    assert!(store.record(key()).await.unwrap().is_none());
    assert_eq!(machine.turn(DiskFault::None), Turn::Idle);
}

#[tokio::test]
async fn a_crash_tells_nobody_and_keeps_only_what_was_committed_before_it() {
    for (fault, kept) in [
        (DiskFault::CrashBefore, false),
        (DiskFault::CrashAfter, true),
    ] {
        let (store, mut machine) = start();
        let request = put(&store);
        settle().await;
        assert_eq!(machine.turn(fault), Turn::Crashed);
        let lost = request.await.unwrap().unwrap_err();
        assert!(matches!(lost, Error::Closed), "{lost}");
        let (store, mut machine) = machine.restart(clock());
        assert_eq!(store.record(key()).await.unwrap().is_some(), kept);
        let again = put(&store);
        settle().await;
        assert_eq!(machine.turn(DiskFault::None), Turn::Committed);
        assert!(again.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn what_is_not_safe_yet_is_neither_answered_nor_shown_nor_kept() {
    for (fault, kept) in [
        (DiskFault::None, true),
        (DiskFault::CrashBefore, false),
        (DiskFault::Gone, false),
    ] {
        let (store, mut machine) = start();
        let request = put(&store);
        settle().await;
        assert_eq!(machine.turn(DiskFault::Slow), Turn::Slow);
        settle().await;
        assert!(!request.is_finished());
        assert!(store.record(key()).await.unwrap().is_none());
        let next = machine.turn(fault);
        assert_eq!(next, if kept { Turn::Committed } else { Turn::Crashed });
        assert_eq!(request.await.unwrap().is_ok(), kept);
        assert_eq!(store.record(key()).await.unwrap().is_some(), kept);
    }
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_accepted_until_a_new_start() {
    let (store, mut machine) = start();
    let request = put(&store);
    settle().await;
    assert_eq!(machine.turn(DiskFault::Lost), Turn::Crashed);
    assert!(matches!(request.await.unwrap(), Err(Error::Lost)));
    assert!(matches!(put(&store).await.unwrap(), Err(Error::Lost)));
    let (store, mut machine) = machine.restart(clock());
    let again = put(&store);
    settle().await;
    assert_eq!(machine.turn(DiskFault::None), Turn::Committed);
    assert!(again.await.unwrap().is_ok());
}

/// The second group runs before the first one is durable, and is lost with it.
#[tokio::test]
async fn a_group_that_ran_on_a_lost_one_is_refused() {
    for fault in [DiskFault::Lost, DiskFault::Gone, DiskFault::CrashBefore] {
        let (store, mut machine) = start();
        let first = put(&store);
        settle().await;
        assert_eq!(machine.turn(DiskFault::Slow), Turn::Slow);
        let second = put(&store);
        settle().await;
        assert_eq!(machine.turn(fault), Turn::Crashed);
        assert!(second.await.unwrap().is_err());
        let (store, _machine) = machine.restart(clock());
        assert!(first.await.unwrap().is_err());
        let kept = store.record(key()).await.unwrap();
        assert_eq!(
            kept.map(|record| record.version),
            (fault == DiskFault::Lost).then_some(1)
        );
    }
}
