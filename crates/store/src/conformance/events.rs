//! The stream of facts: visibility, order, and the position that was read.

use consign_kernel::command::{Answer, Command, ForgetFacts, NewIntent, Purge};
use consign_kernel::ids::{DAY_US, FactSeq, Seq};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::Verb;

use super::{World, claim_by, in_face, item};
use crate::{EventFilter, EventPage, TypedReads as _};

async fn read(world: &World, owner: &str, after: FactSeq, limit: u32) -> EventPage {
    let filter = EventFilter {
        face: Face::Intent,
        owner: owner.to_owned(),
        after,
        limit,
    };
    world.store.events(filter).await.expect("storage works")
}

/// The numbers of all facts. They increase; gaps are allowed.
async fn numbers(world: &World) -> Vec<FactSeq> {
    let dump = world.store.dump().await.expect("storage works");
    dump.facts.iter().map(|fact| fact.seq).collect()
}

fn bobs() -> NewIntent {
    NewIntent {
        owner: "bob".to_owned(),
        ..item()
    }
}

pub async fn events_come_in_order_with_what_a_reader_needs(world: World) {
    let id = world.publish(item()).await;
    world.take("alice").await;
    let page = read(&world, "alice", FactSeq(0), 10).await;
    let told: Vec<_> = page
        .events
        .iter()
        .map(|event| (event.fact.seq, event.fact.verb, event.id))
        .collect();
    let numbers = numbers(&world).await;
    assert_eq!(
        told,
        [(numbers[0], Verb::Admit, id), (numbers[1], Verb::Claim, id)]
    );
    assert_eq!(page.events[0].namespace, "default");
    assert_eq!(page.events[0].goal, "greet");
    assert_eq!((page.seen, page.more), (numbers[1], false));
    assert_eq!(world.store.stats().last_fact, numbers[1]);
}

pub async fn no_fact_has_a_number_beyond_the_highest(world: World) {
    let highest = async || world.store.highest_fact().await.expect("storage works");
    world.publish(item()).await;
    let told = numbers(&world).await[0];
    let first = highest().await;
    assert!(first >= told, "{first:?}");
    assert!(first >= world.store.last_fact().await.expect("storage works"));
    assert!(first < FactSeq(told.0 + 1_000_000), "{first:?}");
    world.clock.advance(DAY_US);
    assert_eq!(forget(&world, FactSeq(0), 5).await, (1, None));
    assert!(highest().await >= told, "forgotten, and given out");
    world.publish(item()).await;
    assert!(highest().await >= numbers(&world).await[0]);
}

pub async fn a_reader_sees_its_own_events_and_passes_the_others(world: World) {
    world.publish(bobs()).await;
    let own = world.publish(item()).await;
    world.publish(in_face(ProfileId::Automation)).await;
    world.publish(bobs()).await;
    let numbers = numbers(&world).await;
    let first = read(&world, "alice", FactSeq(0), 1).await;
    assert_eq!(first.events.len(), 1, "it steps over what is not its own");
    assert_eq!(first.events[0].id, own);
    assert_eq!((first.seen, first.more), (numbers[1], true));
    // The reader's own row of another face is scanned, not returned.
    let second = read(&world, "alice", first.seen, 2).await;
    assert_eq!(
        (second.events.len(), second.seen, second.more),
        (0, numbers[2], false)
    );
    let end = read(&world, "alice", second.seen, 2).await;
    assert_eq!(
        (end.events.len(), end.seen, end.more),
        (0, numbers[2], false)
    );
}

pub async fn an_operator_reads_the_facts_of_all_owners_and_faces(world: World) {
    let bobs = world.publish(bobs()).await;
    let own = world.publish(item()).await;
    let job = world.publish(in_face(ProfileId::Automation)).await;
    let read = async |face, after, limit| {
        let page = world.store.all_events(face, after, limit).await;
        let page = page.expect("storage works");
        let ids: Vec<_> = page.events.iter().map(|event| event.id).collect();
        (ids, page.seen, page.more)
    };
    let numbers = numbers(&world).await;
    assert_eq!(
        read(None, FactSeq(0), 10).await,
        (vec![bobs, own, job], numbers[2], false)
    );
    assert_eq!(
        read(None, numbers[0], 1).await,
        (vec![own], numbers[1], true)
    );
    assert_eq!(
        read(Some(Face::Automation), FactSeq(0), 10).await,
        (vec![job], numbers[2], false)
    );
}

pub async fn a_position_beyond_the_end_is_answered_with_itself(world: World) {
    world.publish(item()).await;
    let far = FactSeq(u64::MAX >> 1);
    let page = read(&world, "alice", far, 10).await;
    assert_eq!((page.events.len(), page.seen, page.more), (0, far, false));
}

pub async fn facts_of_a_removed_intent_stay_but_are_not_streamed(world: World) {
    let id = world.publish(item()).await;
    let row = world.load(id).await;
    let purge = Purge {
        face: Face::Intent,
        namespace: None,
        after: Seq(0),
        limit: 10,
    };
    assert!(world.step(Command::Purge(purge)).await.is_ok());
    let page = read(&world, "alice", FactSeq(0), 10).await;
    assert_eq!(
        (page.events.len(), page.seen),
        (0, numbers(&world).await[0])
    );
    let dump = world.store.dump().await.expect("storage works");
    assert_eq!(dump.facts.len(), 1);
    assert_eq!(world.verbs(&row).await, [], "histories are those of rows");
}

pub async fn old_facts_are_forgotten_and_their_numbers_never_used_again(world: World) {
    world.publish(item()).await;
    world.publish(item()).await;
    let before = numbers(&world).await;
    world.clock.advance(DAY_US);
    assert_eq!(forget(&world, FactSeq(0), 1).await, (1, Some(before[0])));
    assert_eq!(forget(&world, before[0], 5).await, (1, None));
    assert_eq!(forget(&world, FactSeq(0), 5).await, (0, None));
    let fresh = world.publish(item()).await;
    let not_old_enough = forget(&world, FactSeq(0), 1).await;
    assert_eq!(not_old_enough, (0, None));
    let page = read(&world, "alice", FactSeq(0), 10).await;
    let told: Vec<_> = page.events.iter().map(|event| event.id).collect();
    assert_eq!(told, [fresh]);
    assert!(page.events[0].fact.seq > before[1]);
}

/// Deletes facts older than now among the next `limit` facts; returns their number and the position to continue from.
async fn forget(world: &World, after: FactSeq, limit: u32) -> (u64, Option<FactSeq>) {
    let forget = ForgetFacts {
        face: Face::Intent,
        before: world.now(),
        after,
        limit,
    };
    match world.step(Command::ForgetFacts(forget)).await {
        Ok(Answer::FactsForgotten { rows, after }) => (rows, after),
        other => panic!("forgetting facts answered {other:?}"),
    }
}

pub async fn a_face_forgets_its_own_facts_and_keeps_the_others(world: World) {
    let other = world.publish(in_face(ProfileId::MeshOutbox)).await;
    world.publish(item()).await;
    world.clock.advance(DAY_US);
    assert_eq!(forget(&world, FactSeq(0), 5).await, (1, None));
    let other = world.load(other).await;
    assert_eq!(world.verbs(&other).await, [Verb::Admit], "it is kept");
}

pub async fn a_piece_of_forgetting_looks_at_no_more_facts_than_it_may(world: World) {
    for _ in 0..4 {
        world.publish(in_face(ProfileId::MeshOutbox)).await;
    }
    world.publish(item()).await;
    world.clock.advance(DAY_US);
    world.publish(in_face(ProfileId::MeshOutbox)).await;
    let facts = numbers(&world).await;
    assert_eq!(forget(&world, FactSeq(0), 2).await, (0, Some(facts[1])));
    assert_eq!(forget(&world, facts[1], 2).await, (0, Some(facts[3])));
    let young = "one is not old enough, so neither are those behind it";
    assert_eq!(forget(&world, facts[3], 2).await, (1, None), "{young}");
}

pub async fn a_step_that_changes_nothing_tells_nothing(world: World) {
    world.publish(item()).await;
    assert_eq!(world.claim(claim_by("bob")).await, []);
    assert!(world.complete(&fake(&world).await).await.is_err());
    assert_eq!(world.store.stats().last_fact, numbers(&world).await[0]);
}

/// A row with a made-up lease.
async fn fake(world: &World) -> consign_kernel::intent::Intent {
    let dump = world.store.dump().await.expect("storage works");
    let mut row = dump.intents[0].clone();
    row.holder = Some("alice".to_owned());
    row.token = Some(consign_kernel::ids::Token([0; 16]));
    row
}
