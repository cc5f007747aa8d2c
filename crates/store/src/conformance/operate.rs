//! Operator commands: cancel, requeue and purge, from every state and only within the operator's own face.

use consign_kernel::command::{
    Answer, Claim, Command, NewIntent, OnRefusal, Operate, Purge, Request,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, IntentId, SECOND_US, Seq};
use consign_kernel::intent::Shelf;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record;
use consign_kernel::state::{Cause, State};

use super::{World, claim_by, in_face, item};
use crate::TypedReads as _;

/// One intent in each place that a row can be in, with the name of the place. Advances the clock.
async fn everywhere(world: &World) -> Vec<(&'static str, IntentId)> {
    let short = NewIntent {
        ttl_us: 200 * SECOND_US,
        ..item()
    };
    let mut places = vec![("parked", world.publish(short).await)];
    world.clock.advance(300 * SECOND_US);
    let mut made = Vec::new();
    for _ in 0..4 {
        made.push(world.publish(item()).await);
    }
    let lapsed = world.take("alice").await;
    world.clock.advance(60 * SECOND_US);
    assert_eq!(world.observe(lapsed.id).await.shelf, Shelf::Lapsed);
    places.push(("lapsed", lapsed.id));
    let acked = world.take("alice").await;
    assert!(world.complete(&acked).await.is_ok());
    places.push(("acked", acked.id));
    let dead = world.take("alice").await;
    assert!(world.cancel(dead.id).await.is_ok());
    places.push(("dead", dead.id));
    places.push(("leased", world.take("alice").await.id));
    places.push(("ready", world.publish(item()).await));
    let delayed = NewIntent {
        delay_us: DAY_US / 2,
        ..item()
    };
    places.push(("delayed", world.publish(delayed).await));
    places
}

pub async fn cancelling_works_from_every_state_ip_019_ip_144(world: World) {
    for (place, id) in everywhere(&world).await {
        assert_eq!(world.cancel(id).await, Ok(Answer::Operated), "{place}");
        let dead = world.load(id).await;
        assert_eq!(
            (dead.state, dead.cause, dead.shelf),
            (State::DeadLetter, Cause::Cancelled, Shelf::Done),
            "{place}"
        );
        assert_eq!(dead.last_error.as_deref(), Some("by hand"));
        assert_eq!(dead.settled_at, Some(world.now()));
        assert_eq!((dead.token, dead.lease_until), (None, None), "{place}");
    }
    let listed = world.store.dead(Face::Intent, 100).await;
    assert_eq!(listed.expect("storage works").len(), 7);
}

pub async fn requeueing_works_from_every_state_and_begins_anew_ip_018_ip_145(world: World) {
    for (place, id) in everywhere(&world).await {
        let before = world.load(id).await;
        assert_eq!(world.requeue(id).await, Ok(Answer::Operated), "{place}");
        let open = world.load(id).await;
        assert_eq!(
            (open.state, open.shelf, open.attempts),
            (State::Queued, Shelf::Ready, 0),
            "{place}"
        );
        assert_eq!(open.run_at, world.now(), "{place}");
        assert_eq!(open.expires_at, world.now().plus(DAY_US), "a fresh life");
        assert_eq!(
            (
                &open.holder,
                &open.token,
                &open.lease_until,
                &open.claimed_at
            ),
            (&None, &None, &None, &None)
        );
        assert_eq!(
            (&open.last_error, &open.result, &open.settled_at),
            (&None, &None, &None)
        );
        assert_eq!((open.created_at, open.seq), (before.created_at, before.seq));
    }
    let listed = world.store.dead(Face::Intent, 100).await;
    assert_eq!(listed.expect("storage works"), []);
    let all = Claim {
        max: 10,
        ..claim_by("alice")
    };
    assert_eq!(world.claim(all).await.len(), 7, "all are to be had");
}

pub async fn a_holder_loses_its_lease_to_the_operator(world: World) {
    let id = world.publish(item()).await;
    let held = world.take("alice").await;
    assert!(world.requeue(id).await.is_ok());
    assert_eq!(world.complete(&held).await, Err(Refusal::LeaseLost));
    let again = world.take("alice").await;
    assert!(world.cancel(id).await.is_ok());
    assert_eq!(
        world.extend(&again, SECOND_US).await,
        Err(Refusal::LeaseLost)
    );
}

pub async fn a_row_is_removed_by_hand_unless_it_is_held_or_kept_for_ever(world: World) {
    let remove = async |id, face| {
        let reason = String::new();
        world
            .step(Command::Remove(Operate { id, face, reason }))
            .await
    };
    let missing = remove(IntentId([1; 16]), Face::Intent).await;
    assert_eq!(missing, Err(Refusal::NotFound));
    let kept = world.publish(item()).await;
    assert_eq!(
        remove(kept, Face::Automation).await,
        Err(Refusal::NotFound),
        "a row of another face"
    );
    let held = world.take("alice").await;
    assert_eq!(remove(held.id, Face::Intent).await, Err(Refusal::Held));
    let waiting = world.publish(item()).await;
    assert_eq!(remove(waiting, Face::Intent).await, Ok(Answer::Operated));
    let found = world.store.intent(waiting).await.expect("a read");
    assert_eq!(found, None);
    let found = world.store.intent(kept).await.expect("a read");
    assert!(found.is_some());
}

pub async fn operators_touch_their_own_face_and_legal_edges_only(world: World) {
    assert_eq!(
        world.cancel(IntentId([1; 16])).await,
        Err(Refusal::NotFound)
    );
    assert_eq!(
        world.requeue(IntentId([1; 16])).await,
        Err(Refusal::NotFound)
    );
    let job = world.publish(in_face(ProfileId::Automation)).await;
    assert_eq!(world.cancel(job).await, Err(Refusal::NotFound));
    assert_eq!(world.requeue(job).await, Err(Refusal::NotFound));
    let by_automation = Operate {
        id: job,
        face: Face::Automation,
        reason: String::new(),
    };
    assert_eq!(
        world.step(Command::Requeue(by_automation.clone())).await,
        Err(Refusal::IllegalState),
        "an automation job is requeued only after it failed"
    );
    assert_eq!(
        world.step(Command::Cancel(by_automation)).await,
        Ok(Answer::Operated)
    );
}

async fn purge(
    world: &World,
    namespace: Option<&str>,
    after: Seq,
    limit: u32,
) -> (u32, Option<Seq>) {
    let purge = Purge {
        face: Face::Intent,
        namespace: namespace.map(str::to_owned),
        after,
        limit,
    };
    match world.step(Command::Purge(purge)).await {
        Ok(Answer::Purged { rows, after }) => (rows, after),
        other => panic!("a purge answered {other:?}"),
    }
}

pub async fn a_purge_of_everything_spares_other_faces_ip_140(world: World) {
    everywhere(&world).await;
    let job = world.publish(in_face(ProfileId::Automation)).await;
    assert_eq!(purge(&world, None, Seq(0), 100).await, (7, None));
    let left = world.store.dump().await.expect("storage works").intents;
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [job]);
    let counts = world.store.counts(Face::Intent).await;
    assert_eq!(counts.expect("storage works"), []);
}

pub async fn a_purge_of_a_namespace_spares_the_others_ip_141(world: World) {
    for namespace in ["a", "b", "a", "a.b"] {
        let namespace = namespace.to_owned();
        world
            .publish(NewIntent {
                namespace,
                ..item()
            })
            .await;
    }
    assert_eq!(purge(&world, Some("a"), Seq(0), 100).await, (2, None));
    let left = world.store.dump().await.expect("storage works").intents;
    let namespaces: Vec<_> = left.iter().map(|row| row.namespace.as_str()).collect();
    assert_eq!(namespaces, ["b", "a.b"]);
}

pub async fn a_purge_goes_on_where_its_last_piece_stopped(world: World) {
    let mut seqs = Vec::new();
    for _ in 0..5 {
        let id = world.publish(item()).await;
        seqs.push(world.load(id).await.seq);
    }
    assert_eq!(purge(&world, None, Seq(0), 2).await, (2, Some(seqs[1])));
    // A row that was added meanwhile has a number after the cursor and is found too.
    world.publish(item()).await;
    assert_eq!(purge(&world, None, seqs[1], 3).await, (3, Some(seqs[4])));
    assert_eq!(purge(&world, None, seqs[4], 3).await, (1, None));
    assert_eq!(world.store.dump().await.expect("storage works").intents, []);
}

pub async fn a_piece_of_a_purge_looks_at_no_more_rows_than_it_may(world: World) {
    let mut seqs = Vec::new();
    for namespace in ["b", "b", "b", "a", "b"] {
        let namespace = namespace.to_owned();
        let new = NewIntent {
            namespace,
            ..item()
        };
        let id = world.publish(new).await;
        seqs.push(world.load(id).await.seq);
    }
    let a = Some("a");
    assert_eq!(purge(&world, a, Seq(0), 2).await, (0, Some(seqs[1])));
    assert_eq!(purge(&world, a, seqs[1], 2).await, (1, Some(seqs[3])));
    assert_eq!(purge(&world, a, seqs[3], 2).await, (0, None));
    let left = world.store.dump().await.expect("storage works").intents;
    assert_eq!(left.len(), 4);
}

pub async fn a_step_can_be_refused_if_the_row_has_changed(world: World) {
    let made = world.admit(vec![item(); 2]).await.expect("it is admitted");
    let since = world.store.highest_fact().await.expect("storage works");
    let unchanged = |id, reason: &str| {
        let operate = Operate {
            id,
            face: Face::Intent,
            reason: reason.to_owned(),
        };
        Command::IfUnchanged(since, Box::new(Command::Cancel(operate)))
    };
    let held = world.take("alice").await;
    assert_eq!(held.id, made[0].id);
    let answers = world.steps(made.iter().map(|row| unchanged(row.id, "a")).collect());
    assert_eq!(answers.await, [Err(Refusal::Changed), Ok(Answer::Operated)]);
    let again = world.step(unchanged(made[1].id, "b")).await;
    assert_eq!(again, Err(Refusal::Changed), "the first step changed it");
    let cancelled = world.get(made[1].id).await.expect("it exists");
    assert_eq!(cancelled.last_error.as_deref(), Some("a"));
}

pub async fn a_guarded_request_depends_on_its_first_step_alone(world: World) {
    let made = world.admit(vec![item(); 2]).await.expect("it is admitted");
    let key = record::Key {
        kind: record::Kind::BulkJob,
        owner: String::new(),
        name: "job".to_owned(),
    };
    let guarded = async |expect| {
        let put = record::Put {
            key: key.clone(),
            value: "{}".to_owned(),
            expires_at: None,
            expect: Some(expect),
        };
        let remove = |id| {
            Command::Remove(Operate {
                id,
                face: Face::Intent,
                reason: "test".to_owned(),
            })
        };
        let missing = IntentId([0; 16]);
        let request = Request {
            gate: None,
            steps: vec![Command::Put(put), remove(missing), remove(made[0].id)],
            on_refusal: OnRefusal::Guarded,
            seed: [3; 32],
        };
        let reply = world.store.execute(request).await.expect("storage works");
        reply.expect("there is no gate")
    };
    let not_reached = Err(Refusal::NotReached);
    assert_eq!(
        guarded(1).await,
        [
            Err(Refusal::VersionMismatch),
            not_reached.clone(),
            not_reached
        ]
    );
    assert!(world.get(made[0].id).await.is_some());
    assert_eq!(
        guarded(0).await,
        [
            Ok(Answer::Put { version: 1 }),
            Err(Refusal::NotFound),
            Ok(Answer::Operated)
        ]
    );
}
