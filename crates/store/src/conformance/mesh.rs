//! Messages of a mesh: their once-keys, their deliveries, their ends, and what remains of them.

use consign_kernel::command::{
    Admit, Advance, Answer, Audience, Begin, Claim, Command, Forget, NewIntent, OnceGuard, Prune,
    Purge, Settlement,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, IntentId, Micros, SECOND_US, Seq};
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::once::{DedupeAnswer, FirstUse, OnceKey, Scope};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::MessageHistory;
use consign_kernel::state::{State, Verb};

use super::{World, in_face};
use crate::{EndingCount, LostMessagePage, TypedReads as _};

const MESH: &str = "mesh-1";
const UNDELIVERED_US: i64 = 7 * DAY_US;
const RETENTION_US: i64 = 30 * DAY_US;
const DEDUPE_US: i64 = 365 * DAY_US;

fn key(mesh: &str, id: &str) -> OnceKey {
    OnceKey {
        scope: Scope::MeshMessage,
        owner: mesh.to_owned(),
        key: id.to_owned(),
    }
}

/// A direct message from alice to bob, under an id of the client.
pub fn mesh_message(world: &World, number: u64, client_id: Option<&str>) -> Begin {
    Begin {
        id: IntentId::new(world.now(), Seq(number), u128::from(number)),
        item: NewIntent {
            namespace: MESH.to_owned(),
            goal: "dm".to_owned(),
            target: Some("bobs key".to_owned()),
            owner: format!("{MESH}/bob"),
            capability: client_id.map(str::to_owned),
            once: client_id.map(|id| OnceGuard {
                key: key(MESH, id),
                fingerprint: [7; 32],
                lifetime_us: DEDUPE_US,
            }),
            ties: Ties {
                sender: Some("alice".to_owned()),
                ..Ties::default()
            },
            delay_us: UNDELIVERED_US,
            ttl_us: RETENTION_US,
            ..in_face(ProfileId::MeshMessage)
        },
        hold: None,
        within: None,
        walk: Vec::new(),
        detail: None,
    }
}

async fn begin(world: &World, begin: Begin) -> Result<Intent, Refusal> {
    match world.step(Command::Begin(Box::new(begin))).await {
        Ok(Answer::Begun(row)) => Ok(*row),
        Err(refusal) => Err(refusal),
        other => panic!("a begin answered {other:?}"),
    }
}

async fn accepted(world: &World, number: u64, client_id: &str) -> Intent {
    let begun = begin(world, mesh_message(world, number, Some(client_id))).await;
    begun.expect("a new message is accepted")
}

fn delivery(message: &Intent, recipient: &str, priority: &str) -> NewIntent {
    NewIntent {
        namespace: message.namespace.clone(),
        goal: priority.to_owned(),
        owner: recipient.to_owned(),
        priority: 0,
        payload: "{}".to_owned(),
        ttl_us: UNDELIVERED_US,
        ties: Ties {
            parent: Some(message.id),
            ..Ties::default()
        },
        ..in_face(ProfileId::MeshDelivery)
    }
}

async fn admit(world: &World, item: NewIntent) -> IntentId {
    let admit = Admit {
        items: vec![item],
        cap: None,
    };
    match world.step(Command::Admit(admit)).await {
        Ok(Answer::Admitted(mut admitted)) => admitted.remove(0).id,
        other => panic!("an admission answered {other:?}"),
    }
}

async fn claim(world: &World, recipient: &str, priority: Option<&str>) -> Vec<Intent> {
    let claim = Claim {
        face: Face::Mesh,
        namespace: MESH.to_owned(),
        goal: priority.map(str::to_owned),
        holder: "node/start".to_owned(),
        audience: Audience::Publisher(recipient.to_owned()),
        worker_id: None,
        capabilities: Vec::new(),
        max: 9,
        lease_us: 30 * SECOND_US,
        grant: None,
    };
    match world.step(Command::Claim(claim)).await {
        Ok(Answer::Claimed(rows)) => rows,
        other => panic!("a claim answered {other:?}"),
    }
}

async fn first_use(world: &World, id: &str) -> Option<FirstUse> {
    let found = world.store.first_use(key(MESH, id)).await;
    found.expect("once-keys are read")
}

async fn answer(world: &World, id: &str) -> DedupeAnswer {
    let row = first_use(world, id).await.expect("the id is known");
    DedupeAnswer::parse(&row.answer).expect("the answer of a message")
}

async fn sweep(world: &World) {
    let sweep = consign_kernel::command::Sweep { limit: 100 };
    let swept = world.step(Command::Sweep(sweep)).await;
    assert!(matches!(swept, Ok(Answer::Swept { .. })), "{swept:?}");
}

async fn exists(world: &World, id: IntentId) -> bool {
    let found = world.store.intent(id).await;
    found.expect("rows are read").is_some()
}

pub async fn a_message_and_its_id_are_stored_together_or_not_at_all(world: World) {
    let first = accepted(&world, 1, "c-1").await;
    let used = first_use(&world, "c-1").await.expect("the id is known");
    assert_eq!(used.intent, Some(first.id));
    assert_eq!(used.fingerprint, [7; 32]);
    assert_eq!(used.until, world.now().plus(DEDUPE_US));
    let expected = DedupeAnswer {
        destination_kind: "dm".to_owned(),
        destination_ref: "bobs key".to_owned(),
        first_seen_at: world.now().0,
        history_available: true,
    };
    assert_eq!(answer(&world, "c-1").await, expected);

    world.clock.advance(SECOND_US);
    let again = begin(&world, mesh_message(&world, 2, Some("c-1"))).await;
    assert_eq!(again, Err(Refusal::AlreadyBegun { id: first.id }));
    let mut other = mesh_message(&world, 3, Some("c-1"));
    if let Some(guard) = &mut other.item.once {
        guard.fingerprint = [8; 32];
    }
    let conflict = begin(&world, other).await;
    assert_eq!(conflict, Err(Refusal::OnceConflict { index: 0 }));
    assert_eq!(answer(&world, "c-1").await, expected);

    // The id of a message is its own, and its destination one of the three.
    let mut foreign = mesh_message(&world, 4, Some("c-4"));
    foreign.item.capability = Some("another".to_owned());
    assert_eq!(begin(&world, foreign).await, Err(Refusal::IllegalState));
    let mut unknown = mesh_message(&world, 5, Some("c-5"));
    "nowhere".clone_into(&mut unknown.item.goal);
    assert_eq!(begin(&world, unknown).await, Err(Refusal::IllegalState));
    assert_eq!(first_use(&world, "c-4").await, None);
    assert_eq!(first_use(&world, "c-5").await, None);
    world.is_sound().await;
}

pub async fn an_id_without_end_is_never_forgotten(world: World) {
    let mut forever = mesh_message(&world, 1, Some("forever"));
    if let Some(guard) = &mut forever.item.once {
        guard.lifetime_us = i64::MAX;
    }
    assert!(begin(&world, forever).await.is_ok());
    accepted(&world, 2, "a year").await;
    accepted(&world, 3, "the same year").await;
    let used = first_use(&world, "forever").await.expect("it is known");
    assert_eq!(used.until, Micros::MAX);
    let forget = |ahead_us: i64, limit: u32| {
        let scope = Scope::MeshMessage;
        Command::Forget(Forget::OnceEnding {
            scope,
            ahead_us,
            limit,
        })
    };
    let forgotten = |rows: u64| Ok(Answer::Forgotten { rows });
    let early = world.step(forget(DEDUPE_US - 1, 9)).await;
    assert_eq!(early, forgotten(0));
    assert_eq!(world.step(forget(DEDUPE_US, 1)).await, forgotten(1));
    assert_eq!(first_use(&world, "a year").await, None);
    world.clock.advance(DEDUPE_US);
    let over = Command::Forget(Forget::Once {
        scope: Scope::MeshMessage,
        limit: 9,
    });
    assert_eq!(world.step(over).await, forgotten(1));
    assert!(first_use(&world, "forever").await.is_some());
    // A swept id is free again.
    accepted(&world, 4, "a year").await;
    let of_mesh = Command::Forget(Forget::OnceOf {
        owner: MESH.to_owned(),
    });
    assert_eq!(world.step(of_mesh).await, forgotten(2));
    assert_eq!(first_use(&world, "forever").await, None);
    world.is_sound().await;
}

pub async fn a_message_is_removed_at_its_end_and_its_id_says_so_cm_141(world: World) {
    let undelivered = accepted(&world, 1, "undelivered").await;
    let delivered = accepted(&world, 2, "delivered").await;
    let anonymous = begin(&world, mesh_message(&world, 3, None)).await;
    let anonymous = anonymous.expect("a message needs no id of its client");
    let deliver = Advance::by_system(delivered.id, Face::Mesh, Verb::Deliver);
    let step = Command::Advance(Box::new(deliver));
    assert_eq!(world.step(step.clone()).await, Ok(Answer::Operated));
    let second = world.step(step).await;
    assert_eq!(second, Err(Refusal::IllegalState), "it writes nothing");
    let of_delivered = world.store.facts(delivered.seq, 9).await.expect("facts");
    assert_eq!(of_delivered.len(), 2);
    world.is_sound().await;

    world.clock.advance(UNDELIVERED_US - 1);
    sweep(&world).await;
    assert!(exists(&world, undelivered.id).await);
    world.clock.advance(1);
    sweep(&world).await;
    assert!(!exists(&world, undelivered.id).await);
    assert!(!exists(&world, anonymous.id).await);
    assert!(exists(&world, delivered.id).await);
    assert!(!answer(&world, "undelivered").await.history_available);
    assert!(answer(&world, "delivered").await.history_available);
    let again = begin(&world, mesh_message(&world, 4, Some("undelivered"))).await;
    assert_eq!(again, Err(Refusal::AlreadyBegun { id: undelivered.id }));

    world.clock.advance(RETENTION_US - UNDELIVERED_US);
    sweep(&world).await;
    assert!(!exists(&world, delivered.id).await);
    assert!(!answer(&world, "delivered").await.history_available);
    world.is_sound().await;
}

pub async fn the_end_of_a_later_message_does_not_touch_an_id_that_was_used_again(world: World) {
    let mut brief = mesh_message(&world, 1, Some("again"));
    if let Some(guard) = &mut brief.item.once {
        guard.lifetime_us = DAY_US;
    }
    let first = begin(&world, brief)
        .await
        .expect("a new message is accepted");
    world.clock.advance(DAY_US);
    let second = accepted(&world, 2, "again").await;
    world.clock.advance(UNDELIVERED_US - DAY_US);
    sweep(&world).await;
    assert!(!exists(&world, first.id).await);
    assert!(exists(&world, second.id).await);
    assert!(answer(&world, "again").await.history_available);
    world.is_sound().await;
}

pub async fn messages_are_pruned_for_a_time_ahead(world: World) {
    for number in 1..=3 {
        let row = accepted(&world, number, &format!("c-{number}")).await;
        admit(&world, delivery(&row, "bob", "next")).await;
    }
    let until = world.now().plus(UNDELIVERED_US);
    let ending = world.store.mesh_ending(until.minus(1)).await;
    assert_eq!(ending.expect("a count"), EndingCount::default());
    let ending = world.store.mesh_ending(until).await;
    let expected = EndingCount {
        messages: 3,
        keys: 0,
    };
    assert_eq!(ending.expect("a count"), expected);
    let ending = world.store.mesh_ending(world.now().plus(DEDUPE_US)).await;
    assert_eq!(ending.expect("a count").keys, 3);
    let prune = |until: Micros, limit: u32| {
        Command::Prune(Prune {
            face: Face::Mesh,
            until,
            limit,
        })
    };
    let pruned = |messages, others, more| {
        Ok(Answer::Pruned {
            messages,
            others,
            more,
        })
    };
    assert_eq!(
        world.step(prune(until.minus(1), 9)).await,
        pruned(0, 0, false)
    );
    assert_eq!(world.step(prune(until, 2)).await, pruned(2, 0, true));
    assert_eq!(world.step(prune(until, 9)).await, pruned(1, 3, false));
    for number in 1..=3 {
        let answer = answer(&world, &format!("c-{number}")).await;
        assert!(!answer.history_available);
    }
    world.is_sound().await;
}

pub async fn history_says_who_sent_a_message_as_long_as_its_id_is_known(world: World) {
    let row = accepted(&world, 1, "c-1").await;
    let key = MessageHistory::key(MESH, row.id);
    let record = world.store.record(key).await.expect("records are read");
    let record = record.expect("the message has a history");
    let expected = format!(
        r#"{{"sender":"alice","seq":{},"created_at":{},"client_message_id":"c-1"}}"#,
        row.seq.0, row.created_at.0
    );
    assert_eq!(record.value, expected);
    assert_eq!(record.expires_at, Some(world.now().plus(DEDUPE_US)));
    world.is_sound().await;
}

pub async fn a_delivery_waits_for_its_recipient_and_keeps_its_place(world: World) {
    let first = accepted(&world, 1, "c-1").await;
    let second = accepted(&world, 2, "c-2").await;
    let early = admit(&world, delivery(&first, "bob", "next")).await;
    world.clock.advance(1);
    let late = admit(&world, delivery(&second, "bob", "now")).await;
    admit(&world, delivery(&first, "carol", "now")).await;

    let ids = |rows: &[Intent]| rows.iter().map(|row| row.id).collect::<Vec<_>>();
    let urgent = claim(&world, "bob", Some("now")).await;
    assert_eq!(ids(&urgent), [late]);
    let rest = claim(&world, "bob", None).await;
    assert_eq!(ids(&rest), [early]);
    let parents = vec![first.id, second.id, IntentId([9; 16])];
    let mut messages = world.store.intents_by_id(parents).await.expect("rows");
    messages.sort_by_key(|row| row.seq);
    assert_eq!(ids(&messages), [first.id, second.id]);
    let acked = world
        .settle(&urgent[0], Settlement::Complete { result: None })
        .await;
    assert!(acked.is_ok(), "{acked:?}");

    // The lease of the first one ends; a third message is admitted meanwhile.
    let third = admit(&world, delivery(&second, "bob", "next")).await;
    world.clock.advance(30 * SECOND_US);
    let again = claim(&world, "bob", None).await;
    assert_eq!(ids(&again), [early, third], "it has kept its place");
    assert_eq!(again[0].attempts, 2);
    let given_back = world.settle(&again[1], Settlement::GiveBack).await;
    assert!(given_back.is_ok(), "{given_back:?}");
    world.is_sound().await;
}

pub async fn a_recipient_acknowledges_after_its_lease_has_ended(world: World) {
    let message = accepted(&world, 1, "c-1").await;
    let id = admit(&world, delivery(&message, "bob", "next")).await;
    let ack = || Command::Advance(Box::new(Advance::by_system(id, Face::Mesh, Verb::Complete)));
    let held = claim(&world, "bob", None).await;
    assert_eq!(world.step(ack()).await, Err(Refusal::IllegalState));
    world.clock.advance(30 * SECOND_US);
    let late = world
        .settle(&held[0], Settlement::Complete { result: None })
        .await;
    assert_eq!(late, Err(Refusal::LeaseLost));
    sweep(&world).await;
    assert_eq!(world.step(ack()).await, Ok(Answer::Operated));
    assert_eq!(world.load(id).await.state, State::Acked);
    assert_eq!(world.step(ack()).await, Ok(Answer::Operated));
    assert!(claim(&world, "bob", None).await.is_empty());
    world.is_sound().await;
}

pub async fn what_no_recipient_takes_is_dropped_after_its_time(world: World) {
    let message = accepted(&world, 1, "c-1").await;
    let waiting = admit(&world, delivery(&message, "bob", "next")).await;
    let leased = admit(&world, delivery(&message, "carol", "next")).await;
    world.clock.advance(UNDELIVERED_US - 1);
    assert_eq!(claim(&world, "carol", None).await.len(), 1);
    world.clock.advance(1);
    assert!(claim(&world, "bob", None).await.is_empty());
    assert!(!exists(&world, waiting).await);
    assert!(
        exists(&world, leased).await,
        "its recipient may acknowledge"
    );
    world.clock.advance(30 * SECOND_US);
    sweep(&world).await;
    sweep(&world).await;
    assert!(!exists(&world, leased).await);
    world.is_sound().await;
}

pub async fn an_item_of_a_named_queue_is_work_like_an_intent(world: World) {
    let message = accepted(&world, 1, "c-1").await;
    let item = NewIntent {
        namespace: "mesh.builds".to_owned(),
        owner: MESH.to_owned(),
        public: true,
        ties: Ties {
            parent: Some(message.id),
            ..Ties::default()
        },
        ttl_us: RETENTION_US,
        attempts_max: 2,
        ..in_face(ProfileId::MeshQueue)
    };
    let id = admit(&world, item).await;
    let take = async |holder: &str| {
        let claim = Claim {
            face: Face::Mesh,
            namespace: "mesh.builds".to_owned(),
            ..super::claim_by(holder)
        };
        match world.step(Command::Claim(claim)).await {
            Ok(Answer::Claimed(mut rows)) => rows.pop(),
            other => panic!("a claim answered {other:?}"),
        }
    };
    assert!(take("worker").await.is_some());
    world.clock.advance(60 * SECOND_US);
    let taken_over = take("another worker")
        .await
        .expect("a lease that ran out is taken");
    assert_eq!((taken_over.id, taken_over.attempts), (id, 2));
    let error = "no".to_owned();
    let failed = world.settle(&taken_over, Settlement::Fail { error }).await;
    assert!(failed.is_ok(), "{failed:?}");
    assert_eq!(world.load(id).await.state, State::DeadLetter);
    world.is_sound().await;
}

pub async fn a_key_without_its_message_is_found_and_corrected_cm_075(world: World) {
    for number in 1..=4 {
        accepted(&world, number, &format!("c-{number}")).await;
    }
    let look = async |after: &str, limit: u32| {
        let after = (MESH.to_owned(), after.to_owned());
        let page = world.store.lost_messages(after, limit).await;
        page.expect("keys are read")
    };
    let intact = LostMessagePage {
        checked: 4,
        lost: Vec::new(),
        next: None,
    };
    assert_eq!(look("", 9).await, intact);
    let page = look("", 3).await;
    assert_eq!((page.checked, page.lost.len()), (3, 0));
    assert_eq!(page.next, Some((MESH.to_owned(), "c-3".to_owned())));
    assert_eq!(look("c-3", 3).await.checked, 1);

    let removed = world
        .step(Command::Purge(Purge {
            face: Face::Mesh,
            namespace: Some(MESH.to_owned()),
            after: Seq(0),
            limit: 100,
        }))
        .await;
    assert!(matches!(removed, Ok(Answer::Purged { rows: 4, .. })));
    assert_eq!(look("", 9).await, intact, "a removal is noted");
    let forget = Forget::LostMessages {
        keys: vec![key(MESH, "c-1"), key(MESH, "unknown")],
    };
    let corrected = world.step(Command::Forget(forget)).await;
    assert_eq!(corrected, Ok(Answer::Forgotten { rows: 0 }));
    world.is_sound().await;
}
