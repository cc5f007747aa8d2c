//! Steps and terminal states of the mesh outbox and Beam: maximum age, retries by the holder, and steps without a lease.

use consign_kernel::command::{
    Advance, Answer, Begin, Claim, Command, Hold, NewIntent, Operate, Settlement, Sweep, Take,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, IntentId, SECOND_US, Seq};
use consign_kernel::intent::{Intent, Outcome, ResultKind};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::{Cause, State, Verb};

use super::{World, claim_by, in_face};

fn claim_in(face: Face) -> Claim {
    Claim {
        face,
        ..claim_by("alice")
    }
}

async fn received(world: &World, profile: ProfileId) -> Intent {
    let begin = Begin {
        walk: Vec::new(),
        detail: None,
        id: IntentId::new(world.now(), Seq(1), 1),
        item: in_face(profile),
        hold: None,
        within: None,
    };
    match world.step(Command::Begin(Box::new(begin))).await {
        Ok(Answer::Begun(row)) => *row,
        other => panic!("a begin answered {other:?}"),
    }
}

async fn taken(world: &World, row: &Intent) -> Intent {
    let take = Take {
        detail: None,
        id: row.id,
        face: Face::Beam,
        hold: Hold {
            holder: "node".to_owned(),
            lease_us: 60 * SECOND_US,
        },
    };
    match world.step(Command::Take(take)).await {
        Ok(Answer::Claimed(mut claimed)) => claimed.remove(0),
        other => panic!("a take answered {other:?}"),
    }
}

async fn advance(world: &World, row: &Intent, verb: Verb) -> Result<Answer, Refusal> {
    let step = Advance {
        actor: Some("bob".to_owned()),
        detail: Some("asked".to_owned()),
        ..Advance::by_system(row.id, Face::Beam, verb)
    };
    world.step(Command::Advance(Box::new(step))).await
}

pub async fn a_message_past_its_maximum_age_is_a_dead_letter(world: World) {
    let item = NewIntent {
        ttl_us: 10 * SECOND_US,
        ..in_face(ProfileId::MeshOutbox)
    };
    let by_claim = world.publish(item.clone()).await;
    world.clock.advance(10 * SECOND_US);
    assert!(world.claim(claim_in(Face::Mesh)).await.is_empty());
    let by_sweep = world.publish(item).await;
    world.clock.advance(10 * SECOND_US);
    let sweep = Command::Sweep(Sweep { limit: 10 });
    world.step(sweep).await.expect("a sweep is never refused");
    for id in [by_claim, by_sweep] {
        let dead = world.load(id).await;
        assert_eq!(
            (dead.state, dead.cause),
            (State::DeadLetter, Cause::Expired)
        );
        assert_eq!(dead.last_error.as_deref(), Some("max_age_exceeded"));
        assert_eq!(world.verbs(&dead).await, [Verb::Admit, Verb::Expire]);
    }
    world.is_sound().await;
}

pub async fn a_message_given_back_past_its_maximum_age_is_a_dead_letter(world: World) {
    let item = NewIntent {
        ttl_us: 10 * SECOND_US,
        ..in_face(ProfileId::MeshOutbox)
    };
    let id = world.publish(item).await;
    let held = world.claim(claim_in(Face::Mesh)).await.remove(0);
    world.clock.advance(11 * SECOND_US);
    let given_back = world.settle(&held, Settlement::GiveBack).await;
    assert!(given_back.is_ok(), "{given_back:?}");
    world.is_sound().await;
    assert!(world.claim(claim_in(Face::Mesh)).await.is_empty());
    assert_eq!(world.load(id).await.state, State::DeadLetter);
    world.is_sound().await;
}

pub async fn a_holder_may_ask_for_a_later_retry_or_give_up(world: World) {
    let id = world.publish(in_face(ProfileId::MeshOutbox)).await;
    let held = world.claim(claim_in(Face::Mesh)).await.remove(0);
    let later = Settlement::RetryLater {
        after_us: 5 * SECOND_US,
        error: Some("502".to_owned()),
    };
    assert!(world.settle(&held, later).await.is_ok());
    assert!(world.claim(claim_in(Face::Mesh)).await.is_empty());
    world.clock.advance(5 * SECOND_US);
    let again = world.claim(claim_in(Face::Mesh)).await.remove(0);
    assert_eq!((again.id, again.attempts), (id, 2));
    assert_eq!(again.last_error.as_deref(), Some("502"));
    let error = "409".to_owned();
    assert!(
        world
            .settle(&again, Settlement::Kill { error })
            .await
            .is_ok()
    );
    let dead = world.load(id).await;
    assert_eq!(
        (dead.state, dead.cause),
        (State::DeadLetter, Cause::Rejected)
    );
    world.is_sound().await;
}

pub async fn a_delivered_message_waits_for_its_recipient_alone(world: World) {
    let row = received(&world, ProfileId::BeamBus).await;
    let held = taken(&world, &row).await;
    let early = advance(&world, &row, Verb::Complete).await;
    assert_eq!(early, Err(Refusal::IllegalState), "it has a holder");
    assert!(world.settle(&held, Settlement::Deliver).await.is_ok());
    let late = world.complete(&held).await;
    assert_eq!(late, Err(Refusal::LeaseLost));
    world.clock.advance(30 * DAY_US);
    let by_node = Claim {
        holder: "node".to_owned(),
        ..claim_in(Face::Beam)
    };
    assert!(world.claim(by_node).await.is_empty());
    assert_eq!(world.load(row.id).await.state, State::Delivered);

    let response = Outcome {
        kind: ResultKind::Json,
        body: "{}".to_owned(),
    };
    let ack = |result| {
        Command::Advance(Box::new(Advance {
            result,
            ..Advance::by_system(row.id, Face::Beam, Verb::Complete)
        }))
    };
    for result in [Some(response.clone()), None] {
        assert_eq!(world.step(ack(result)).await, Ok(Answer::Operated));
    }
    let acked = world.load(row.id).await;
    assert_eq!((acked.state, acked.result), (State::Acked, Some(response)));
    world.is_sound().await;
}

pub async fn a_delivered_intent_of_a_directory_keeps_its_lease_until_its_result(world: World) {
    let row = received(&world, ProfileId::BeamDirectory).await;
    let validated = advance(&world, &row, Verb::Validate).await;
    assert_eq!(validated, Ok(Answer::Operated));
    let held = taken(&world, &row).await;
    assert!(world.settle(&held, Settlement::Deliver).await.is_ok());
    let delivered = world.load(row.id).await;
    assert_eq!(
        (delivered.state, delivered.token),
        (State::Delivered, held.token)
    );
    assert!(delivered.demands_lease());
    world.is_sound().await;
    assert!(world.complete(&held).await.is_ok());
    assert!(!world.load(row.id).await.demands_lease());
    world.is_sound().await;
}

pub async fn steps_without_a_lease_lead_into_the_queue_and_out_of_it(world: World) {
    let row = received(&world, ProfileId::BeamDirectory).await;
    assert!(world.claim(claim_in(Face::Beam)).await.is_empty());
    for verb in [Verb::Validate, Verb::Retry] {
        assert_eq!(advance(&world, &row, verb).await, Ok(Answer::Operated));
    }
    let held = world.claim(claim_in(Face::Beam)).await.remove(0);
    let error = "offline".to_owned();
    assert!(
        world
            .settle(&held, Settlement::Reject { error })
            .await
            .is_ok()
    );
    // The sender requeues it; a restart finds it queued and marks it as failed.
    for verb in [Verb::Retry, Verb::Recover] {
        assert_eq!(advance(&world, &row, verb).await, Ok(Answer::Operated));
    }
    let failed = world.load(row.id).await;
    assert_eq!(
        (failed.state, failed.cause),
        (State::Failed, Cause::Recovered)
    );
    let requeue = Command::Requeue(Operate {
        id: row.id,
        face: Face::Beam,
        reason: "by hand".to_owned(),
    });
    assert_eq!(world.step(requeue).await, Ok(Answer::Operated));
    assert_eq!(
        advance(&world, &row, Verb::Kill).await,
        Ok(Answer::Operated)
    );
    assert_eq!(world.load(row.id).await.state, State::DeadLetter);
    assert_eq!(
        world.verbs(&row).await,
        [
            Verb::Admit,
            Verb::Validate,
            Verb::Retry,
            Verb::Claim,
            Verb::Fail,
            Verb::Retry,
            Verb::Recover,
            Verb::Requeue,
            Verb::Kill,
        ]
    );
    world.is_sound().await;
}
