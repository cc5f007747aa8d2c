//! The simulated machine forgets exactly what a real one would.

use std::sync::Arc;
use std::time::Duration;

use consign_kernel::command::{Command, Request};
use consign_kernel::record::{self, Put};
use consign_store::conformance::ManualClock;
use consign_store::memory::simulated::{self, Fault, Machine, Simulated, Turn};
use consign_store::{Error, Executed, Store};
use tokio::task::JoinHandle;

fn put(store: &Arc<Simulated>) -> JoinHandle<Result<Executed, Error>> {
    let store = Arc::clone(store);
    let request = Request {
        gate: None,
        steps: vec![Command::Put(Put {
            key: key(),
            value: "v".to_owned(),
            expires_at: None,
            expect: None,
        })],
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

fn start() -> (Arc<Simulated>, Machine) {
    simulated::start(Arc::new(ManualClock::default()), 16)
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_refused_commit_is_told_and_leaves_nothing() {
    let (store, mut machine) = start();
    let request = put(&store);
    settle().await;
    assert_eq!(machine.turn(Fault::Refused), Turn::Failed);
    let refused = request.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    assert!(store.record(key()).await.unwrap().is_none());
    assert_eq!(machine.turn(Fault::None), Turn::Idle);
}

#[tokio::test]
async fn a_crash_tells_nobody_and_keeps_only_what_was_committed_before_it() {
    for (fault, kept) in [(Fault::CrashBefore, false), (Fault::CrashAfter, true)] {
        let (store, mut machine) = start();
        let request = put(&store);
        settle().await;
        assert_eq!(machine.turn(fault), Turn::Crashed);
        let lost = request.await.unwrap().unwrap_err();
        assert!(matches!(lost, Error::Closed), "{lost}");
        let (store, mut machine) = machine.restart();
        assert_eq!(store.record(key()).await.unwrap().is_some(), kept);
        let again = put(&store);
        settle().await;
        assert_eq!(machine.turn(Fault::None), Turn::Committed);
        assert!(again.await.unwrap().is_ok());
    }
}
