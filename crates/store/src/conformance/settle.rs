//! Settling: done, failed, dead; and how the steps of one request see each other's effects.

use consign_kernel::command::{Admit, Answer, Claim, Command, HolderRetry, NewIntent, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::{Outcome, ResultKind, Shelf};
use consign_kernel::limits;
use consign_kernel::state::{Cause, State, Verb};

use super::{World, claim_by, item};
use crate::TypedReads as _;

pub async fn completing_stores_the_result_ip_013_ip_113(world: World) {
    for (kind, body) in [
        (ResultKind::Json, r#"{"ok":[1,2]}"#),
        (ResultKind::Text, "plain\nwords"),
        (ResultKind::Text, ""),
    ] {
        world.publish(item()).await;
        let held = world.take("alice").await;
        let result = Some(Outcome {
            kind,
            body: body.to_owned(),
        });
        let how = Settlement::Complete {
            result: result.clone(),
        };
        assert!(world.settle(&held, how).await.is_ok());
        let done = world.load(held.id).await;
        assert_eq!((done.state, done.cause), (State::Acked, Cause::Completed));
        assert_eq!(done.result, result);
        assert_eq!(done.settled_at, Some(world.now()));
        assert_eq!((done.token, done.lease_until), (None, None));
        assert_eq!(
            (done.shelf, done.wake_at),
            (Shelf::Done, world.now().plus(limits::RETENTION_US))
        );
    }
}

pub async fn completing_without_a_result_stores_none_ip_117(world: World) {
    world.publish(item()).await;
    let held = world.take("alice").await;
    assert!(world.complete(&held).await.is_ok());
    assert_eq!(world.load(held.id).await.result, None);
    assert_eq!(
        world.complete(&held).await,
        Err(Refusal::LeaseLost),
        "only once"
    );
    assert_eq!(world.claim(claim_by("alice")).await, []);
}

pub async fn failing_backs_off_twice_as_long_each_time_ip_014_ip_022_ip_023_ip_046_ip_120_ip_165(
    world: World,
) {
    let (mut jitters, rounds) = (Vec::new(), 6);
    let asked = NewIntent {
        attempts_max: rounds + 1,
        ..item()
    };
    let id = world.publish(asked.clone()).await;
    for attempt in 1..=rounds {
        let held = world.take("alice").await;
        assert_eq!(held.attempts, attempt);
        let Ok(Answer::Settled { state, run_at }) = world.fail(&held, "try again").await else {
            panic!("the holder may fail");
        };
        let pause_us = run_at.0 - world.now().0;
        let least_us = asked.backoff_us << attempt;
        assert!(
            (least_us..least_us + 2 * SECOND_US).contains(&pause_us),
            "attempt {attempt}: {pause_us}"
        );
        jitters.push(pause_us - least_us);
        let open = world.load(id).await;
        assert_eq!((state, open.state), (State::Queued, State::Queued));
        assert_eq!((open.cause, open.run_at), (Cause::WorkerFailed, run_at));
        assert_eq!(open.last_error.as_deref(), Some("try again"));
        assert_eq!((open.holder, open.token), (None, None));
        world.clock.set(run_at.minus(1));
        assert_eq!(world.claim(claim_by("alice")).await, []);
        world.clock.advance(1);
    }
    jitters.sort_unstable();
    jitters.dedup();
    assert!(jitters.len() > 3, "chance moves the pauses: {jitters:?}");
}

pub async fn failing_the_last_attempt_is_death_ip_015_ip_025_ip_166(world: World) {
    let id = world
        .publish(NewIntent {
            attempts_max: 1,
            ..item()
        })
        .await;
    let held = world.take("alice").await;
    let Ok(Answer::Settled { state, .. }) = world.fail(&held, "for good").await else {
        panic!("the holder may fail");
    };
    assert_eq!(state, State::DeadLetter);
    let dead = world.load(id).await;
    assert_eq!(
        (dead.state, dead.cause),
        (State::DeadLetter, Cause::Exhausted)
    );
    assert_eq!(dead.last_error.as_deref(), Some("for good"));
    assert_eq!(
        world.verbs(&dead).await,
        [Verb::Admit, Verb::Claim, Verb::Fail]
    );
    let listed = world
        .store
        .dead(dead.profile.profile().face, 10)
        .await
        .expect("storage works");
    assert_eq!(listed, [dead]);
}

fn fail_with(retry: HolderRetry) -> Settlement {
    Settlement::FailWith {
        error: "no paper".to_owned(),
        retry,
    }
}

pub async fn a_holder_may_rule_out_another_attempt(world: World) {
    let id = world.publish(item()).await;
    let held = world.take("alice").await;
    assert!(held.attempts < held.attempts_max);
    let Ok(Answer::Settled { state, .. }) =
        world.settle(&held, fail_with(HolderRetry::Never)).await
    else {
        panic!("the holder may fail");
    };
    assert_eq!(state, State::DeadLetter);
    let dead = world.load(id).await;
    assert_eq!(
        (dead.state, dead.cause, dead.attempts),
        (State::DeadLetter, Cause::Rejected, 1)
    );
    assert_eq!(dead.last_error.as_deref(), Some("no paper"));
    assert_eq!((dead.token, dead.lease_until), (None, None));
    assert_eq!(
        world.verbs(&dead).await,
        [Verb::Admit, Verb::Claim, Verb::Fail]
    );
    assert_eq!(
        world.fail(&held, "again").await,
        Err(Refusal::LeaseLost),
        "only once"
    );
    world.is_sound().await;
}

pub async fn a_holder_may_name_the_time_of_the_next_attempt(world: World) {
    let id = world
        .publish(NewIntent {
            attempts_max: 3,
            ttl_us: 300 * SECOND_US,
            ..item()
        })
        .await;
    let held = world.take("alice").await;
    let in_s = |seconds: i64| {
        fail_with(HolderRetry::After {
            us: seconds * SECOND_US,
        })
    };
    // The end of its life is too late, and the lease goes on.
    world.clock.advance(10 * SECOND_US);
    for seconds in [290, 291, i64::MAX / SECOND_US] {
        let refused = world.settle(&held, in_s(seconds)).await;
        assert_eq!(refused, Err(Refusal::PastLife { left_s: 290 }), "{seconds}");
    }
    let due_at = world.now().plus(30 * SECOND_US);
    let Ok(Answer::Settled { state, run_at }) = world.settle(&held, in_s(30)).await else {
        panic!("the holder may fail");
    };
    assert_eq!((state, run_at), (State::Queued, due_at));
    let open = world.load(id).await;
    assert_eq!(
        (open.cause, open.attempts, open.holder),
        (Cause::WorkerFailed, 1, None)
    );
    assert_eq!(open.last_error.as_deref(), Some("no paper"));
    world.clock.set(due_at.minus(1));
    assert_eq!(world.claim(claim_by("alice")).await, []);
    world.clock.advance(1);
    // At once.
    let held = world.take("alice").await;
    assert_eq!(held.attempts, 2);
    assert!(world.settle(&held, in_s(0)).await.is_ok());
    // Without attempts left it is dead, whatever time is named.
    let held = world.take("alice").await;
    assert!(world.settle(&held, in_s(1_000)).await.is_ok());
    let dead = world.load(id).await;
    assert_eq!(
        (dead.state, dead.cause, dead.attempts),
        (State::DeadLetter, Cause::Exhausted, 3)
    );
    world.is_sound().await;
}

fn claim_as(worker: &str) -> Claim {
    Claim {
        worker_id: Some(worker.to_owned()),
        ..claim_by("alice")
    }
}

pub async fn the_worker_of_a_lease_is_recorded_with_the_row_and_its_facts(world: World) {
    let id = world.publish(item()).await;
    let held = world.claim(claim_as("w-7")).await.remove(0);
    assert_eq!(held.worker.as_deref(), Some("w-7"));
    assert!(world.extend(&held, 90 * SECOND_US).await.is_ok());
    assert!(world.complete(&held).await.is_ok());
    let done = world.load(id).await;
    assert_eq!(
        (done.holder.as_deref(), done.worker.as_deref()),
        (Some("alice"), Some("w-7"))
    );
    let recorded: Vec<_> = (world.facts(&done).await.into_iter())
        .map(|fact| (fact.verb, fact.actor, fact.worker))
        .collect();
    let by =
        |verb, worker: Option<&str>| (verb, Some("alice".to_owned()), worker.map(str::to_owned));
    let of_worker = Some("w-7");
    assert_eq!(
        recorded,
        [
            by(Verb::Admit, None),
            by(Verb::Claim, of_worker),
            by(Verb::Extend, of_worker),
            by(Verb::Complete, of_worker),
        ]
    );
}

pub async fn a_worker_is_forgotten_with_its_lease_and_not_passed_on(world: World) {
    let id = world.publish(item()).await;
    let workers = async || {
        let row = world.load(id).await;
        let facts = world.facts(&row).await;
        let last = facts.into_iter().rev().map(|fact| (fact.verb, fact.worker));
        (row.worker, last.take(2).collect::<Vec<_>>())
    };
    let some = |worker: &str| Some(worker.to_owned());
    // A failure names the worker, and the open row has none.
    let held = world.claim(claim_as("w-1")).await.remove(0);
    assert!(world.fail(&held, "no").await.is_ok());
    let (row, facts) = workers().await;
    assert_eq!((row, &facts[0]), (None, &(Verb::Fail, some("w-1"))));
    // The lease of one worker runs out, and another one without an id takes it over.
    world.clock.set(world.load(id).await.run_at);
    world.claim(claim_as("w-2")).await;
    world.clock.advance(61 * SECOND_US);
    let held = world.take("alice").await;
    let (row, facts) = workers().await;
    assert_eq!(row, None);
    assert_eq!(facts, [(Verb::Claim, None), (Verb::Expire, some("w-2"))]);
    // The last lease kills it, and the dead letter names the worker.
    assert!(world.fail(&held, "no").await.is_ok());
    assert!(world.requeue(id).await.is_ok());
    assert_eq!(workers().await.0, None);
    let held = world.claim(claim_as("w-3")).await.remove(0);
    let how = fail_with(HolderRetry::Never);
    assert!(world.settle(&held, how).await.is_ok());
    let (row, facts) = workers().await;
    assert_eq!((row, &facts[0]), (some("w-3"), &(Verb::Fail, some("w-3"))));
    world.is_sound().await;
}

pub async fn failing_past_the_end_of_life_parks_the_row(world: World) {
    let id = world
        .publish(NewIntent {
            ttl_us: 30 * SECOND_US,
            ..item()
        })
        .await;
    let held = world.take("alice").await;
    world.clock.advance(45 * SECOND_US);
    assert!(
        world.fail(&held, "late").await.is_ok(),
        "the lease still ran"
    );
    assert_eq!(world.load(id).await.shelf, Shelf::Parked);
    world.clock.advance(60 * SECOND_US);
    assert_eq!(world.claim(claim_by("alice")).await, []);
}

pub async fn success_forgets_the_earlier_error(world: World) {
    let id = world.publish(item()).await;
    let held = world.take("alice").await;
    assert!(world.fail(&held, "once").await.is_ok());
    world.clock.advance(60 * SECOND_US);
    let held = world.take("alice").await;
    assert!(world.complete(&held).await.is_ok());
    assert_eq!(world.load(id).await.last_error, None);
}

pub async fn the_facts_of_a_whole_life_tell_it_in_order(world: World) {
    let id = world.publish(item()).await;
    let first = world.take("alice").await;
    assert!(world.extend(&first, 90 * SECOND_US).await.is_ok());
    assert!(world.fail(&first, "first try").await.is_ok());
    world.clock.advance(60 * SECOND_US);
    world.take("alice").await;
    world.clock.advance(60 * SECOND_US);
    let third = world.take("alice").await;
    assert!(world.complete(&third).await.is_ok());
    assert!(world.requeue(id).await.is_ok());
    assert!(world.cancel(id).await.is_ok());
    let row = world.load(id).await;
    let facts = world.facts(&row).await;
    let told: Vec<_> = facts
        .iter()
        .map(|fact| (fact.verb, fact.to, fact.attempt, fact.actor.as_deref()))
        .collect();
    let (alice, operator) = (Some("alice"), Some("operator"));
    assert_eq!(
        told,
        [
            (Verb::Admit, State::Queued, 0, alice),
            (Verb::Claim, State::Dispatched, 1, alice),
            (Verb::Extend, State::Dispatched, 1, alice),
            (Verb::Fail, State::Queued, 1, alice),
            (Verb::Claim, State::Dispatched, 2, alice),
            (Verb::Expire, State::Queued, 2, None),
            (Verb::Claim, State::Dispatched, 3, alice),
            (Verb::Complete, State::Acked, 3, alice),
            (Verb::Requeue, State::Queued, 0, operator),
            (Verb::Cancel, State::DeadLetter, 0, operator),
        ]
    );
    assert_eq!(facts[3].detail.as_deref(), Some("first try"));
    assert_eq!(facts[0].from, None);
    let last_two = world.store.facts(row.seq, 2).await.expect("storage works");
    assert_eq!(last_two, facts[facts.len() - 2..]);

    let ends: &[State] = &[State::Acked, State::DeadLetter];
    let [completed, requeued, cancelled] = [7, 8, 9].map(|index: usize| facts[index].clone());
    for (states, before, among, expected) in [
        (ends, None, u32::MAX, Some(&cancelled)),
        (ends, Some(cancelled.seq), u32::MAX, Some(&completed)),
        (ends, Some(cancelled.seq), 2, Some(&completed)),
        (ends, Some(cancelled.seq), 1, None),
        (ends, Some(requeued.seq), 1, Some(&completed)),
        (ends, Some(completed.seq), u32::MAX, None),
        (ends, None, 0, None),
        (&[State::Acked], None, u32::MAX, Some(&completed)),
        (&[State::Received], None, u32::MAX, None),
    ] {
        let found = world
            .store
            .last_fact_to(row.seq, states, before, among)
            .await;
        let found = found.expect("storage works");
        assert_eq!(found.as_ref(), expected, "{states:?} {before:?} {among}");
    }
    let other = world.load(world.publish(item()).await).await;
    let found = world
        .store
        .last_fact_to(other.seq, ends, Some(cancelled.seq), u32::MAX);
    assert_eq!(
        found.await.expect("storage works"),
        None,
        "of another intent"
    );
}

pub async fn steps_of_a_request_see_what_earlier_ones_did(world: World) {
    let admit = Command::Admit(Admit {
        items: vec![item()],
        cap: None,
    });
    let claim = || Command::Claim(claim_by("alice"));
    let answers = world.steps(vec![claim(), admit, claim(), claim()]).await;
    let taken: Vec<usize> = answers
        .iter()
        .filter_map(|answer| match answer {
            Ok(Answer::Claimed(claimed)) => Some(claimed.len()),
            _ => None,
        })
        .collect();
    assert_eq!(taken, [0, 1, 0]);
}

pub async fn a_refused_step_leaves_its_neighbours_alone(world: World) {
    let admit = || {
        Command::Admit(Admit {
            items: vec![item()],
            cap: Some(2),
        })
    };
    let id = world.publish(item()).await;
    let held = world.take("alice").await;
    let answers = world
        .steps(vec![
            admit(),
            admit(),
            Command::Observe(IntentId([3; 16])),
            Command::Observe(id),
        ])
        .await;
    assert!(answers[0].is_ok());
    assert_eq!(answers[1], Err(Refusal::CapReached { open: 2, limit: 2 }));
    assert_eq!(answers[2], Ok(Answer::Observed(None)));
    assert_eq!(answers[3], Ok(Answer::Observed(Some(Box::new(held)))));
}
