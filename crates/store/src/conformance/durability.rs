//! The durability of acknowledged requests, and requests whose caller was dropped.

use consign_kernel::command::{Admit, Answer, Command, OnRefusal, Request};
use consign_kernel::ids::{HOUR_US, IntentId, SECOND_US};

use super::{START, World, claim_by, item};
use crate::TypedReads as _;

pub async fn reads_see_every_answered_write(world: World) {
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let world = world.clone();
        tasks.push(tokio::spawn(async move {
            let id = world.publish(item()).await;
            assert!(world.get(id).await.is_some(), "at once");
            let counts = world
                .store
                .counts(consign_kernel::profile::Face::Intent)
                .await;
            assert!(counts.is_ok_and(|counts| counts[0].count > 0));
        }));
    }
    for task in tasks {
        task.await.expect("the task does not panic");
    }
}

pub async fn a_request_whose_caller_went_away_is_done_whole_or_not_at_all(world: World) {
    for n in 0..30_u8 {
        let admit = Command::Admit(Admit {
            items: vec![item(); 2],
            cap: None,
        });
        let request = Request {
            gate: None,
            steps: vec![admit, Command::Claim(claim_by("alice"))],
            on_refusal: OnRefusal::Continue,
            seed: [n; 32],
        };
        let mut asked = world.store.execute(request);
        // Polled once, then dropped: the request is queued, and its answer has no receiver.
        std::future::poll_fn(|cx| {
            let _ = asked.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
        drop(asked);
    }
    world.publish(item()).await;
    let dump = world.store.dump().await.expect("storage works");
    assert_eq!(dump.intents.len() % 2, 1, "pairs, and the one after them");
    let held = dump
        .intents
        .iter()
        .filter(|row| row.token.is_some())
        .count();
    assert_eq!(held, dump.intents.len() / 2);
}

pub async fn time_never_goes_back_in_the_ledger(world: World) {
    let first = world.publish(item()).await;
    world.clock.set(START.minus(HOUR_US));
    let second = world.publish(item()).await;
    assert_eq!(world.load(second).await.created_at, START);
    assert!(second > first, "ids go on rising");
    let held = world.take("alice").await;
    assert_eq!(held.lease_until, Some(START.plus(60 * SECOND_US)));
}

pub async fn looking_costs_no_commit(world: World) {
    let id = world.publish(item()).await;
    let before = world.store.stats();
    for _ in 0..3 {
        assert_eq!(world.observe(id).await.id, id);
        let nobody = Command::Observe(IntentId([1; 16]));
        assert_eq!(world.step(nobody).await, Ok(Answer::Observed(None)));
        assert_eq!(world.claim(claim_by("bob")).await, []);
    }
    let after = world.store.stats();
    assert_eq!(after.commits, before.commits);
    assert_eq!(after.requests, before.requests + 9);
}
