//! Lists: intents in pages, dead letters, counts, and live leases.

use consign_kernel::command::{Admit, Command, NewIntent, Sweep};
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;

use super::{World, in_face, item};
use crate::{Count, IntentFilter, TypedReads as _};

fn everything(limit: u32) -> IntentFilter {
    IntentFilter {
        face: Face::Intent,
        owner: None,
        namespace: None,
        goal: None,
        state: None,
        before: None,
        limit,
    }
}

/// All pages of a listing, and the number of pages.
async fn pages(world: &World, mut filter: IntentFilter) -> (Vec<IntentId>, usize) {
    let (mut ids, mut count) = (Vec::new(), 0);
    loop {
        let page = world.store.intents(filter.clone()).await;
        let page = page.expect("storage works");
        assert!(page.intents.len() <= filter.limit as usize);
        ids.extend(page.intents.iter().map(|row| row.id));
        count += 1;
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return (ids, count),
        }
    }
}

pub async fn intents_are_listed_newest_first_in_pages(world: World) {
    let mut made = Vec::new();
    for _ in 0..7 {
        made.insert(0, world.publish(item()).await);
    }
    for limit in [1, 2, 3, 7, 100] {
        assert_eq!(pages(&world, everything(limit)).await.0, made, "by {limit}");
    }
    assert_eq!(pages(&world, everything(100)).await.1, 1);
}

pub async fn each_filter_narrows_the_list(world: World) {
    let mut made = Vec::new();
    for (owner, namespace, goal) in [
        ("alice", "default", "greet"),
        ("bob", "default", "greet"),
        ("alice", "other", "greet"),
        ("alice", "default", "wave"),
    ] {
        let row = NewIntent {
            owner: owner.to_owned(),
            namespace: namespace.to_owned(),
            goal: goal.to_owned(),
            ..item()
        };
        made.push(world.publish(row).await);
    }
    world.publish(in_face(ProfileId::Automation)).await;
    assert!(world.cancel(made[3]).await.is_ok());
    let text = |text: &str| Some(text.to_owned());
    let all = || everything(2);
    let check = async |filter: IntentFilter, expected: &[usize]| {
        let expected: Vec<_> = expected.iter().map(|&n| made[n]).collect();
        assert_eq!(
            pages(&world, filter.clone()).await.0,
            expected,
            "{filter:?}"
        );
    };
    check(all(), &[3, 2, 1, 0]).await;
    let owner = text("alice");
    check(IntentFilter { owner, ..all() }, &[3, 2, 0]).await;
    let namespace = text("other");
    check(IntentFilter { namespace, ..all() }, &[2]).await;
    let goal = text("greet");
    check(IntentFilter { goal, ..all() }, &[2, 1, 0]).await;
    let state = Some(State::DeadLetter);
    check(IntentFilter { state, ..all() }, &[3]).await;
    let (owner, state) = (text("alice"), Some(State::Queued));
    let namespace = text("default");
    let narrow = IntentFilter {
        owner,
        namespace,
        state,
        ..all()
    };
    check(narrow, &[0]).await;
    let owner = text("nobody");
    check(IntentFilter { owner, ..all() }, &[]).await;
}

pub async fn a_sparse_list_reaches_its_end(world: World) {
    // Between the two matching rows are more rows than any backend scans for one page.
    let wanted = || NewIntent {
        goal: "rare".to_owned(),
        ..item()
    };
    let oldest = world.publish(wanted()).await;
    let crowd = Command::Admit(Admit {
        items: vec![item(); 100],
        cap: None,
    });
    for _ in 0..4 {
        world.steps(vec![crowd.clone(); 13]).await;
    }
    let newest = world.publish(wanted()).await;
    for owner in [None, Some("alice".to_owned())] {
        let filter = IntentFilter {
            goal: Some("rare".to_owned()),
            owner,
            ..everything(10)
        };
        assert_eq!(pages(&world, filter).await.0, [newest, oldest]);
    }
}

pub async fn dead_letters_are_listed_by_death_latest_first_ip_146(world: World) {
    let made = world.admit(vec![item(); 4]).await.expect("it is admitted");
    let job = world.publish(in_face(ProfileId::Automation)).await;
    for n in [2, 0, 3] {
        assert!(world.cancel(made[n].id).await.is_ok());
        world.clock.advance(SECOND_US);
    }
    let dead = async |face, limit| -> Vec<IntentId> {
        let dead = world.store.dead(face, limit).await.expect("storage works");
        dead.iter().map(|row| row.id).collect()
    };
    let expected = [made[3].id, made[0].id, made[2].id];
    assert_eq!(dead(Face::Intent, 10).await, expected);
    assert_eq!(dead(Face::Intent, 2).await, expected[..2]);
    assert_eq!(dead(Face::Automation, 10).await, []);
    assert!(world.get(job).await.is_some());
}

pub async fn counts_follow_every_move(world: World) {
    let counts = async || {
        world
            .store
            .counts(Face::Intent)
            .await
            .expect("storage works")
    };
    let count = |namespace: &str, state, count| Count {
        namespace: namespace.to_owned(),
        state,
        count,
    };
    assert_eq!(counts().await, []);
    world.admit(vec![item(); 3]).await.expect("it is admitted");
    let namespace = "a".to_owned();
    world
        .publish(NewIntent {
            namespace,
            ..item()
        })
        .await;
    world.publish(in_face(ProfileId::Automation)).await;
    let (a, d) = ("a", "default");
    assert_eq!(
        counts().await,
        [count(a, State::Queued, 1), count(d, State::Queued, 3)]
    );
    let held = world.take("alice").await;
    assert_eq!(
        counts().await[1..],
        [count(d, State::Queued, 2), count(d, State::Dispatched, 1)]
    );
    assert!(world.complete(&held).await.is_ok());
    assert_eq!(
        counts().await[1..],
        [count(d, State::Queued, 2), count(d, State::Acked, 1)]
    );
    assert!(world.cancel(held.id).await.is_ok());
    assert_eq!(
        counts().await[1..],
        [count(d, State::Queued, 2), count(d, State::DeadLetter, 1)]
    );
    world.is_sound().await;
}

pub async fn what_is_held_is_what_is_leased(world: World) {
    let held = async || {
        let held = world.store.lease_counts().await.expect("storage works");
        assert!(held.len() <= 1, "one node gave out everything: {held:?}");
        held.first().map(|held| held.leases)
    };
    world.admit(vec![item(); 5]).await.expect("it is admitted");
    world.publish(in_face(ProfileId::Automation)).await;
    assert_eq!(held().await, None, "nobody has claimed");
    let (done, failed, kept) = (
        world.take("alice").await,
        world.take("alice").await,
        world.take("alice").await,
    );
    assert_eq!(held().await, Some(3));
    assert!(world.complete(&done).await.is_ok());
    assert!(world.fail(&failed, "no").await.is_ok());
    assert!(world.extend(&kept, 90 * SECOND_US).await.is_ok());
    assert_eq!(held().await, Some(1), "an extended lease is one lease");
    let cancelled = world.take("alice").await;
    assert!(world.cancel(cancelled.id).await.is_ok());
    assert_eq!(held().await, Some(1));
    world.clock.advance(91 * SECOND_US);
    let sweep = Command::Sweep(Sweep { limit: 10 });
    world.step(sweep).await.expect("a sweep is never refused");
    assert_eq!(held().await, None, "its time is over");
}
