//! Related intents: series, children, steps that are committed all or none, and failed attempts.

use consign_kernel::command::{
    Admit, Admitted, Answer, Audience, Claim, Clean, Command, NewIntent, OnRefusal, Operate,
    Recover, Request, Settle, Settlement, Unless,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, HOUR_US, IntentId, SECOND_US};
use consign_kernel::intent::{Intent, Shelf, Ties};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{Key, Kind, Put};
use consign_kernel::state::{Cause, State, Verb};

use super::races::together;
use super::{World, claim_by, item};
use crate::TypedReads as _;

const MINUTE_US: i64 = 60 * SECOND_US;

fn of_series(name: &str) -> NewIntent {
    NewIntent {
        ties: Ties {
            parent: None,
            series: Some(name.to_owned()),
            sender: None,
        },
        ..item()
    }
}

fn job() -> NewIntent {
    NewIntent {
        profile: ProfileId::Automation,
        ..item()
    }
}

fn claim_job(holder: &str) -> Claim {
    Claim {
        face: Face::Automation,
        audience: Audience::Publisher("alice".to_owned()),
        ..claim_by(holder)
    }
}

async fn take_job(world: &World, holder: &str) -> Intent {
    let mut claimed = world.claim(claim_job(holder)).await;
    assert_eq!(claimed.len(), 1, "one job waits");
    claimed.remove(0)
}

pub async fn one_of_a_series_is_held_at_a_time_du_052(world: World) {
    let first = world.publish(of_series("a")).await;
    let second = world.publish(of_series("a")).await;
    let other = world.publish(of_series("b")).await;
    let held = world.take("alice").await;
    assert_eq!(held.id, first);
    assert_eq!(
        world.take("alice").await.id,
        other,
        "another series is free, whatever lies before it"
    );
    assert_eq!(world.claim(claim_by("alice")).await, []);
    assert_eq!(world.load(second).await.state, State::Queued);
    world.is_sound().await;
    world.complete(&held).await.expect("it is held");
    assert_eq!(world.take("alice").await.id, second);
    world.is_sound().await;
}

pub async fn whoever_lets_go_makes_room_for_the_next_of_the_series(world: World) {
    let ids = [
        world.publish(of_series("a")).await,
        world.publish(of_series("a")).await,
        world.publish(of_series("a")).await,
    ];
    let held = world.take("alice").await;
    assert_eq!(world.claim(claim_by("alice")).await, []);
    world.fail(&held, "later").await.expect("it is held");
    let held = world.take("alice").await;
    assert_eq!(held.id, ids[1], "the first one waits for its next attempt");
    world.cancel(held.id).await.expect("it may be cancelled");
    assert_eq!(world.take("alice").await.id, ids[2]);
    // The first row is due again, and must wait for its series.
    world.clock.set(world.load(ids[0]).await.run_at);
    assert_eq!(world.claim(claim_by("alice")).await, []);
    world.is_sound().await;
}

pub async fn who_waits_in_a_series_can_be_cancelled(world: World) {
    world.publish(of_series("a")).await;
    let second = world.publish(of_series("a")).await;
    let held = world.take("alice").await;
    assert_eq!(world.claim(claim_by("alice")).await, []);
    world.cancel(second).await.expect("it may be cancelled");
    assert_eq!(world.load(second).await.state, State::DeadLetter);
    world.complete(&held).await.expect("it is held");
    assert_eq!(world.claim(claim_by("alice")).await, []);
    world.is_sound().await;
}

pub async fn a_series_goes_on_when_its_holder_is_gone(world: World) {
    let single = NewIntent {
        attempts_max: 1,
        ..of_series("a")
    };
    world.publish(single).await;
    let second = world.publish(of_series("a")).await;
    let held = world.take("alice").await;
    assert_eq!(world.claim(claim_by("alice")).await, []);
    world.clock.set(held.lease_until.expect("it is held"));
    assert_eq!(world.take("alice").await.id, second);
    world.is_sound().await;
}

pub async fn a_lapsed_lease_stands_behind_whoever_holds_its_series_until_it_lets_go(world: World) {
    let first = world.publish(of_series("a")).await;
    let lapsed = world.take("alice").await;
    assert_eq!(lapsed.id, first);
    world.clock.set(lapsed.lease_until.expect("it is held"));
    let urgent = NewIntent {
        priority: 900,
        ..of_series("a")
    };
    let second = world.publish(urgent).await;
    let held = world.take("alice").await;
    assert_eq!(held.id, second);
    assert_eq!(world.claim(claim_by("alice")).await, [], "one at a time");
    let behind = world.load(first).await;
    assert_eq!(
        (behind.state, behind.cause, behind.shelf),
        (State::Queued, Cause::LeaseExpired, Shelf::Delayed)
    );
    assert_eq!(
        (Some(behind.wake_at), behind.token, behind.lease_until),
        (held.lease_until, None, None)
    );
    assert_eq!(world.complete(&lapsed).await, Err(Refusal::LeaseLost));
    world.is_sound().await;

    world.complete(&held).await.expect("it is held");
    let again = world.take("alice").await;
    assert_eq!((again.id, again.attempts), (first, 2));
    let verbs = [Verb::Admit, Verb::Claim, Verb::Expire, Verb::Claim];
    assert_eq!(world.verbs(&again).await, verbs);
    world.is_sound().await;
}

pub async fn a_claim_of_many_takes_one_of_each_series(world: World) {
    for name in ["a", "b", "a", "b", "c"] {
        world.publish(of_series(name)).await;
    }
    world.publish(item()).await;
    world.publish(item()).await;
    let claim = Claim {
        max: 10,
        ..claim_by("alice")
    };
    let taken = world.claim(claim.clone()).await;
    let series: Vec<_> = taken.iter().map(|row| row.ties.series.as_deref()).collect();
    assert_eq!(series, [Some("a"), Some("b"), Some("c"), None, None]);
    assert_eq!(world.claim(claim).await, []);
    world.is_sound().await;
}

/// The result of an admission that is not executed if a matching row of its series exists.
async fn admit_unless(world: &World, unless: Unless) -> Admitted {
    let item = NewIntent {
        unless: Some(unless),
        ..of_series("a")
    };
    world.admit(vec![item]).await.expect("it is admitted")[0].clone()
}

const OPEN: Unless = Unless {
    open: true,
    completed_within_us: HOUR_US,
};
const COMPLETED: Unless = Unless {
    open: false,
    completed_within_us: HOUR_US,
};

pub async fn an_open_one_of_its_series_serves_instead_du_054(world: World) {
    let first = admit_unless(&world, OPEN).await;
    assert!(!first.replayed);
    for _ in 0..2 {
        let again = admit_unless(&world, OPEN).await;
        assert_eq!((again.id, again.replayed), (first.id, true));
    }
    assert!(!admit_unless(&world, COMPLETED).await.replayed);
    let held = world.take("alice").await;
    assert_eq!(admit_unless(&world, OPEN).await.id, held.id, "one is held");
    let item = NewIntent {
        unless: Some(OPEN),
        ..of_series("of one command")
    };
    let both = world.admit(vec![item.clone(), item]).await.expect("fine");
    assert_eq!((both[0].replayed, both[1].replayed), (false, true));
    assert_eq!(both[0].id, both[1].id);
    world.is_sound().await;
}

pub async fn a_recent_success_of_its_series_serves_instead_du_053_du_055(world: World) {
    let done = admit_unless(&world, COMPLETED).await;
    let held = world.take("alice").await;
    world.complete(&held).await.expect("it is held");
    let again = admit_unless(&world, COMPLETED).await;
    assert_eq!((again.id, again.replayed), (done.id, true));
    assert!(admit_unless(&world, OPEN).await.replayed);
    world.clock.set(world.now().plus(HOUR_US));
    let fresh = admit_unless(&world, COMPLETED).await;
    assert!(!fresh.replayed, "that was too long ago");
    world.cancel(fresh.id).await.expect("it may be cancelled");
    let last = admit_unless(&world, OPEN).await;
    assert!(!last.replayed, "what failed serves nobody");
    world.is_sound().await;
}

pub async fn one_of_a_series_whoever_comes_first(world: World) {
    for _ in 0..8 {
        world.publish(of_series("a")).await;
    }
    let taken = together(8, |n| {
        let world = world.clone();
        async move { world.claim(claim_of_alice(n)).await.len() }
    })
    .await;
    assert_eq!(taken.iter().sum::<usize>(), 1, "{taken:?}");
    let admitted = together(8, |_| {
        let world = world.clone();
        async move {
            let item = NewIntent {
                unless: Some(OPEN),
                ..of_series("b")
            };
            world.admit(vec![item]).await.expect("fine")[0].replayed
        }
    })
    .await;
    let fresh = admitted.iter().filter(|replayed| !**replayed).count();
    assert_eq!(fresh, 1, "{admitted:?}");
    world.is_sound().await;
}

fn claim_of_alice(_: usize) -> Claim {
    claim_by("alice")
}

pub async fn children_are_found_by_their_parent_in_order(world: World) {
    let parent = world.publish(item()).await;
    let child = || NewIntent {
        ties: Ties {
            parent: Some(parent),
            series: None,
            sender: None,
        },
        ..item()
    };
    let (one, two) = (world.publish(child()).await, world.publish(child()).await);
    world.publish(item()).await;
    let children = async |limit| {
        let found = world.store.children(parent, limit).await.expect("works");
        found.iter().map(|row| row.id).collect::<Vec<IntentId>>()
    };
    assert_eq!(children(10).await, [one, two]);
    assert_eq!(children(1).await, [one]);
}

pub async fn open_jobs_are_found_by_their_work(world: World) {
    let work = |capability: &str, goal: &str| NewIntent {
        capability: Some(capability.to_owned()),
        goal: goal.to_owned(),
        ..job()
    };
    for (capability, goal) in [("a", "poll"), ("a", "handle"), ("a", "poll"), ("b", "poll")] {
        world.publish(work(capability, goal)).await;
    }
    let other = NewIntent {
        profile: ProfileId::Intent,
        ..work("a", "poll")
    };
    world.publish(other).await;
    let claim = Claim {
        capabilities: vec!["a".to_owned()],
        ..claim_job("runner")
    };
    let held = world.claim(claim.clone()).await.remove(0);
    let open = async |capability: &str, goal: Option<&str>| {
        let jobs = world
            .store
            .open_jobs(capability.to_owned(), goal.map(str::to_owned), 10);
        let jobs = jobs.await.expect("works");
        jobs.into_iter().map(|row| row.goal).collect::<Vec<_>>()
    };
    assert_eq!(open("a", None).await, ["handle", "poll", "poll"]);
    assert_eq!(open("a", Some("poll")).await, ["poll", "poll"]);
    assert_eq!(open("c", None).await, [""; 0]);
    world.complete(&held).await.expect("it is held");
    assert_eq!(open("a", Some("poll")).await, ["poll"]);
}

async fn all_or_none(world: &World, steps: Vec<Command>) -> Vec<Result<Answer, Refusal>> {
    let request = Request {
        gate: None,
        steps,
        on_refusal: OnRefusal::Stop,
        seed: [9; 32],
    };
    let reply = world.store.execute(request).await.expect("storage works");
    reply.expect("there is no gate")
}

fn completing(held: &Intent) -> Command {
    Command::Settle(Settle {
        detail: None,
        id: held.id,
        holder: held.holder.clone().expect("it is held"),
        token: held.token.expect("it is held"),
        how: Settlement::Complete { result: None },
    })
}

pub async fn behind_a_refused_step_nothing_happens(world: World) {
    world.publish(job()).await;
    let held = take_job(&world, "alice").await;
    let key = Key {
        kind: Kind::Kv,
        owner: "alice".to_owned(),
        name: "state".to_owned(),
    };
    let put = Command::Put(Put {
        key: key.clone(),
        value: "1".to_owned(),
        expires_at: None,
        expect: None,
    });
    let next = Command::Admit(Admit {
        items: vec![job()],
        cap: None,
    });
    let seen = |version| Command::Expect(key.clone(), version);
    let finish = |version| vec![seen(version), completing(&held), put.clone(), next.clone()];
    let refused = all_or_none(&world, finish(1)).await;
    assert_eq!(refused[0], Err(Refusal::VersionMismatch));
    assert!(
        refused[1..]
            .iter()
            .all(|step| *step == Err(Refusal::NotReached))
    );
    assert_eq!(world.load(held.id).await.state, State::Dispatched);
    let done = all_or_none(&world, finish(0)).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    let late = all_or_none(&world, finish(1)).await;
    assert_eq!(late[1], Err(Refusal::LeaseLost));
    let record = world.store.record(key).await.expect("works");
    assert_eq!(record.expect("it was put").version, 1);
    take_job(&world, "alice").await;
    assert_eq!(
        world.claim(claim_job("alice")).await,
        [],
        "one successor only"
    );
    world.is_sound().await;
}

pub(super) fn failing(timed_out: bool, again: bool) -> Settlement {
    Settlement::FailAttempt {
        error: "broken".to_owned(),
        timed_out,
        again,
    }
}

pub async fn a_failed_attempt_is_told_and_then_what_follows_du_057_du_059_du_060(world: World) {
    let id = world
        .publish(NewIntent {
            attempts_max: 2,
            ..job()
        })
        .await;
    let held = take_job(&world, "runner").await;
    let Ok(Answer::Settled { state, run_at }) = world.settle(&held, failing(true, true)).await
    else {
        panic!("the holder may fail");
    };
    let base_us = job().backoff_us;
    let pause_us = run_at.0 - world.now().0;
    assert!((base_us..2 * base_us).contains(&pause_us), "{pause_us}");
    let waiting = world.load(id).await;
    assert_eq!((state, waiting.cause), (State::Queued, Cause::TimedOut));
    assert_eq!((waiting.shelf, waiting.settled_at), (Shelf::Delayed, None));
    assert_eq!(waiting.last_error.as_deref(), Some("broken"));
    world.clock.set(run_at);
    let held = take_job(&world, "runner").await;
    assert_eq!(held.attempts, 2);
    world
        .settle(&held, failing(false, true))
        .await
        .expect("it is held");
    let dead = world.load(id).await;
    assert_eq!(
        (dead.state, dead.cause),
        (State::DeadLetter, Cause::Exhausted)
    );
    assert_eq!(dead.last_error.as_deref(), Some("broken"));
    let verbs = [
        Verb::Admit,
        Verb::Claim,
        Verb::Fail,
        Verb::Retry,
        Verb::Claim,
        Verb::Fail,
        Verb::Kill,
    ];
    assert_eq!(world.verbs(&dead).await, verbs);
    world.is_sound().await;
}

pub async fn an_attempt_that_nothing_cures_rests_as_failed_du_058(world: World) {
    let id = world.publish(job()).await;
    let held = take_job(&world, "runner").await;
    world
        .settle(&held, failing(false, false))
        .await
        .expect("it is held");
    let failed = world.load(id).await;
    assert_eq!(
        (failed.state, failed.cause),
        (State::Failed, Cause::WorkerFailed)
    );
    assert_eq!(failed.settled_at, Some(world.now()));
    assert_eq!(world.claim(claim_job("runner")).await, []);
    world.publish(item()).await;
    let held = world.take("alice").await;
    assert_eq!(
        world.settle(&held, failing(false, true)).await,
        Err(Refusal::IllegalState),
        "not every profile knows such a state"
    );
    world.is_sound().await;
}

pub async fn what_was_given_back_waits_where_it_stood_and_counts_no_attempt(world: World) {
    let last = NewIntent {
        attempts_max: 1,
        ..job()
    };
    let id = world.publish(last).await;
    let behind = world.publish(job()).await;
    // More often than its maximum number of attempts.
    for _ in 0..3 {
        let held = take_job(&world, "runner").await;
        assert_eq!((held.id, held.attempts), (id, 1));
        world.clock.advance(SECOND_US);
        let given_back = world.settle(&held, Settlement::GiveBack).await;
        assert!(given_back.is_ok(), "{given_back:?}");
        let waiting = world.load(id).await;
        assert_eq!(
            (waiting.state, waiting.shelf),
            (State::Queued, Shelf::Ready)
        );
        assert_eq!((waiting.attempts, waiting.holder), (0, None));
        let late = world.settle(&held, Settlement::GiveBack).await;
        assert_eq!(late, Err(Refusal::LeaseLost), "once is enough");
        world.is_sound().await;
    }
    let held = take_job(&world, "runner").await;
    assert!(world.complete(&held).await.is_ok());
    assert_eq!(take_job(&world, "runner").await.id, behind);
    world.publish(item()).await;
    let held = world.take("alice").await;
    assert_eq!(
        world.settle(&held, Settlement::GiveBack).await,
        Err(Refusal::IllegalState),
        "not every profile knows this step"
    );
    world.is_sound().await;
}

pub async fn what_an_earlier_start_held_is_taken_back_du_116(world: World) {
    let last = NewIntent {
        attempts_max: 1,
        ..job()
    };
    let (one, over) = (world.publish(job()).await, world.publish(last).await);
    for id in [one, over] {
        let held = take_job(&world, &Recover::holder("here", "1")).await;
        assert_eq!(held.id, id);
    }
    for (node, start) in [("here", "2"), ("there", "1"), ("here2", "1")] {
        world.publish(job()).await;
        take_job(&world, &Recover::holder(node, start)).await;
    }
    let recover = Command::Recover(Recover {
        face: Face::Automation,
        node: "here".to_owned(),
        start: "2".to_owned(),
        limit: 100,
    });
    let Ok(Answer::Recovered(rows)) = world.step(recover.clone()).await else {
        panic!("it is never refused");
    };
    let became: Vec<_> = rows.iter().map(|row| (row.id, row.state)).collect();
    assert_eq!(became, [(one, State::Queued), (over, State::DeadLetter)]);
    let again = world.step(recover).await;
    assert_eq!(again, Ok(Answer::Recovered(Vec::new())));
    let held = take_job(&world, "runner").await;
    assert_eq!(
        (held.id, held.attempts),
        (one, 2),
        "the lost attempt counts"
    );
    assert_eq!(world.claim(claim_job("runner")).await, []);
    world.is_sound().await;
}

pub async fn a_cleanup_keeps_as_long_as_it_is_told_du_121(world: World) {
    world.publish(job()).await;
    let held = take_job(&world, "runner").await;
    world
        .settle(&held, Settlement::Complete { result: None })
        .await
        .expect("it is held");
    let clean = |retention_us| {
        world.step(Command::Clean(Clean {
            face: Face::Automation,
            retention_us,
            limit: 10,
        }))
    };
    world.clock.set(world.now().plus(DAY_US - 1));
    for (retention_us, gone) in [(30 * DAY_US, false), (DAY_US, false), (DAY_US - 1, true)] {
        clean(retention_us).await.expect("it is never refused");
        assert_eq!(world.get(held.id).await.is_none(), gone, "{retention_us}");
    }
    world.is_sound().await;
}

pub async fn requeueing_gives_a_life_as_long_as_the_first(world: World) {
    let long = NewIntent {
        ttl_us: 90 * DAY_US,
        ..job()
    };
    let id = world.publish(long).await;
    let operate = Operate {
        id,
        face: Face::Automation,
        reason: "by hand".to_owned(),
    };
    world
        .step(Command::Cancel(operate.clone()))
        .await
        .expect("it may");
    world.clock.set(world.now().plus(MINUTE_US));
    world.step(Command::Requeue(operate)).await.expect("it may");
    let row = world.load(id).await;
    assert_eq!(row.expires_at, world.now().plus(90 * DAY_US));
}

pub async fn no_attempt_of_a_job_has_the_number_of_another_du_123(world: World) {
    let operate = |id| Operate {
        id,
        face: Face::Automation,
        reason: "by hand".to_owned(),
    };
    let id = world.publish(job()).await;
    let mut last = 0;
    for round in 0..3 {
        // The job is cancelled once before it is claimed and once while it is leased.
        for runs in [false, true] {
            if runs {
                take_job(&world, "alice").await;
            }
            world
                .step(Command::Cancel(operate(id)))
                .await
                .expect("it may");
            let ended = world.load(id).await.attempts;
            assert_eq!(ended, last + 1, "{round} {runs}");
            last = ended;
            world
                .step(Command::Requeue(operate(id)))
                .await
                .expect("it may");
            assert_eq!(world.load(id).await.attempts, last);
        }
    }
    world.is_sound().await;
}

pub async fn the_last_records_come_first(world: World) {
    for name in ["a", "b", "c", "d"] {
        let put = Put {
            key: Key {
                kind: Kind::Kv,
                owner: "alice".to_owned(),
                name: name.to_owned(),
            },
            value: "1".to_owned(),
            expires_at: (name == "c").then(|| world.now().plus(1)),
            expect: None,
        };
        world.step(Command::Put(put)).await.expect("it may");
    }
    world.clock.set(world.now().plus(1));
    let last = |before: &str, limit| {
        let store = world.store.clone();
        let before = before.to_owned();
        async move {
            let found = store.last_records(Kind::Kv, "alice".to_owned(), before, limit);
            let found = found.await.expect("works");
            found
                .into_iter()
                .map(|record| record.key.name)
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(last("", 2).await, ["d", "b"]);
    assert_eq!(last("b", 2).await, ["a"]);
}
