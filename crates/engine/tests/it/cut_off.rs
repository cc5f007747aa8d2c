//! Whoever waits is woken even if those before it went away at the worst moment.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Engine, Error};
use consign_kernel::command::{Admit, Answer, Command};
use consign_kernel::intent::Intent;
use consign_store::SharedStore;
use consign_store::memory::simulated::{self, Fault, Machine, Turn};
use consign_testkit::clock::SimClock;
use tokio::task::JoinHandle;

use crate::world::{claim, engine, intent};

/// An engine whose disk works only when told to.
struct Bench {
    engine: Engine,
    machine: Machine,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(SimClock::default());
        let (store, machine) = simulated::start(clock.clone(), 16);
        let store: SharedStore = store;
        Self {
            engine: engine(&store, &clock, [7; 32]),
            machine,
        }
    }

    fn wait(&self) -> JoinHandle<Result<Vec<Intent>, Error>> {
        let engine = self.engine.clone();
        tokio::spawn(async move { engine.claim(None, claim(), Duration::from_secs(30)).await })
    }

    fn publish(&self) -> JoinHandle<Result<Answer, Error>> {
        let engine = self.engine.clone();
        let items = vec![intent()];
        let admit = Command::Admit(Admit { items, cap: None });
        tokio::spawn(async move { engine.apply(None, admit).await })
    }

    async fn turn(&mut self, fault: Fault) {
        settle().await;
        let turn = self.machine.turn(fault);
        assert_ne!(turn, Turn::Idle, "somebody should wait for the disk");
    }
}

/// With a paused clock, time moves on only when everything that can run has run.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_is_cut_off_after_its_commit_still_wakes_a_waiting_claim() {
    let mut bench = Bench::new();
    let waiter = bench.wait();
    bench.turn(Fault::None).await;
    let publisher = bench.publish();
    bench.turn(Fault::None).await;
    publisher.abort();
    settle().await;
    // The waiter looks, although nobody heard the answer.
    bench.turn(Fault::None).await;
    settle().await;
    assert!(waiter.is_finished(), "it would have polled, seconds later");
    assert_eq!(waiter.await.unwrap().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_was_woken_and_goes_before_it_could_look_passes_the_hint_on() {
    for cut in [true, false] {
        let mut bench = Bench::new();
        let first = bench.wait();
        bench.turn(Fault::None).await;
        let second = bench.wait();
        bench.turn(Fault::None).await;
        let publisher = bench.publish();
        bench.turn(Fault::None).await;
        settle().await;
        // The first one looks now. Its connection breaks, or the disk refuses.
        if cut {
            first.abort();
        } else {
            bench.turn(Fault::Refused).await;
        }
        settle().await;
        bench.turn(Fault::None).await;
        settle().await;
        assert!(first.is_finished() && publisher.is_finished());
        assert!(second.is_finished(), "cut: {cut}");
        assert_eq!(second.await.unwrap().unwrap().len(), 1);
    }
}
