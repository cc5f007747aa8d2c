//! Once-keys: the first use is executed, a repetition gets the same answer, other content is refused.

use consign_kernel::command::{Admit, Answer, Command, Forget, NewIntent, OnceGuard, Purge};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, HOUR_US, Seq};
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::Face;

use super::{World, item};

pub fn guarded(owner: &str, key: &str, fingerprint: u8) -> NewIntent {
    NewIntent {
        owner: owner.to_owned(),
        once: Some(OnceGuard {
            key: OnceKey {
                scope: Scope::IntentIdempotency,
                owner: owner.to_owned(),
                key: key.to_owned(),
            },
            fingerprint: [fingerprint; 32],
            lifetime_us: DAY_US,
        }),
        ..item()
    }
}

async fn stored(world: &World) -> usize {
    let dump = world.store.dump().await.expect("storage works");
    dump.intents.len()
}

pub async fn the_same_key_admits_once_and_answers_alike_ip_091(world: World) {
    let first = world.admit(vec![guarded("alice", "k", 1)]).await;
    let first = first.expect("it is admitted");
    assert!(!first[0].replayed);
    let again = NewIntent {
        namespace: "elsewhere".to_owned(),
        ..guarded("alice", "k", 1)
    };
    let again = world.admit(vec![again]).await.expect("it is admitted");
    assert!(again[0].replayed);
    assert_eq!(
        (again[0].id, &again[0].namespace),
        (first[0].id, &first[0].namespace)
    );
    assert_eq!(stored(&world).await, 1);
}

pub async fn a_key_with_another_content_is_refused_ip_092(world: World) {
    world.publish(guarded("alice", "k", 1)).await;
    assert_eq!(
        world.admit(vec![guarded("alice", "k", 2)]).await,
        Err(Refusal::OnceConflict { index: 0 })
    );
    assert_eq!(stored(&world).await, 1);
}

pub async fn each_owner_has_its_own_keys_ip_093(world: World) {
    let alices = world.publish(guarded("alice", "k", 1)).await;
    let bobs = world.publish(guarded("bob", "k", 2)).await;
    assert_ne!(alices, bobs);
    assert_eq!(stored(&world).await, 2);
}

pub async fn a_key_may_come_twice_in_one_batch(world: World) {
    let admitted = world
        .admit(vec![
            guarded("alice", "k", 1),
            item(),
            guarded("alice", "k", 1),
            guarded("alice", "other", 1),
        ])
        .await
        .expect("it is admitted");
    let replayed: Vec<bool> = admitted.iter().map(|one| one.replayed).collect();
    assert_eq!(replayed, [false, false, true, false]);
    assert_eq!(admitted[0].id, admitted[2].id);
    assert_eq!(stored(&world).await, 3);
}

pub async fn one_conflict_refuses_the_whole_batch_and_names_the_item(world: World) {
    world.publish(guarded("alice", "used", 1)).await;
    let before = world.store.dump().await.expect("storage works");
    let conflicts = [
        (vec![item(), guarded("alice", "used", 2), item()], 1),
        (
            vec![
                guarded("alice", "new", 1),
                item(),
                guarded("alice", "new", 2),
            ],
            2,
        ),
    ];
    for (items, index) in conflicts {
        assert_eq!(
            world.admit(items).await,
            Err(Refusal::OnceConflict { index })
        );
        assert_eq!(world.store.dump().await.expect("storage works"), before);
    }
    assert!(world.admit(vec![guarded("alice", "new", 2)]).await.is_ok());
}

pub async fn a_refused_admission_uses_up_no_key(world: World) {
    let capped = Admit {
        items: vec![guarded("alice", "k", 1)],
        cap: Some(0),
    };
    let refused = world.step(Command::Admit(capped)).await;
    assert_eq!(refused, Err(Refusal::CapReached { open: 0, limit: 0 }));
    let admitted = world.admit(vec![guarded("alice", "k", 2)]).await;
    assert!(!admitted.expect("it is admitted")[0].replayed);
}

pub async fn a_full_owner_still_gets_its_replays(world: World) {
    let id = world.publish(guarded("alice", "k", 1)).await;
    let capped = Admit {
        items: vec![guarded("alice", "k", 1)],
        cap: Some(1),
    };
    let Ok(Answer::Admitted(admitted)) = world.step(Command::Admit(capped)).await else {
        panic!("a replay takes no room");
    };
    assert_eq!(admitted[0].id, id);
}

pub async fn a_key_is_free_again_after_its_time(world: World) {
    let first = world.publish(guarded("alice", "k", 1)).await;
    world.clock.advance(DAY_US - 1);
    let replayed = world.admit(vec![guarded("alice", "k", 1)]).await;
    assert!(replayed.expect("it is admitted")[0].replayed);
    world.clock.advance(1);
    let second = world.admit(vec![guarded("alice", "k", 2)]).await;
    let second = second.expect("it is admitted");
    assert!(!second[0].replayed);
    assert_ne!(second[0].id, first);
    world.clock.advance(HOUR_US);
    assert!(world.admit(vec![guarded("alice", "k", 1)]).await.is_err());
}

pub async fn a_key_outlives_the_intent_it_guards(world: World) {
    let id = world.publish(guarded("alice", "k", 1)).await;
    let purge = Purge {
        face: Face::Intent,
        namespace: None,
        after: Seq(0),
        limit: 10,
    };
    assert!(world.step(Command::Purge(purge)).await.is_ok());
    let again = world.admit(vec![guarded("alice", "k", 1)]).await;
    assert_eq!(again.expect("it is admitted")[0].id, id);
    assert_eq!(stored(&world).await, 0);
}

pub async fn keys_are_forgotten_by_time_by_owner_or_all_ip_138(world: World) {
    for (owner, key) in [("alice", "a"), ("alice", "b"), ("bob", "c"), ("carol", "d")] {
        world.publish(guarded(owner, key, 1)).await;
        world.clock.advance(HOUR_US);
    }
    let forget = async |forget: Forget| world.step(Command::Forget(forget)).await;
    let rows = |rows| Ok(Answer::Forgotten { rows });
    let ended = |scope, limit| Forget::Once { scope, limit };
    let idempotency = Scope::IntentIdempotency;
    assert_eq!(forget(ended(idempotency, 10)).await, rows(0));
    world.clock.advance(DAY_US - 3 * HOUR_US);
    assert_eq!(forget(ended(Scope::IntentNonce, 10)).await, rows(0));
    assert_eq!(forget(ended(idempotency, 1)).await, rows(1), "the oldest");
    let owner = "alice".to_owned();
    assert_eq!(forget(Forget::OnceOf { owner }).await, rows(1));
    let face = Face::Intent;
    let all = |limit| Forget::OnceOfFace { face, limit };
    assert_eq!(forget(all(1)).await, rows(1), "no more than asked for");
    assert_eq!(forget(all(10)).await, rows(1));
}
