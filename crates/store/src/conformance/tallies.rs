//! What a store tells for metrics: the steps of each commit, and since when the oldest row waits.

use std::sync::{Arc, Mutex};

use consign_kernel::command::NewIntent;
use consign_kernel::ids::SECOND_US;
use consign_kernel::profile::{Face, ProfileId};

use super::{World, in_face, item};
use crate::{RowStepKind, StepCounts, TypedReads as _, WaitKind, Waited};

pub async fn each_commit_tells_what_happened_to_whom(world: World) {
    let heard = Arc::new(Mutex::new((StepCounts::default(), Vec::new(), Vec::new())));
    let listening = Arc::clone(&heard);
    world.store.listen(Box::new(move |news| {
        let mut heard = listening.lock().expect("no panic");
        for (_, label) in news.steps.labels() {
            heard.0.add(&label.counts);
            heard.1.push((label.namespace.clone(), label.goal.clone()));
        }
        heard.2.extend(news.steps.waits.iter().copied());
    }));
    let two_tries = NewIntent {
        attempts_max: 2,
        backoff_us: 0,
        ..item()
    };
    world.publish(two_tries).await;
    world.clock.advance(2 * SECOND_US);
    let first = world.take("alice").await;
    world.clock.advance(SECOND_US);
    assert!(world.fail(&first, "no").await.is_ok());
    world.clock.advance(60 * SECOND_US);
    let second = world.take("alice").await;
    world.clock.advance(3 * SECOND_US);
    assert!(world.fail(&second, "no again").await.is_ok());
    world.publish(item()).await;
    let third = world.take("alice").await;
    world.clock.advance(4 * SECOND_US);
    assert!(world.complete(&third).await.is_ok());
    let (counts, labels, waits) = heard.lock().expect("no panic").clone();
    let told = RowStepKind::ALL.map(|kind| (kind.name(), counts.of(kind)));
    assert_eq!(
        told,
        [
            ("published", 2),
            ("claimed", 3),
            ("fulfilled", 1),
            ("failed", 2),
            ("retried", 1),
            ("expired", 0),
            ("dead", 1),
        ]
    );
    let label = ("default".to_owned(), "greet".to_owned());
    assert!(labels.iter().all(|told| *told == label), "{labels:?}");
    let waited = |kind, seconds| Waited {
        face: Face::Intent,
        kind,
        us: seconds * SECOND_US,
    };
    assert_eq!(
        waits,
        [
            waited(WaitKind::Claim, 2),
            waited(WaitKind::Settlement, 3),
            waited(WaitKind::Claim, 0),
            waited(WaitKind::Settlement, 4),
        ]
    );
}

pub async fn the_oldest_claimable_row_is_known_for_each_face(world: World) {
    let oldest = async |face| {
        let oldest = world.store.oldest_claimable(face, 100).await;
        oldest.expect("storage works")
    };
    assert_eq!(oldest(Face::Intent).await, None);
    let began = world.now();
    let delayed = NewIntent {
        delay_us: 1_000 * SECOND_US,
        ..item()
    };
    world.publish(delayed).await;
    assert_eq!(oldest(Face::Intent).await, None, "it is not due");
    world.publish(item()).await;
    world.clock.advance(SECOND_US);
    world.publish(item()).await;
    world.publish(in_face(ProfileId::Automation)).await;
    assert_eq!(oldest(Face::Intent).await, Some(began));
    assert_eq!(oldest(Face::Automation).await, Some(world.now()));
    assert_eq!(oldest(Face::Beam).await, None);
    world.take("alice").await;
    assert_eq!(
        oldest(Face::Intent).await,
        Some(world.now()),
        "the first is leased"
    );
}
