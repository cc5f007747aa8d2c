//! Records, units of work, leases, workers and publications, as faces use them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_engine::{
    Engine, Error, Lease, Leases, Limits, Publication, PublicationKey, TRIES_MAX, UnitOfWork,
    Versioned, Worker,
};
use consign_kernel::command::{Claim, Command, NewIntent, Operate, Reply, Request, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::Intent;
use consign_kernel::limits;
use consign_kernel::profile::Face;
use consign_kernel::record::{Key, Kind};
use consign_kernel::state::State;
use consign_store::{Forwarding, SharedStore, TypedReads as _};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::world::{World, claim, intent};

fn key(name: &str) -> Key {
    Key {
        kind: Kind::Kv,
        owner: "main".to_owned(),
        name: name.to_owned(),
    }
}

async fn add(engine: &Engine, more: u64) -> Result<u64, Error> {
    let change = |count: &mut u64| {
        *count += more;
        Ok(*count)
    };
    engine.update(key("count"), change).await
}

async fn counted(engine: &Engine) -> Versioned<u64> {
    engine.load_or_default(key("count")).await.unwrap()
}

#[tokio::test]
async fn concurrent_updates_of_one_record_lose_nothing() {
    let world = World::new();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let engine = world.engine.clone();
        tasks.spawn(async move { add(&engine, 1).await.unwrap() });
    }
    let mut results = tasks.join_all().await;
    results.sort_unstable();
    assert_eq!(results, (1..=8).collect::<Vec<_>>());
    assert_eq!(counted(&world.engine).await.version, 8);
}

#[tokio::test]
async fn an_update_that_changes_nothing_writes_nothing() {
    let world = World::new();
    assert_eq!(add(&world.engine, 0).await.unwrap(), 0);
    assert_eq!(counted(&world.engine).await.version, 0);
    add(&world.engine, 2).await.unwrap();
    assert_eq!(add(&world.engine, 0).await.unwrap(), 2);
    assert_eq!(counted(&world.engine).await.version, 1);
}

#[tokio::test]
async fn an_update_keeps_the_expiry_and_tells_a_missing_record_from_an_empty_one() {
    let world = World::new();
    let missing = |value: &mut Option<u64>| Ok::<_, Error>(value.is_none());
    assert!(world.engine.update(key("count"), missing).await.unwrap());
    let expires_at = world.engine.now().plus(SECOND_US);
    let mut unit = UnitOfWork::default();
    unit.put_until(key("count"), &7, expires_at);
    world.engine.commit(unit).await.unwrap();
    assert_eq!(add(&world.engine, 1).await.unwrap(), 8);
    assert_eq!(counted(&world.engine).await.expires_at, Some(expires_at));
    world.clock.advance_s(2);
    assert!(world.engine.update(key("count"), missing).await.unwrap());
}

#[tokio::test]
async fn an_update_ends_with_a_mismatch_after_a_bounded_number_of_tries() {
    let world = World::new();
    let mut tries = 0;
    // The additional step expects a version that the record never has.
    let outdated = |count: &mut Versioned<u64>, unit: &mut UnitOfWork| {
        tries += 1;
        count.value += 1;
        unit.expect(key("other"), 9);
        Ok::<_, Error>(())
    };
    let updated = world.engine.update_with(key("count"), outdated).await;
    assert!(matches!(
        updated,
        Err(Error::Refused(Refusal::VersionMismatch))
    ));
    assert_eq!(tries, TRIES_MAX);
    assert_eq!(counted(&world.engine).await.version, 0);
}

/// A unit whose steps are added in reverse order of execution.
fn unit(version: u64, cancelled: &Intent) -> UnitOfWork {
    let mut unit = UnitOfWork::default();
    unit.claim(claim());
    unit.admit(vec![intent()]);
    unit.put(key("beside"), &true);
    unit.require(Command::Cancel(Operate {
        id: cancelled.id,
        face: Face::Intent,
        reason: String::new(),
    }));
    unit.expect(key("count"), version);
    unit
}

#[tokio::test]
async fn a_refused_unit_writes_nothing_whatever_the_order_of_its_steps() {
    let world = World::new();
    let id = world.publish(intent()).await;
    let row = world.store.intent(id).await.unwrap().unwrap();
    let before = world.store.dump().await.unwrap();
    let refused = world.engine.commit(unit(4, &row)).await;
    assert!(matches!(
        refused,
        Err(Error::Refused(Refusal::VersionMismatch))
    ));
    let mut unknown = row.clone();
    unknown.id.0[0] ^= 1;
    let refused = world.engine.commit(unit(0, &unknown)).await;
    assert!(matches!(refused, Err(Error::Refused(Refusal::NotFound))));
    assert_eq!(world.store.dump().await.unwrap(), before);
}

#[tokio::test]
async fn a_unit_returns_the_answer_of_each_step() {
    let world = World::new();
    world.publish(intent()).await;
    let held = world.engine.claim(None, claim(), Duration::ZERO).await;
    let lease = Lease::of(&held.unwrap()[0]);
    let mut unit = UnitOfWork::default();
    let next = unit.claim(claim());
    let admitted = unit.admit(vec![intent()]);
    let settled = unit.settle(&lease, Settlement::Complete { result: None });
    let mut done = world.engine.commit(unit).await.unwrap();
    let admitted = done.get(admitted).unwrap();
    assert_eq!(done.get(settled).unwrap().state, State::Acked);
    // The claim is executed last, so it finds the new intent.
    assert_eq!(done.get(next).unwrap()[0].id, admitted[0].id);
}

#[tokio::test]
async fn kept_leases_are_extended_until_they_are_dropped_and_a_lost_one_is_reported() {
    let world = World::new();
    let leases = Leases::new(world.engine.clone());
    let mut held = Vec::new();
    for _ in 0..3 {
        world.publish(intent()).await;
        let claimed = world.engine.claim(None, claim(), Duration::ZERO).await;
        held.append(&mut claimed.unwrap());
    }
    let mut kept = held.iter().map(|row| leases.keep(Lease::of(row)));
    let (first, second, third) = (
        kept.next().unwrap(),
        kept.next().unwrap(),
        kept.next().unwrap(),
    );
    let (second_lost, third_lost) = (second.lost(), third.lost());
    drop(third);
    assert!(!third_lost.await, "it was dropped, not lost");
    world.clock.advance_s(40);
    leases.extend_all().await.unwrap();
    world
        .settle(&held[1], Settlement::Complete { result: None })
        .await;
    world.clock.advance_s(40);
    leases.extend_all().await.unwrap();
    assert!(second_lost.await);
    let observed = world.engine.observe(held[0].id).await.unwrap().unwrap();
    assert!(observed.is_leased(world.engine.now()));
    let observed = world.engine.observe(held[2].id).await.unwrap().unwrap();
    assert!(!observed.is_leased(world.engine.now()));
    let lost = tokio::time::timeout(Duration::from_millis(10), first.lost());
    assert!(lost.await.is_err());
}

/// Fails every request that extends this row, as if another transaction held its lock.
struct LockedRow {
    inner: SharedStore,
    row: Arc<Mutex<Option<IntentId>>>,
}

impl Forwarding for LockedRow {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    fn execute(&self, request: Request) -> consign_store::BoxFuture<'_, Reply> {
        let locked = *self.row.lock().unwrap();
        let extends =
            |step: &Command| matches!(step, Command::Extend(extend) if Some(extend.id) == locked);
        if request.steps.iter().any(extends) {
            return Box::pin(async { Err(consign_store::Error::Unavailable("locked".to_owned())) });
        }
        self.inner.execute(request)
    }
}

#[tokio::test]
async fn an_extension_that_fails_leaves_the_other_leases_alone() {
    let row = Arc::new(Mutex::new(None));
    let locked = Arc::clone(&row);
    let world = World::over(|inner| {
        Arc::new(LockedRow {
            inner,
            row: Arc::clone(&row),
        })
    });
    let leases = Leases::new(world.engine.clone());
    let mut held = Vec::new();
    for _ in 0..3 {
        world.publish(intent()).await;
        let claimed = world.engine.claim(None, claim(), Duration::ZERO).await;
        held.append(&mut claimed.unwrap());
    }
    let kept: Vec<_> = held.iter().map(|row| leases.keep(Lease::of(row))).collect();
    *locked.lock().unwrap() = Some(held[1].id);
    world.clock.advance_s(40);
    assert!(leases.extend_all().await.is_err());
    world.clock.advance_s(40);
    let mut leased = Vec::new();
    for row in &held {
        let row = world.engine.observe(row.id).await.unwrap().unwrap();
        leased.push(row.is_leased(world.engine.now()));
    }
    assert_eq!(leased, [true, false, true]);
    let lost = tokio::time::timeout(Duration::from_millis(10), kept[0].lost());
    assert!(lost.await.is_err());
}

fn worker() -> Worker {
    Worker::new(claim(), &["waits"])
}

fn limits(slots: usize, capabilities: &[(&str, usize)]) -> Limits {
    let owned = |(name, max): &(&str, usize)| ((*name).to_owned(), *max);
    Limits {
        slots,
        capabilities: capabilities.iter().map(owned).collect(),
    }
}

fn capable(capability: &str) -> NewIntent {
    NewIntent {
        capability: Some(capability.to_owned()),
        ..intent()
    }
}

#[tokio::test]
async fn a_worker_reserves_what_its_limits_allow() {
    let world = World::new();
    let worker = worker();
    let all = limits(2, &[("waits", 9), ("a", 1), ("b", 5)]);
    for capability in ["a", "b"] {
        world.publish(capable(capability)).await;
    }
    let claimed = |claim: Claim| world.engine.claim(None, claim, Duration::ZERO);
    let first = worker.reserve(&all, None).unwrap();
    assert_eq!(first.claim().capabilities, ["waits", "a", "b"]);
    assert_eq!(
        first.claim().max,
        1,
        "one of them may be of the narrow kind"
    );
    let beside = worker.reserve(&all, None).unwrap();
    assert_eq!(beside.claim().capabilities, ["waits", "b"]);
    drop(beside);
    let rows = claimed(first.claim()).await.unwrap();
    let (mut a, row) = first.start(rows).remove(0);
    assert_eq!((row.capability.as_deref(), worker.busy()), (Some("a"), 1));
    let second = worker.reserve(&all, None).unwrap();
    let rows = claimed(second.claim()).await.unwrap();
    let (b, _) = second.start(rows).remove(0);
    assert_eq!((worker.busy(), worker.running_of("b")), (2, 1));
    // Without a free slot, only rows that need no slot are claimed.
    let third = worker.reserve(&all, None).unwrap();
    assert_eq!(third.claim().capabilities, ["waits"]);
    drop(third);
    // The slot of a settled row is reused for the next row in the same commit.
    let next = worker.reserve(&all, Some(&a)).unwrap();
    assert_eq!(next.claim().capabilities, ["waits", "a", "b"]);
    assert_eq!(next.claim().max, 1);
    a.release();
    drop((next, a, b));
    assert_eq!((worker.busy(), worker.running()), (0, 0));
    assert!(worker.reserve(&limits(0, &[]), None).is_none());
}

#[tokio::test]
async fn a_worker_runs_what_is_published_and_stops_within_a_bound() {
    let world = World::new();
    let (worker, stopping) = (worker(), watch::Sender::new(false));
    let (sender, mut started) = mpsc::unbounded_channel();
    let slots = Arc::new(Mutex::new(1));
    let running = {
        let (engine, worker, stops) = (world.engine.clone(), worker.clone(), stopping.subscribe());
        let slots = Arc::clone(&slots);
        tokio::spawn(async move {
            let limits = || {
                let limits = limits(*slots.lock().unwrap(), &[("a", 5)]);
                async move { limits }
            };
            let handle = |claimed: Result<Vec<_>, Error>| {
                for row in claimed.unwrap() {
                    sender.send(row).unwrap();
                }
            };
            worker
                .run(&engine, stops, Duration::from_mins(1), limits, handle)
                .await;
        })
    };
    for _ in 0..3 {
        world.publish(capable("a")).await;
    }
    let (first, _) = started.recv().await.unwrap();
    assert_eq!(worker.busy(), 1);
    drop(first);
    let second = started.recv().await.unwrap();
    *slots.lock().unwrap() = 2;
    worker.wake();
    let third = started.recv().await.unwrap();
    stopping.send_replace(true);
    running.await.unwrap();
    assert_eq!(worker.until_idle(Duration::from_millis(10)).await, 2);
    drop((second, third));
    assert_eq!(worker.until_idle(Duration::from_mins(1)).await, 0);
}

fn publication() -> Publication {
    Publication {
        goal: "g".to_owned(),
        namespace: "default".to_owned(),
        payload: "{}".to_owned(),
        attempts_max: 1,
        backoff_us: 0,
        ttl_us: limits::INTENT_TTL_US,
        once: Some(PublicationKey {
            key: "once".to_owned(),
            fingerprint: [1; 32],
            lifetime_us: limits::INTENT_TTL_US,
        }),
        parent: None,
    }
}

#[tokio::test]
async fn a_publication_is_published_once_and_awaited_until_its_end() {
    let world = World::new();
    let first = world.engine.publish(publication()).await.unwrap();
    let again = world.engine.publish(publication()).await.unwrap();
    assert_eq!((again.id, again.replayed), (first.id, true));
    let engine = world.engine.clone();
    let awaited = tokio::spawn(async move {
        engine
            .until_settled(first.id, Duration::ZERO)
            .await
            .unwrap()
    });
    let held = world.engine.claim(None, claim(), Duration::ZERO).await;
    world
        .settle(&held.unwrap()[0], Settlement::Complete { result: None })
        .await;
    assert_eq!(awaited.await.unwrap().unwrap().state, State::Acked);
    world.engine.withdraw(first.id, "too late").await.unwrap();
    let settled = world.engine.observe(first.id).await.unwrap().unwrap();
    assert_eq!(settled.state, State::Acked);
}

#[tokio::test]
async fn a_publication_that_is_not_over_is_taken_back() {
    let world = World::new();
    let id = world.engine.publish(publication()).await.unwrap().id;
    world.engine.withdraw(id, "not needed").await.unwrap();
    let withdrawn = world
        .engine
        .until_settled(id, Duration::from_millis(1))
        .await;
    assert_eq!(withdrawn.unwrap().unwrap().state, State::DeadLetter);
}
