//! Outlines (jobs without their payload): lists, counts, children, and a search by a name in the payload.

use consign_kernel::command::{Audience, Claim, NewIntent};
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::Ties;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;

use super::ties::failing;
use super::{World, claim_by, in_face, item};
use crate::{IntentFilter, Outline, TypedReads as _};

fn job() -> NewIntent {
    in_face(ProfileId::Automation)
}

fn claim_of(capability: &str) -> Claim {
    Claim {
        face: Face::Automation,
        audience: Audience::Publisher(job().owner),
        capabilities: vec![capability.to_owned()],
        ..claim_by("runner")
    }
}

pub async fn what_waits_and_runs_is_outlined_oldest_first_and_counted(world: World) {
    let work = |capability: &str, delay_us: i64| NewIntent {
        capability: Some(capability.to_owned()),
        delay_us,
        ..job()
    };
    let mut made = Vec::new();
    // Sorted by capability they would have another order.
    for (capability, delay_us) in [("b", 0), ("a", SECOND_US), ("b", 0), ("a", 0)] {
        made.push(world.publish(work(capability, delay_us)).await);
    }
    world.publish(item()).await;
    let held = world.claim(claim_of("b")).await.remove(0);
    let queue = async |state: Option<State>, limit: u32| -> Vec<IntentId> {
        let queue = world
            .store
            .jobs_by_state(state, limit)
            .await
            .expect("works");
        queue.iter().map(|job| job.id).collect()
    };
    assert_eq!(queue(None, 10).await, made);
    assert_eq!(queue(None, 2).await, made[..2]);
    assert_eq!(queue(Some(State::Queued), 10).await, made[1..]);
    assert_eq!(queue(Some(State::Dispatched), 10).await, [held.id]);
    let counted = async || {
        let work = world.store.job_counts(world.now()).await.expect("works");
        let each = work.into_iter();
        each.map(|of| (of.capability, of.queued, of.delayed, of.running))
            .collect::<Vec<_>>()
    };
    let of = |name: &str| Some(name.to_owned());
    assert_eq!(counted().await, [(of("a"), 2, 1, 0), (of("b"), 1, 0, 1)]);
    world.complete(&held).await.expect("it is held");
    world.clock.advance(SECOND_US);
    assert_eq!(queue(None, 10).await, made[1..]);
    assert_eq!(counted().await, [(of("a"), 2, 0, 0), (of("b"), 1, 0, 0)]);
}

pub async fn an_outline_is_the_row_without_what_it_carries(world: World) {
    for n in 0..3 {
        let row = NewIntent {
            goal: format!("goal {n}"),
            capability: Some("a\0b".to_owned()),
            ..job()
        };
        world.publish(row).await;
    }
    world.publish(item()).await;
    let held = world.claim(claim_of("a\0b")).await.remove(0);
    assert!(world.settle(&held, failing(false, true)).await.is_ok());
    let held = world.claim(claim_of("a\0b")).await.remove(0);
    assert!(world.complete(&held).await.is_ok());
    world.claim(claim_of("a\0b")).await.remove(0);
    let filter = |before, limit| IntentFilter {
        face: Face::Automation,
        owner: None,
        namespace: None,
        goal: None,
        state: None,
        before,
        limit,
    };
    for owner in [None, Some(job().owner)] {
        let mut before = None;
        loop {
            let filter = IntentFilter {
                owner: owner.clone(),
                ..filter(before, 2)
            };
            let whole = world.store.intents(filter.clone()).await.expect("works");
            let page = world.store.outlines(filter).await.expect("works");
            let expected: Vec<Outline> = whole.intents.iter().map(Outline::from).collect();
            assert_eq!((page.outlines, page.next), (expected, whole.next));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
    }
    let wanted = IntentFilter {
        goal: Some("goal 1".to_owned()),
        ..filter(None, 9)
    };
    let page = world.store.outlines(wanted).await.expect("works");
    assert_eq!(page.outlines.len(), 1);
}

pub async fn a_job_is_found_by_what_its_payload_names(world: World) {
    let naming = |name: &str, parent: Option<IntentId>| NewIntent {
        payload: format!(r#"{{"run":"{name}"}}"#),
        ties: Ties {
            parent,
            series: None,
            sender: None,
        },
        ..job()
    };
    let first = world.publish(naming("one", None)).await;
    let second = world.publish(naming("two", Some(first))).await;
    let third = world.publish(naming("one", Some(first))).await;
    let other = NewIntent {
        profile: ProfileId::Intent,
        ..naming("three", Some(first))
    };
    world.publish(other).await;
    let found = async |text: &str, after: IntentId, among: u32| {
        let text = format!(r#""run":"{text}""#);
        let found = world.store.find_job_by_payload(text, after, among);
        found.await.expect("works").map(|job| job.id)
    };
    let start = IntentId([0; 16]);
    assert_eq!(found("one", start, 9).await, Some(first));
    assert_eq!(found("one", first, 9).await, Some(third));
    assert_eq!(found("one", first, 1).await, None, "only one is looked at");
    assert_eq!(found("two", start, 9).await, Some(second));
    assert_eq!(found("three", start, 9).await, None, "it is no job");
    let children = async |limit: u32| -> Vec<IntentId> {
        let children = world.store.child_jobs(first, limit).await;
        let children = children.expect("works");
        children.iter().map(|job| job.id).collect()
    };
    assert_eq!(children(9).await, [second, third]);
    assert_eq!(children(1).await, [second]);
}
