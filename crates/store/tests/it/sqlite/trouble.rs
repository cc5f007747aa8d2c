//! Failures: a full queue, a failing disk, damaged rows, a second reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use consign_kernel::command::{Admit, Claim, Command, OnRefusal, OnceGuard, Request};
use consign_kernel::ids::SECOND_US;
use consign_kernel::once;
use consign_kernel::profile::ProfileId;
use consign_store::conformance::{claim_by, in_face, item};
use consign_store::{Error, Store};
use rusqlite::Connection;

use super::World;

fn admit_one() -> Request {
    Request {
        gate: None,
        steps: vec![Command::Admit(Admit {
            items: vec![item()],
            cap: None,
        })],
        on_refusal: OnRefusal::Continue,
        seed: [5; 32],
    }
}

/// The writer is blocked until all of them wait, so that they certainly share one commit.
#[tokio::test]
async fn one_key_asked_for_many_times_in_one_commit_admits_once_ip_091() {
    let world = World::new();
    let meddler = world.meddler();
    meddler.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ask = |request: Request| {
        let store = Arc::clone(&world.store);
        tokio::spawn(async move { store.execute(request).await })
    };
    let first = ask(admit_one());
    while world.store.stats().requests == 0 {
        tokio::task::yield_now().await;
    }
    let guarded = || {
        let key = once::OnceKey {
            scope: once::Scope::IntentIdempotency,
            owner: "alice".to_owned(),
            key: "k".to_owned(),
        };
        let guard = OnceGuard {
            key,
            fingerprint: [1; 32],
            lifetime_us: 60 * SECOND_US,
        };
        let mut request = admit_one();
        if let Some(Command::Admit(admit)) = request.steps.first_mut() {
            admit.items[0].once = Some(guard);
        }
        request
    };
    let others: Vec<_> = (0..10).map(|_| ask(guarded())).collect();
    while world.store.stats().waiting < 10 {
        tokio::task::yield_now().await;
    }
    meddler.execute_batch("COMMIT").unwrap();
    assert!(first.await.unwrap().is_ok());
    for other in others {
        assert!(other.await.unwrap().is_ok());
    }
    let dump = world.store.dump().await.unwrap();
    assert_eq!((dump.intents.len(), dump.once.len()), (2, 1));
}

#[tokio::test]
async fn a_full_queue_is_busy_and_recovers() {
    let world = World::with_queue(1);
    let meddler = world.meddler();
    meddler.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ask = || {
        let store = Arc::clone(&world.store);
        tokio::spawn(async move { store.execute(admit_one()).await })
    };
    // The writer has the first request and waits for the lock; the second request fills the queue.
    let first = ask();
    while world.store.stats().requests == 0 {
        tokio::task::yield_now().await;
    }
    let second = ask();
    while world.store.stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let third = world.store.execute(admit_one()).await;
    assert!(matches!(third, Err(Error::Busy)), "{third:?}");
    meddler.execute_batch("COMMIT").unwrap();
    assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
    assert!(world.store.execute(admit_one()).await.is_ok());
    assert_eq!(world.store.stats().waiting, 0);
    assert_eq!(world.store.dump().await.unwrap().intents.len(), 3);
}

/// A trigger simulates a disk that fails in the middle of a transaction.
#[tokio::test]
async fn a_failed_commit_writes_nothing_and_the_next_one_works() {
    for how in ["ABORT", "FAIL", "ROLLBACK"] {
        let world = World::new();
        let suite = world.shared();
        suite.publish(item()).await;
        let before = world.store.dump().await.unwrap();
        let meddler = world.meddler();
        meddler
            .execute_batch(&format!(
                "CREATE TRIGGER full BEFORE UPDATE ON position BEGIN SELECT RAISE({how}, 'no space left'); END"
            ))
            .unwrap();
        let refused = world.store.execute(admit_one()).await;
        let told = refused.as_ref().map_err(ToString::to_string).unwrap_err();
        assert_eq!(told.matches("storage failed").count(), 1, "{told}");
        assert!(
            matches!(refused, Err(Error::Unavailable(_))),
            "{how}: {refused:?}"
        );
        assert_eq!(world.store.dump().await.unwrap(), before, "{how}");
        assert_eq!(world.store.stats().failed_commits, 1);
        meddler.execute_batch("DROP TRIGGER full").unwrap();
        let next = suite.publish(item()).await;
        assert_eq!(suite.load(next).await.seq.0, 2, "no gap, no reuse");
        suite.is_sound().await;
    }
}

#[tokio::test]
async fn a_request_that_the_database_does_not_take_refuses_only_itself_ip_162() {
    let world = World::new();
    let meddler = world.meddler();
    let poison = "CREATE TRIGGER poison BEFORE INSERT ON intents WHEN NEW.goal = 'poison' \
                  BEGIN SELECT RAISE(ABORT, 'not this one'); END";
    meddler.execute_batch(poison).unwrap();
    // While the first request waits, the others form one group.
    meddler.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ask = |goal: &str| {
        let mut request = admit_one();
        if let Command::Admit(admit) = &mut request.steps[0] {
            goal.clone_into(&mut admit.items[0].goal);
        }
        let store = Arc::clone(&world.store);
        tokio::spawn(async move { store.execute(request).await })
    };
    let first = ask("first");
    while world.store.stats().requests == 0 {
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (0..21)
        .map(|number| ask(if number == 7 { "poison" } else { "other" }))
        .collect();
    while world.store.stats().waiting < 21 {
        tokio::task::yield_now().await;
    }
    meddler.execute_batch("COMMIT").unwrap();
    assert!(first.await.unwrap().is_ok());
    for (number, other) in others.into_iter().enumerate() {
        let answer = other.await.unwrap();
        assert_eq!(answer.is_err(), number == 7, "{number}: {answer:?}");
    }
    assert_eq!(world.store.stats().failed_commits, 1);
    assert_eq!(world.store.dump().await.unwrap().intents.len(), 21);
    world.shared().is_sound().await;
}

#[tokio::test]
async fn a_closed_store_finishes_what_waits_and_refuses_the_rest() {
    let world = World::new();
    let pending: Vec<_> = (0..20)
        .map(|_| {
            let store = Arc::clone(&world.store);
            tokio::spawn(async move { store.execute(admit_one()).await.is_ok() })
        })
        .collect();
    tokio::task::yield_now().await;
    let store = Arc::clone(&world.store);
    tokio::task::spawn_blocking(move || store.close())
        .await
        .unwrap();
    let mut done = 0;
    for task in pending {
        done += usize::from(task.await.unwrap());
    }
    let late = world.store.execute(admit_one()).await;
    assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    let world = world.reopened();
    assert_eq!(world.store.dump().await.unwrap().intents.len(), done);
}

#[tokio::test]
async fn the_check_finds_planted_damage() {
    let plants = [
        (
            "UPDATE counts SET count = count + 1 WHERE kind = 0",
            "counter",
        ),
        ("DELETE FROM counts WHERE kind = 1", "counter"),
        ("UPDATE intents SET own_lane = own_lane + 1", "lanes"),
        (
            "UPDATE intents SET public_lane = 1 WHERE public_lane IS NULL",
            "lanes",
        ),
        (
            "UPDATE intents SET own_lane = NULL WHERE token IS NULL",
            "lanes",
        ),
        ("UPDATE intents SET token = NULL", "lease disagree"),
        (
            "UPDATE intents SET state = 4 WHERE token IS NOT NULL",
            "profile",
        ),
        ("UPDATE intents SET cause = 200", "cannot be read"),
        ("UPDATE position SET last_seq = 0", "position"),
        ("UPDATE position SET last_fact = 1", "position"),
    ];
    for (damage, word) in plants {
        let world = World::new();
        let suite = world.shared();
        suite.admit(vec![item(); 2]).await.unwrap();
        suite.take("alice").await;
        assert_eq!(world.store.check().await.unwrap(), [""; 0]);
        assert!(world.meddler().execute(damage, []).unwrap() > 0, "{damage}");
        let findings = world.store.check().await.unwrap();
        assert!(
            findings.iter().any(|finding| finding.contains(word)),
            "{damage}: {findings:?}"
        );
    }
}

/// A state's code and how many rows are in it.
type ByState = Vec<(i64, i64)>;

/// One consistent read: rows per state and the counters, from a snapshot of one transaction.
fn look(reader: &Connection) -> (ByState, ByState) {
    let pairs = |sql: &str| -> ByState {
        let mut statement = reader.prepare_cached(sql).unwrap();
        let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        found.unwrap().collect::<Result<_, _>>().unwrap()
    };
    reader.execute_batch("BEGIN").unwrap();
    let rows = pairs("SELECT state, count(*) FROM intents GROUP BY state ORDER BY state");
    let counts =
        pairs("SELECT state, count FROM counts WHERE kind = 0 AND count != 0 ORDER BY state");
    reader.execute_batch("COMMIT").unwrap();
    (rows, counts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_reader_never_sees_half_a_commit() {
    let world = World::new();
    let suite = world.shared();
    for _ in 0..4 {
        suite.admit(vec![item(); 50]).await.unwrap();
    }
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (meddler, done) = (world.meddler(), Arc::clone(&done));
        std::thread::spawn(move || {
            let mut looks = 0_u32;
            while !done.load(Ordering::SeqCst) || looks == 0 {
                let (rows, counts) = look(&meddler);
                assert_eq!(rows, counts);
                looks += 1;
            }
        })
    };
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let suite = suite.clone();
            tokio::spawn(async move {
                let claim = Claim {
                    lease_us: 600 * SECOND_US,
                    ..claim_by("alice")
                };
                let mut taken = 0;
                while let Some(held) = suite.claim(claim.clone()).await.pop() {
                    suite.complete(&held).await.unwrap();
                    taken += 1;
                }
                taken
            })
        })
        .collect();
    let mut taken = 0;
    for worker in workers {
        taken += worker.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    reader.join().unwrap();
    assert_eq!(taken, 200);
    suite.is_sound().await;
}

/// Only a bug of our own code can admit a row in a state in which its profile does not begin.
#[tokio::test]
async fn a_panic_of_the_rules_fails_its_batch_and_the_writer_goes_on() {
    let world = World::new();
    let broken = Request {
        steps: vec![Command::Admit(Admit {
            items: vec![in_face(ProfileId::AtpTransaction)],
            cap: None,
        })],
        ..admit_one()
    };
    let failed = world.store.execute(broken).await;
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    assert!(world.store.execute(admit_one()).await.is_ok());
    assert_eq!(world.store.dump().await.unwrap().intents.len(), 1);
}

#[tokio::test]
async fn a_listener_that_panics_holds_up_nobody() {
    let world = World::new();
    world.store.listen(Box::new(|_| panic!("planned")));
    for _ in 0..2 {
        assert!(world.store.execute(admit_one()).await.unwrap().is_ok());
    }
    assert_eq!(world.store.dump().await.unwrap().intents.len(), 2);
}
