//! Admission: the stored values, all or nothing, the cap, and rows restored from another ledger.

use consign_kernel::command::{Admit, Answer, Command, NewIntent, Purge, Restore};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, IntentId, SECOND_US, Seq};
use consign_kernel::intent::Shelf;
use consign_kernel::limits;
use consign_kernel::profile::Face;
use consign_kernel::state::{Cause, State, Verb};

use super::{World, claim_by, item};
use crate::TypedReads as _;

pub async fn an_admitted_intent_is_stored_as_asked_ip_033_ip_043(world: World) {
    let asked = NewIntent {
        namespace: "räume/ü".to_owned(),
        goal: "tab\there, nul\0there".to_owned(),
        public: true,
        target: Some("worker-1".to_owned()),
        capability: Some("gpu".to_owned()),
        priority: 1_000,
        payload: r#"[1.50,{"a":null},"\u0000 😀"]"#.to_owned(),
        traceparent: Some("00-ab-cd-01".to_owned()),
        attempts_max: 20,
        ..item()
    };
    let id = world.publish(asked.clone()).await;
    let text = id.to_string();
    assert!(text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
    let stored = world.load(id).await;
    assert_eq!(
        (stored.namespace, stored.goal, stored.owner, stored.public),
        (asked.namespace, asked.goal, asked.owner, true)
    );
    assert_eq!(
        (stored.target, stored.capability, stored.traceparent),
        (asked.target, asked.capability, asked.traceparent)
    );
    assert_eq!(
        (stored.payload, stored.priority, stored.backoff_us),
        (asked.payload, 1_000, asked.backoff_us)
    );
    assert_eq!((stored.attempts, stored.attempts_max), (0, 20));
    assert_eq!((stored.state, stored.cause), (State::Queued, Cause::None));
    assert_eq!(
        (stored.created_at, stored.run_at),
        (world.now(), world.now())
    );
    assert_eq!(
        (
            stored.holder,
            stored.token,
            stored.result,
            stored.last_error
        ),
        (None, None, None, None)
    );
}

pub async fn an_intent_lives_as_long_as_it_was_given_ip_044(world: World) {
    let ttl_us = limits::INTENT_TTL_US;
    let id = world.publish(NewIntent { ttl_us, ..item() }).await;
    let stored = world.load(id).await;
    assert_eq!(stored.expires_at, world.now().plus(DAY_US));
    assert_eq!(
        (stored.shelf, stored.wake_at),
        (Shelf::Ready, stored.expires_at)
    );
}

pub async fn a_batch_is_admitted_whole_and_in_order(world: World) {
    let items = (0..100)
        .map(|n| NewIntent {
            payload: n.to_string(),
            ..item()
        })
        .collect();
    let admitted = world.admit(items).await.expect("it is admitted");
    assert_eq!(admitted.len(), 100);
    assert!(
        admitted.is_sorted_by(|a, b| a.id < b.id),
        "ids sort by admission"
    );
    for (n, admitted) in admitted.iter().enumerate() {
        assert!(!admitted.replayed);
        assert_eq!(world.load(admitted.id).await.payload, n.to_string());
    }
    assert_eq!(world.admit(Vec::new()).await, Ok(Vec::new()));
}

pub async fn a_delayed_intent_waits_for_its_time_ip_038_ip_097(world: World) {
    let id = world
        .publish(NewIntent {
            delay_us: 5 * SECOND_US,
            ..item()
        })
        .await;
    let due = world.now().plus(5 * SECOND_US);
    assert_eq!(world.store.next_due().await.ok(), Some(Some(due)));
    world.clock.advance(5 * SECOND_US - 1);
    assert_eq!(world.claim(claim_by("alice")).await, []);
    world.clock.advance(1);
    assert_eq!(world.take("alice").await.id, id);
}

async fn admit_capped(world: &World, count: usize, cap: u64) -> Result<Answer, Refusal> {
    let items = vec![item(); count];
    let cap = Some(cap);
    world.step(Command::Admit(Admit { items, cap })).await
}

pub async fn the_cap_counts_open_and_held_intents_and_refuses_whole_batches_ip_178(world: World) {
    assert!(admit_capped(&world, 3, 4).await.is_ok());
    let refused = Err(Refusal::CapReached { open: 3, limit: 4 });
    assert_eq!(admit_capped(&world, 2, 4).await, refused);
    let held = world.take("alice").await;
    assert_eq!(
        admit_capped(&world, 2, 4).await,
        refused,
        "a held one is not settled"
    );
    assert!(world.complete(&held).await.is_ok());
    assert!(
        admit_capped(&world, 2, 4).await.is_ok(),
        "a settled one makes room"
    );
    let bobs = vec![NewIntent {
        owner: "bob".to_owned(),
        ..item()
    }];
    let (items, cap) = (bobs, Some(1));
    assert!(
        world
            .step(Command::Admit(Admit { items, cap }))
            .await
            .is_ok(),
        "each owner has a cap of its own"
    );
}

pub async fn the_cap_sees_what_the_same_request_did_before(world: World) {
    let admit = || {
        Command::Admit(Admit {
            items: vec![item()],
            cap: Some(2),
        })
    };
    let answers = world.steps(vec![admit(), admit(), admit()]).await;
    assert!(answers[0].is_ok() && answers[1].is_ok());
    assert_eq!(answers[2], Err(Refusal::CapReached { open: 2, limit: 2 }));
}

pub async fn a_sequence_is_never_used_again_after_removal(world: World) {
    let last = world.publish(item()).await;
    let before = world.load(last).await.seq;
    let purge = Purge {
        face: Face::Intent,
        namespace: None,
        after: Seq(0),
        limit: 10,
    };
    assert!(world.step(Command::Purge(purge)).await.is_ok());
    assert_eq!(world.get(last).await, None);
    let next = world.publish(item()).await;
    assert!(world.load(next).await.seq > before);
    assert_ne!(next, last);
}

pub async fn a_refused_admission_leaves_no_trace(world: World) {
    let before = world.store.dump().await.expect("storage works");
    assert!(admit_capped(&world, 3, 2).await.is_err());
    assert_eq!(world.store.dump().await.expect("storage works"), before);
}

pub async fn too_many_steps_are_refused_as_a_whole(world: World) {
    let step = Command::Admit(Admit {
        items: vec![item()],
        cap: None,
    });
    let max = limits::STEPS_MAX;
    let reply = world.ask(None, vec![step.clone(); max + 1]).await;
    assert_eq!(reply, Err(Refusal::TooManySteps { max }));
    assert_eq!(world.store.dump().await.expect("storage works").intents, []);
    assert_eq!(world.steps(vec![step; max]).await.len(), max);
}

pub async fn a_restored_row_keeps_its_content_and_cannot_come_twice(world: World) {
    let made = world.publish(item()).await;
    let mut foreign = world.load(made).await;
    foreign.id = IntentId([9; 16]);
    foreign.state = State::DeadLetter;
    foreign.cause = Cause::Exhausted;
    foreign.attempts = 3;
    foreign.settled_at = Some(world.now());
    foreign.last_error = Some("gave up elsewhere".to_owned());
    let restore = Command::Restore(Box::new(Restore::bare(foreign.clone())));
    assert_eq!(world.step(restore.clone()).await, Ok(Answer::Restored));
    assert_eq!(world.step(restore).await, Err(Refusal::Exists));
    let stored = world.load(foreign.id).await;
    assert!(stored.seq > foreign.seq, "the sequence is this store's own");
    foreign.seq = stored.seq;
    foreign.last_fact = stored.last_fact;
    (foreign.shelf, foreign.wake_at) = (Shelf::Done, world.now().plus(limits::RETENTION_US));
    assert_eq!(stored, foreign);
    assert_eq!(world.verbs(&stored).await, [Verb::Admit]);
}
