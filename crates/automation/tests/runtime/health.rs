//! A service that cannot claim jobs reports it, and runs them later.

use std::time::{Duration, Instant};

use consign_automation::runtime::Runtime;
use consign_kernel::state::State;
use consign_testkit::ledger::Claims;
use serde_json::Value;

use crate::world::{OK, PATIENCE, World, run};

/// Waits until the service reports this reason.
async fn says(runtime: &Runtime, wanted: &str) {
    let began = Instant::now();
    loop {
        let said = runtime.unhealthy_reason().await.unwrap_or_default();
        if said.contains(wanted) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "it says: {said}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_that_is_refused_or_panics_makes_the_service_unwell_and_goes_on_later() {
    let world = World::new();
    world.plugin("quick", OK);
    let runtime = world.start("").await;
    assert_eq!(runtime.unhealthy_reason().await, None);
    for (claims, said) in [
        (Claims::Panic, "the dispatcher is not running"),
        (Claims::Refused, "the ledger refuses claims"),
    ] {
        world.obstacles.let_claims(claims).await;
        let id = run(&runtime, "quick", "poll", Value::Null).await;
        says(&runtime, said).await;
        assert_eq!(world.intent(id).await.state, State::Queued);
        world.obstacles.let_claims(Claims::Pass).await;
        assert_eq!(world.ended(id).await.state, State::Acked);
    }
}
