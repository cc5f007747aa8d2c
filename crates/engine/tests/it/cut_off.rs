//! A waiting claim is woken even if the waiters before it are cancelled at the worst moment.
//!
//! The ledger executes one request at a time, and time does not advance: without a wake, no claim queries the store again.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::Error;
use consign_kernel::command::{Admit, Answer, Command};
use consign_kernel::intent::Intent;
use tokio::task::JoinHandle;

use crate::manual_store::ManualStore;
use crate::world::{Frozen, World, claim, intent, woken};

/// An engine whose ledger executes requests only on demand.
struct CutOffSetup {
    world: World,
    ledger: Arc<ManualStore>,
    _frozen: Frozen,
}

impl CutOffSetup {
    fn new() -> Self {
        let mut held = None;
        let world = World::over(|store| held.insert(ManualStore::around(store)).clone());
        Self {
            world,
            ledger: held.unwrap(),
            _frozen: Frozen::new(),
        }
    }

    /// A claim that found nothing and waits.
    async fn wait(&self) -> JoinHandle<Result<Vec<Intent>, Error>> {
        let engine = self.world.engine.clone();
        let waiter =
            tokio::spawn(async move { engine.claim(None, claim(), Duration::from_secs(30)).await });
        self.ledger.turn().await;
        waiter
    }

    /// A publisher whose intent is committed and that has not received the answer.
    async fn publish(&self) -> JoinHandle<Result<Answer, Error>> {
        let engine = self.world.engine.clone();
        let items = vec![intent()];
        let admit = Command::Admit(Admit { items, cap: None });
        let publisher = tokio::spawn(async move { engine.apply(None, admit).await });
        self.ledger.turn().await;
        publisher
    }
}

/// Everything that the task held is released when this returns.
async fn cut_off<T>(task: &JoinHandle<T>) {
    task.abort();
    while !task.is_finished() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_is_cut_off_after_its_commit_still_wakes_a_waiting_claim() {
    let bench = CutOffSetup::new();
    let waiter = bench.wait().await;
    let publisher = bench.publish().await;
    publisher.abort();
    // The waiter queries the store, although the publisher did not receive its answer.
    bench.ledger.turn().await;
    assert!(publisher.await.unwrap_err().is_cancelled());
    assert_eq!(woken(waiter).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_is_cut_off_before_its_answer_still_wakes_a_waiting_claim() {
    let _frozen = Frozen::new();
    let world = World::new();
    let engine = world.engine.clone();
    let waiter =
        tokio::spawn(async move { engine.claim(None, claim(), Duration::from_secs(30)).await });
    while world.store.stats().requests == 0 {
        tokio::task::yield_now().await;
    }
    let items = vec![intent()];
    let admit = Command::Admit(Admit { items, cap: None });
    let mut publisher = Box::pin(world.engine.apply(None, admit));
    // Waits only until the ledger has accepted the request.
    while world.store.stats().requests == 1 {
        tokio::select! {
            biased;
            _ = &mut publisher => {}
            () = tokio::task::yield_now() => {}
        }
    }
    drop(publisher);
    assert_eq!(woken(waiter).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_was_woken_and_goes_before_it_could_look_passes_the_hint_on() {
    for cut in [true, false] {
        let bench = CutOffSetup::new();
        let first = bench.wait().await;
        let second = bench.wait().await;
        let publisher = bench.publish().await;
        // The first waiter queries now. Its connection is cut, or the disk fails.
        bench.ledger.asked().await;
        if cut {
            cut_off(&first).await;
        } else {
            bench.ledger.refuse().await;
        }
        bench.ledger.turn().await;
        assert_eq!(woken(second).await.unwrap().len(), 1, "cut: {cut}");
        assert!(woken(publisher).await.is_ok());
        let gone = first.await;
        assert!(
            gone.is_err() || gone.is_ok_and(|refused| refused.is_err()),
            "cut: {cut}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_given_to_a_waiter_that_goes_away_is_passed_on() {
    let bench = CutOffSetup::new();
    let first = bench.wait().await;
    let second = bench.wait().await;
    // The first waiter was woken and is cancelled before it can query.
    bench.publish().await;
    cut_off(&first).await;
    bench.ledger.turn().await;
    assert_eq!(woken(second).await.unwrap().len(), 1);
}
