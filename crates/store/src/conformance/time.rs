//! Effects of time: sweeps, cleanup passes, and the next due time.

use std::sync::{Arc, Mutex};

use consign_kernel::command::{Answer, Claim, Clean, Cleaned, Command, NewIntent, Sweep};
use consign_kernel::ids::{DAY_US, HOUR_US, SECOND_US};
use consign_kernel::intent::Shelf;
use consign_kernel::limits;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::{Cause, State, Verb};

use super::{World, claim_by, in_face, item};
use crate::TypedReads as _;

async fn sweep(world: &World, limit: u32) -> (u32, bool) {
    match world.step(Command::Sweep(Sweep { limit })).await {
        Ok(Answer::Swept { rows, more }) => (rows, more),
        other => panic!("a sweep answered {other:?}"),
    }
}

async fn clean(world: &World, face: Face, limit: u32) -> Cleaned {
    match world
        .step(Command::Clean(Clean {
            face,
            retention_us: limits::RETENTION_US,
            limit,
        }))
        .await
    {
        Ok(Answer::Cleaned(cleaned)) => cleaned,
        other => panic!("a cleanup answered {other:?}"),
    }
}

pub async fn a_sweep_moves_what_is_due_and_nothing_else(world: World) {
    let leased = world.publish(item()).await;
    world.take("alice").await;
    let delayed = NewIntent {
        delay_us: 60 * SECOND_US,
        ..item()
    };
    let delayed = world.publish(delayed).await;
    let short = NewIntent {
        ttl_us: 60 * SECOND_US,
        ..item()
    };
    let short = world.publish(short).await;
    world.clock.advance(60 * SECOND_US - 1);
    assert_eq!(sweep(&world, 10).await, (0, false));
    world.clock.advance(1);
    assert_eq!(sweep(&world, 10).await, (3, false));
    assert_eq!(world.load(leased).await.shelf, Shelf::Lapsed);
    assert_eq!(world.load(delayed).await.shelf, Shelf::Ready);
    assert_eq!(world.load(short).await.shelf, Shelf::Parked);
    assert_eq!(sweep(&world, 10).await, (0, false), "nothing is due twice");
}

pub async fn a_sweep_is_bounded_and_says_when_more_waits(world: World) {
    let delayed = NewIntent {
        delay_us: SECOND_US,
        ..item()
    };
    world.admit(vec![delayed; 5]).await.expect("it is admitted");
    world.clock.advance(SECOND_US);
    assert_eq!(sweep(&world, 3).await, (3, true));
    assert_eq!(sweep(&world, 3).await, (2, false));
}

pub async fn each_face_has_its_own_way_with_a_lease_that_ran_out(world: World) {
    let mut ids = Vec::new();
    for (profile, face) in [
        (ProfileId::Intent, Face::Intent),
        (ProfileId::Automation, Face::Automation),
        (ProfileId::MeshOutbox, Face::Mesh),
    ] {
        ids.push(world.publish(in_face(profile)).await);
        let claim = Claim {
            face,
            ..claim_by("alice")
        };
        assert_eq!(world.claim(claim).await.len(), 1);
    }
    world.clock.advance(60 * SECOND_US);
    assert_eq!(sweep(&world, 10).await, (3, false));
    let intent = world.load(ids[0]).await;
    assert_eq!(
        (intent.state, intent.shelf),
        (State::Dispatched, Shelf::Lapsed)
    );
    let job = world.load(ids[1]).await;
    assert_eq!((job.state, job.cause), (State::Queued, Cause::TimedOut));
    assert!(job.run_at >= world.now().plus(job.backoff_us));
    assert_eq!(
        world.verbs(&job).await,
        [Verb::Admit, Verb::Claim, Verb::Expire, Verb::Retry]
    );
    let message = world.load(ids[2]).await;
    assert_eq!(
        (message.state, message.cause),
        (State::Queued, Cause::LeaseExpired)
    );
    assert_eq!(message.run_at, world.now().plus(500_000));
}

pub async fn a_cleanup_requeues_lapsed_leases_with_back_off_ip_024(world: World) {
    let id = world.publish(item()).await;
    world.take("alice").await;
    world.clock.advance(60 * SECOND_US);
    let expected = Cleaned {
        leases_requeued: 1,
        ..Cleaned::default()
    };
    assert_eq!(clean(&world, Face::Intent, 10).await, expected);
    let open = world.load(id).await;
    assert_eq!(
        (open.state, open.cause),
        (State::Queued, Cause::LeaseExpired)
    );
    assert_eq!(
        open.last_error.as_deref(),
        Some("Lease expired. Backing off.")
    );
    assert_eq!(open.holder, None);
    let pause_us = open.run_at.0 - world.now().0;
    assert!(
        (10 * SECOND_US..12 * SECOND_US).contains(&pause_us),
        "{pause_us}"
    );
    assert_eq!(
        world.claim(claim_by("alice")).await,
        [],
        "it has to wait now"
    );
    assert_eq!(clean(&world, Face::Intent, 10).await, Cleaned::default());
}

pub async fn a_cleanup_also_requeues_what_a_sweep_found_lapsed_ip_024(world: World) {
    world.publish(item()).await;
    world.take("alice").await;
    world.clock.advance(60 * SECOND_US);
    assert_eq!(sweep(&world, 10).await, (1, false));
    assert_eq!(clean(&world, Face::Intent, 10).await.leases_requeued, 1);
}

pub async fn a_cleanup_buries_exhausted_leases_ip_017_ip_026(world: World) {
    let once = NewIntent {
        attempts_max: 1,
        ..item()
    };
    let id = world.publish(once).await;
    world.take("alice").await;
    world.clock.advance(60 * SECOND_US);
    assert_eq!(clean(&world, Face::Intent, 10).await.leases_dead, 1);
    let dead = world.load(id).await;
    assert_eq!(
        (dead.state, dead.cause),
        (State::DeadLetter, Cause::Exhausted)
    );
}

pub async fn a_cleanup_removes_open_intents_past_their_life_ip_011(world: World) {
    let ready = world.publish(item()).await;
    let delayed = NewIntent {
        delay_us: 2 * DAY_US,
        ..item()
    };
    let delayed = world.publish(delayed).await;
    world.clock.advance(DAY_US - 1);
    assert_eq!(clean(&world, Face::Intent, 10).await, Cleaned::default());
    world.clock.advance(1);
    // One of them was already parked by a sweep, the other was not.
    assert_eq!(sweep(&world, 1).await, (1, true));
    assert_eq!(clean(&world, Face::Intent, 10).await.expired_deleted, 2);
    assert_eq!(
        (world.get(ready).await, world.get(delayed).await),
        (None, None)
    );
    let dead = world.store.dead(Face::Intent, 10).await;
    assert_eq!(dead.expect("storage works"), [], "they do not become dead");
}

pub async fn settled_intents_are_kept_seven_days_ip_179(world: World) {
    let done = world.publish(item()).await;
    let held = world.take("alice").await;
    assert!(world.complete(&held).await.is_ok());
    let dead = world.publish(item()).await;
    assert!(world.cancel(dead).await.is_ok());
    world.clock.advance(7 * DAY_US - 1);
    assert_eq!(clean(&world, Face::Intent, 10).await, Cleaned::default());
    world.clock.advance(1);
    let expected = Cleaned {
        done_deleted: 1,
        dead_deleted: 1,
        ..Cleaned::default()
    };
    assert_eq!(clean(&world, Face::Intent, 10).await, expected);
    assert_eq!((world.get(done).await, world.get(dead).await), (None, None));
}

pub async fn a_cleanup_is_bounded_and_says_when_more_waits(world: World) {
    world.admit(vec![item(); 5]).await.expect("it is admitted");
    world.clock.advance(DAY_US);
    let first = clean(&world, Face::Intent, 3).await;
    assert_eq!((first.expired_deleted, first.more), (3, true));
    let second = clean(&world, Face::Intent, 3).await;
    assert_eq!((second.expired_deleted, second.more), (2, false));
}

pub async fn a_cleanup_leaves_other_faces_alone(world: World) {
    for profile in [ProfileId::Automation, ProfileId::MeshOutbox] {
        world.publish(in_face(profile)).await;
    }
    let automation = Claim {
        face: Face::Automation,
        ..claim_by("alice")
    };
    assert_eq!(world.claim(automation).await.len(), 1);
    world.clock.advance(30 * DAY_US);
    let before = world.store.dump().await.expect("storage works");
    assert_eq!(clean(&world, Face::Intent, 10).await, Cleaned::default());
    assert_eq!(world.store.dump().await.expect("storage works"), before);
}

pub async fn a_cleanup_follows_the_profile_of_its_face(world: World) {
    let id = world.publish(in_face(ProfileId::Automation)).await;
    let automation = Claim {
        face: Face::Automation,
        ..claim_by("alice")
    };
    assert_eq!(world.claim(automation).await.len(), 1);
    world.clock.advance(60 * SECOND_US);
    clean(&world, Face::Automation, 10).await;
    let job = world.load(id).await;
    assert_eq!((job.state, job.cause), (State::Queued, Cause::TimedOut));
    assert_eq!(
        world.verbs(&job).await,
        [Verb::Admit, Verb::Claim, Verb::Expire, Verb::Retry]
    );
}

pub async fn the_next_due_instant_is_the_earliest_delay_or_lease(world: World) {
    let due = async || world.store.next_due().await.expect("storage works");
    assert_eq!(due().await, None);
    world.publish(item()).await;
    assert_eq!(
        due().await,
        None,
        "a ready row waits for a worker, not for time"
    );
    let held = world.take("alice").await;
    assert_eq!(due().await, held.lease_until);
    let delayed = NewIntent {
        delay_us: SECOND_US,
        ..item()
    };
    world.publish(delayed).await;
    assert_eq!(due().await, Some(world.now().plus(SECOND_US)));
    world.clock.advance(HOUR_US);
    assert_eq!(sweep(&world, limits::SWEEP_ROWS_MAX).await, (2, false));
    assert_eq!(due().await, None);
}

pub async fn a_request_tells_whom_to_wake_and_when(world: World) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listening = Arc::clone(&heard);
    world.store.listen(Box::new(move |news| {
        listening.lock().expect("no panic").push(news.clone());
    }));
    let probes = claim_by("alice").probes();
    world.publish(item()).await;
    let delayed = NewIntent {
        delay_us: SECOND_US,
        ..item()
    };
    world.publish(delayed).await;
    let heard = heard.lock().expect("no panic");
    let [ready, delayed] = &heard[..] else {
        panic!("{heard:?}");
    };
    assert!(ready.ripe.iter().any(|ripe| probes.contains(ripe)));
    assert_eq!(ready.wake_at, None);
    assert_eq!(delayed.ripe, []);
    assert_eq!(delayed.wake_at, Some(world.now().plus(SECOND_US)));
    for news in heard.iter() {
        assert_eq!(news.told.iter().collect::<Vec<_>>(), ["alice"]);
    }
}

/// A difference of less than a second is not recorded: it would add some bytes to every fact, and the clocks of a server
/// always differ a little.
pub async fn facts_record_how_far_the_wall_clock_is_from_engine_time(world: World) {
    let id = world.publish(item()).await;
    for ahead_us in [SECOND_US - 1, -HOUR_US, HOUR_US] {
        world.clock.set_day_ahead(ahead_us);
        world.take("alice").await;
        world.clock.advance(61 * SECOND_US);
    }
    let facts = world.facts(&world.load(id).await).await;
    let claimed = facts.iter().filter(|fact| fact.verb == Verb::Claim);
    let offsets: Vec<i64> = claimed.map(|fact| fact.wall_offset_us).collect();
    assert_eq!(offsets, [0, -HOUR_US, HOUR_US]);
}
