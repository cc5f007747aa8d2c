//! Concurrent requests: one winner, no lost update.

use std::collections::HashSet;
use std::future::Future;

use consign_kernel::command::{
    Admit, Answer, Claim, Command, Extend, Gate, NewIntent, OnceGuard, Settle, Settlement,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::DAY_US;
use consign_kernel::once;
use consign_kernel::record::{Key, Kind, Put};
use consign_kernel::state::State;

use super::{World, claim_by, item};
use crate::TypedReads as _;

/// Starts `count` tasks before any of them is awaited, and collects their results.
pub(super) async fn together<T, F>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|n| tokio::spawn(task(n))).collect();
    let mut answers = Vec::with_capacity(count);
    for task in tasks {
        answers.push(task.await.expect("the task does not panic"));
    }
    answers
}

pub async fn each_intent_goes_to_exactly_one_of_many_claimers_ip_004_ip_163(world: World) {
    let public = NewIntent {
        public: true,
        ..item()
    };
    let made: HashSet<_> = world
        .admit(vec![public; 100])
        .await
        .expect("it is admitted")
        .iter()
        .map(|one| one.id)
        .collect();
    let taken = together(20, |n| {
        let world = world.clone();
        async move {
            let claim = Claim {
                max: u32::try_from(n % 3 + 1).expect("it is small"),
                ..claim_by(&format!("worker {n}"))
            };
            let mut taken = Vec::new();
            loop {
                let claimed = world.claim(claim.clone()).await;
                if claimed.is_empty() {
                    return taken;
                }
                taken.extend(claimed.into_iter().map(|row| row.id));
            }
        }
    })
    .await
    .concat();
    assert_eq!(taken.len(), 100, "nothing twice");
    assert_eq!(
        taken.into_iter().collect::<HashSet<_>>(),
        made,
        "nothing lost"
    );
}

pub async fn one_key_from_many_tasks_admits_once_ip_091(world: World) {
    let answers = together(50, |_| {
        let world = world.clone();
        let key = once::OnceKey {
            scope: once::Scope::IntentIdempotency,
            owner: "alice".to_owned(),
            key: "k".to_owned(),
        };
        let once = Some(OnceGuard {
            key,
            fingerprint: [1; 32],
            lifetime_us: DAY_US,
        });
        async move { world.admit(vec![NewIntent { once, ..item() }]).await }
    })
    .await;
    let admitted: Vec<_> = answers.into_iter().flatten().flatten().collect();
    assert_eq!(admitted.len(), 50);
    assert_eq!(admitted.iter().filter(|one| !one.replayed).count(), 1);
    assert!(admitted.iter().all(|one| one.id == admitted[0].id));
    let dump = world.store.dump().await.expect("storage works");
    assert_eq!((dump.intents.len(), dump.once.len()), (1, 1));
}

pub async fn one_nonce_from_many_tasks_passes_once_ip_055(world: World) {
    let answers = together(50, |_| {
        let world = world.clone();
        let gate = Gate {
            caller: "alice".to_owned(),
            metered: false,
            nonce: Some("n".to_owned()),
            cost: 1,
        };
        async move { world.ask(Some(gate), Vec::new()).await }
    })
    .await;
    assert_eq!(answers.iter().filter(|reply| reply.is_ok()).count(), 1);
    assert_eq!(
        answers
            .iter()
            .filter(|reply| **reply == Err(Refusal::Replay))
            .count(),
        49
    );
}

pub async fn the_cap_holds_whoever_comes_first(world: World) {
    let answers = together(40, |_| {
        let world = world.clone();
        let admit = Admit {
            items: vec![item()],
            cap: Some(25),
        };
        async move { world.step(Command::Admit(admit)).await }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 25);
}

pub async fn one_of_many_settlements_counts(world: World) {
    world.publish(item()).await;
    let held = world.take("alice").await;
    let (id, token) = (held.id, held.token.expect("it is held"));
    let answers = together(30, |n| {
        let world = world.clone();
        let holder = "alice".to_owned();
        let how = if n % 2 == 0 {
            Settlement::Complete { result: None }
        } else {
            Settlement::Fail {
                error: "no".to_owned(),
            }
        };
        let settle = Settle {
            detail: None,
            id,
            holder,
            token,
            how,
        };
        async move { world.step(Command::Settle(settle)).await }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let late = Extend {
        detail: None,
        id,
        holder: "alice".to_owned(),
        token,
        lease_us: 1,
    };
    assert_eq!(
        world.step(Command::Extend(late)).await,
        Err(Refusal::LeaseLost)
    );
}

pub async fn one_of_many_writers_of_a_version_wins(world: World) {
    let key = Key {
        kind: Kind::Kv,
        owner: "a".to_owned(),
        name: "k".to_owned(),
    };
    let answers = together(30, |n| {
        let world = world.clone();
        let put = Put {
            key: key.clone(),
            value: n.to_string(),
            expires_at: None,
            expect: Some(0),
        };
        async move { world.step(Command::Put(put)).await }
    })
    .await;
    let winners: Vec<_> = (0..30).filter(|&n| answers[n].is_ok()).collect();
    assert_eq!(winners.len(), 1);
    let stored = world.store.record(key).await.expect("storage works");
    assert_eq!(
        stored.map(|record| record.value),
        Some(winners[0].to_string())
    );
}

pub async fn whole_lives_side_by_side_all_end_well_ip_163(world: World) {
    let done = together(40, |n| {
        let world = world.clone();
        async move {
            let mine = NewIntent {
                owner: format!("owner {}", n % 4),
                ..item()
            };
            world.publish(mine).await;
            let held = world.take(&format!("owner {}", n % 4)).await;
            world.complete(&held).await
        }
    })
    .await;
    for answer in done {
        assert!(
            matches!(
                answer,
                Ok(Answer::Settled {
                    state: State::Acked,
                    ..
                })
            ),
            "{answer:?}"
        );
    }
    let dump = world.store.dump().await.expect("storage works");
    assert_eq!(dump.facts.len(), 120);
}
