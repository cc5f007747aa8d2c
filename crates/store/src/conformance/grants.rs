//! Holders that work in the name of a recipient: claims that need a grant, and messages that wait for their recipient.

use std::collections::BTreeSet;

use consign_kernel::command::{
    Answer, Audience, Begin, Claim, Command, FirstStep, Hold, NewIntent, Settlement,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{HOUR_US, IntentId, SECOND_US, Seq};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Ties};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{Grant, Key, Put};
use consign_kernel::state::{Cause, State, Verb};

use super::{World, claim_by, in_face, item};

const NODE: &str = "node/1";
const WORKER: &str = "k_1";
/// Attempts of one message.
const ATTEMPTS: u32 = 5;

fn grant() -> Key {
    Grant::key("beam.bob", WORKER)
}

async fn put_grant(world: &World, life_us: Option<i64>) {
    let put = Put {
        key: grant(),
        value: r#"{"granted_at":0}"#.to_owned(),
        expires_at: life_us.map(|us| world.now().plus(us)),
        expect: None,
    };
    let written = world.step(Command::Put(put)).await;
    assert!(written.is_ok(), "{written:?}");
}

fn claim_for(recipient: &str) -> Claim {
    Claim {
        face: Face::Beam,
        audience: Audience::Publisher(recipient.to_owned()),
        max: 10,
        ..claim_by(WORKER)
    }
}

/// What the node that delivers messages asks for.
fn claim_by_node() -> Claim {
    Claim {
        face: Face::Beam,
        max: 10,
        ..claim_by(NODE)
    }
}

/// A message that the node holds, as after its first step.
async fn sent(world: &World, number: u64, to: &str, goal: &str) -> Intent {
    let begin = Begin {
        id: IntentId::new(world.now(), Seq(number), u128::from(number)),
        item: NewIntent {
            owner: to.to_owned(),
            goal: goal.to_owned(),
            public: true,
            payload: format!(r#"{{"nonce":"bus-{number}","payload":{{}}}}"#),
            attempts_max: ATTEMPTS,
            backoff_us: SECOND_US,
            ties: Ties {
                sender: Some("alice".to_owned()),
                ..Ties::default()
            },
            ..in_face(ProfileId::BeamBus)
        },
        hold: Some(Hold {
            holder: NODE.to_owned(),
            lease_us: 60 * SECOND_US,
        }),
        within: None,
        walk: vec![FirstStep {
            verb: Verb::Claim,
            detail: None,
        }],
        detail: None,
    };
    match world.step(Command::Begin(Box::new(begin))).await {
        Ok(Answer::Begun(row)) => *row,
        other => panic!("a begin answered {other:?}"),
    }
}

async fn delivered(world: &World, number: u64, to: &str, goal: &str) -> Intent {
    let row = sent(world, number, to, goal).await;
    let settled = world.settle(&row, Settlement::Deliver).await;
    assert!(settled.is_ok(), "{settled:?}");
    row
}

async fn handed_over(world: &World, number: u64, to: &str) -> Intent {
    let row = sent(world, number, to, "greet").await;
    let settled = world.settle(&row, Settlement::HandOver).await;
    assert!(settled.is_ok(), "{settled:?}");
    row
}

fn ids(rows: &[Intent]) -> Vec<IntentId> {
    rows.iter().map(|row| row.id).collect()
}

pub async fn a_claim_that_needs_a_grant_is_refused_without_it_be_170(world: World) {
    let id = world.publish(item()).await;
    let claim = || {
        Command::Claim(Claim {
            grant: Some(grant()),
            ..claim_by("alice")
        })
    };
    assert_eq!(world.step(claim()).await, Err(Refusal::NotGranted));
    assert_eq!(world.load(id).await.state, State::Queued);
    // A grant that another step of the same commit makes or takes away counts from there on.
    put_grant(&world, None).await;
    let other = world.publish(item()).await;
    let steps = vec![claim(), Command::Delete(grant()), claim()];
    let answers = world.steps(steps).await;
    assert!(matches!(&answers[0], Ok(Answer::Claimed(rows)) if ids(rows) == [id]));
    assert_eq!(answers[2], Err(Refusal::NotGranted));
    assert_eq!(world.load(other).await.state, State::Queued);
    world.is_sound().await;
}

pub async fn a_grant_past_its_time_permits_nothing(world: World) {
    world.publish(item()).await;
    put_grant(&world, Some(SECOND_US)).await;
    world.clock.advance(SECOND_US);
    let claim = Claim {
        grant: Some(grant()),
        ..claim_by("alice")
    };
    let refused = world.step(Command::Claim(claim)).await;
    assert_eq!(refused, Err(Refusal::NotGranted));
    world.is_sound().await;
}

pub async fn a_worker_takes_what_waits_for_its_recipient_be_171(world: World) {
    let first = delivered(&world, 1, "bob", "greet").await;
    let second = sent(&world, 2, "bob", "wave").await;
    let other = delivered(&world, 3, "carol", "greet").await;
    let held = sent(&world, 4, "bob", "greet").await;
    assert!(world.fail(&second, "offline").await.is_ok());

    // The node finds nothing: one is held, two wait for their recipients, one is not due.
    assert!(world.claim(claim_by_node()).await.is_empty());
    let wave = Claim {
        goal: Some("wave".to_owned()),
        ..claim_for("bob")
    };
    assert!(world.claim(wave.clone()).await.is_empty());
    let taken = world.claim(claim_for("bob")).await;
    assert_eq!(ids(&taken), [first.id]);
    assert_eq!(taken[0].holder.as_deref(), Some(WORKER));
    let steps: Vec<_> = world
        .facts(&first)
        .await
        .iter()
        .map(|fact| (fact.verb, fact.to, fact.attempt))
        .collect();
    assert_eq!(
        steps[2..],
        [
            (Verb::Deliver, State::Delivered, 1),
            (Verb::Retry, State::Queued, 1),
            (Verb::Claim, State::Dispatched, 2),
        ]
    );
    assert!(world.claim(claim_for("bob")).await.is_empty());

    // When the retry is due, the first claim takes it.
    world.clock.advance(HOUR_US);
    assert_eq!(ids(&world.claim(wave).await), [second.id]);
    // Lapsed leases of the node and of the worker are over by now.
    let rest: BTreeSet<IntentId> = ids(&world.claim(claim_by_node()).await)
        .into_iter()
        .collect();
    assert_eq!(rest, BTreeSet::from([first.id, held.id]));
    assert_eq!(world.load(other.id).await.state, State::Delivered);
    world.is_sound().await;
}

pub async fn a_worker_that_completes_a_message_delivers_it_be_172(world: World) {
    let row = handed_over(&world, 1, "bob").await;
    let held = world.claim(claim_for("bob")).await.remove(0);
    assert!(world.extend(&held, HOUR_US).await.is_ok());
    world.clock.advance(90 * SECOND_US);
    let result = Some(Outcome {
        kind: ResultKind::Text,
        body: "done".to_owned(),
    });
    let complete = Settlement::Complete {
        result: result.clone(),
    };
    let answer = world.settle(&held, complete).await;
    let acked = world.load(row.id).await;
    assert_eq!(
        answer,
        Ok(Answer::Settled {
            state: State::Acked,
            run_at: world.now(),
        })
    );
    assert_eq!((acked.state, acked.result), (State::Acked, result));
    assert_eq!(acked.settled_at, Some(world.now()));
    let verbs = world.verbs(&row).await;
    assert_eq!(verbs[verbs.len() - 2..], [Verb::Deliver, Verb::Complete]);
    let again = world.complete(&held).await;
    assert_eq!(again, Err(Refusal::LeaseLost));
    assert!(world.claim(claim_for("bob")).await.is_empty());
    world.is_sound().await;
}

pub async fn a_message_that_its_workers_fail_follows_the_schedule_of_the_bus_be_173(world: World) {
    let row = handed_over(&world, 1, "bob").await;
    // The delays of the nonce "bus-1".
    for delay_s in [34, 68, 137, 276] {
        let held = world.claim(claim_for("bob")).await.remove(0);
        assert!(world.fail(&held, "no").await.is_ok());
        let queued = world.load(row.id).await;
        let due = world.now().plus(delay_s * SECOND_US);
        assert_eq!((queued.state, queued.run_at), (State::Queued, due));
        world.clock.advance(delay_s * SECOND_US - 1);
        assert!(world.claim(claim_for("bob")).await.is_empty());
        world.clock.advance(1);
    }
    let held = world.claim(claim_for("bob")).await.remove(0);
    assert_eq!(held.attempts, ATTEMPTS);
    assert!(world.fail(&held, "no").await.is_ok());
    let dead = world.load(row.id).await;
    assert_eq!(
        (dead.state, dead.cause, dead.last_error.as_deref()),
        (State::DeadLetter, Cause::Exhausted, Some("no"))
    );
    world.is_sound().await;
}

pub async fn a_message_is_held_by_a_node_or_by_a_worker_be_174(world: World) {
    const MESSAGES: u64 = 24;
    for number in 1..=MESSAGES {
        let row = sent(&world, number, "bob", "greet").await;
        assert!(world.fail(&row, "offline").await.is_ok());
    }
    world.clock.advance(HOUR_US);
    let mut tasks = tokio::task::JoinSet::new();
    for turn in 0..8 {
        let world = world.clone();
        let claim = if turn % 2 == 0 {
            claim_for("bob")
        } else {
            claim_by_node()
        };
        tasks.spawn(async move {
            let mut held = Vec::new();
            loop {
                let rows = world
                    .claim(Claim {
                        max: 1,
                        ..claim.clone()
                    })
                    .await;
                if rows.is_empty() {
                    return held;
                }
                held.extend(ids(&rows));
            }
        });
    }
    let held: Vec<IntentId> = tasks.join_all().await.into_iter().flatten().collect();
    let distinct: BTreeSet<&IntentId> = held.iter().collect();
    assert_eq!(held.len(), distinct.len(), "a message has two holders");
    assert_eq!(held.len(), usize::try_from(MESSAGES).unwrap_or_default());
    world.is_sound().await;
}

pub async fn a_message_that_is_handed_over_counts_no_attempt(world: World) {
    let row = handed_over(&world, 1, "bob").await;
    let waiting = world.load(row.id).await;
    assert_eq!((waiting.state, waiting.attempts), (State::Delivered, 0));
    assert_eq!(waiting.run_at, world.now());
    let held = world.claim(claim_for("bob")).await.remove(0);
    assert_eq!(held.attempts, 1);
    // The worker vanishes, so the message waits for the node as well, which hands it over again.
    world.clock.advance(60 * SECOND_US);
    let by_node = world.claim(claim_by_node()).await.remove(0);
    assert_eq!(by_node.attempts, 2);
    assert!(world.settle(&by_node, Settlement::HandOver).await.is_ok());
    assert_eq!(world.claim(claim_for("bob")).await[0].attempts, 2);
    world.is_sound().await;
}
