//! The `core.publish` step and workers of the Intent Protocol.

use std::time::Duration;

use consign_automation::runtime::{Runtime, SubmittedBy};
use consign_engine::Operator;
use consign_kernel::command::Settlement;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::{Outcome, ResultKind};
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use serde_json::json;

use crate::intents::{claimed, settle};
use crate::world::World;

const CONFIG: &str = "
service: {max_workers: 1}
plugins: {after: {}}
pipelines:
  - name: p
    on: start
    steps:
      - {id: ask, uses: core.publish, with: {goal: resize, namespace: images, max_attempts: 1}}
      - {id: then, uses: after}
";

fn world() -> World {
    let world = World::new();
    let keep = "open(here + '/got', 'w').write(json.dumps(request['event']['payload']))\nok()";
    world.python("after", "", keep);
    world
}

async fn started() -> (World, Runtime, IntentId) {
    let world = world();
    let runtime = world.start(CONFIG).await;
    let id = entered(&runtime).await;
    (world, runtime, id)
}

/// Starts another run of the pipeline; returns its first step.
async fn entered(runtime: &Runtime) -> IntentId {
    let jobs = runtime.run_pipeline("p", json!({"size": 3}), SubmittedBy::Api);
    jobs.await.unwrap()[0].id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_publishes_an_intent_and_goes_on_with_its_result() {
    let (world, runtime, id) = started().await;
    let intent = claimed(&world).await;
    assert_eq!(intent.payload, r#"{"size":3}"#);
    assert_eq!(intent.ties.parent, Some(id));
    // A waiting step uses no slot, so the only worker is free.
    let other = crate::world::run(&runtime, "after", "handle", json!({})).await;
    assert_eq!(world.ended(other).await.state, State::Acked);
    let result = Some(Outcome {
        kind: ResultKind::Json,
        body: r#"{"url":"x"}"#.to_owned(),
    });
    settle(&world, &intent, Settlement::Complete { result }).await;
    assert_eq!(world.ended(id).await.state, State::Acked);
    let next = world.engine.children(id, 10).await.unwrap();
    let next = next
        .iter()
        .find(|row| row.capability.as_deref() == Some("after"))
        .unwrap();
    assert_eq!(world.ended(next.id).await.state, State::Acked);
    let got: serde_json::Value = serde_json::from_str(&world.read("got")).unwrap();
    assert_eq!(got["result"], json!({"url": "x"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_intent_fails_the_step() {
    let (world, _runtime, id) = started().await;
    let intent = claimed(&world).await;
    let error = "no such image".to_owned();
    settle(&world, &intent, Settlement::Fail { error }).await;
    let failed = world.ended(id).await;
    assert_eq!(failed.state, State::Failed);
    assert!(failed.last_error.unwrap().contains("no such image"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_the_step_waits_for_the_same_intent() {
    let (world, first, id) = started().await;
    let intent = claimed(&world).await;
    first.stop(Duration::ZERO).await;
    let _second = world.start(CONFIG).await;
    world.until(id, |job| job.attempts == 2).await;
    settle(&world, &intent, Settlement::Complete { result: None }).await;
    assert_eq!(world.ended(id).await.state, State::Acked);
    let published = world.engine.children(id, 10).await.unwrap();
    let published = published
        .iter()
        .filter(|row| row.namespace == "images")
        .count();
    assert_eq!(published, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_step_takes_its_intent_back() {
    let (world, runtime, id) = started().await;
    let intent = claimed(&world).await;
    runtime.cancel(id, "not needed").await.unwrap();
    assert_eq!(world.ended(intent.id).await.state, State::DeadLetter);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_cancelled_while_no_service_runs_takes_its_intent_back_at_the_next_start() {
    let world = world();
    let first = world.start_mortal(CONFIG);
    let id = entered(&first.runtime).await;
    let open = claimed(&world).await;
    let done = entered(&first.runtime).await;
    let fulfilled = claimed(&world).await;
    first.die();
    for step in [id, done] {
        let (operator, reason) = (Operator::vouched(), "not needed");
        let cancelled = world
            .engine
            .cancel(operator, Face::Automation, step, reason)
            .await;
        cancelled.unwrap();
    }
    let how = Settlement::Complete { result: None };
    settle(&world, &fulfilled, how).await;
    assert_eq!(world.intent(open.id).await.state, State::Dispatched);
    let _second = world.start(CONFIG).await;
    assert_eq!(world.ended(open.id).await.state, State::DeadLetter);
    world.logged(done, 1).await;
    let fulfilled = world.intent(fulfilled.id).await;
    assert_eq!(fulfilled.state, State::Acked, "what is done stays done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_step_says_where_its_intent_goes() {
    let (world, runtime, _) = started().await;
    claimed(&world).await;
    let evil =
        json!({"namespace": "other", "goal": "steal", "timeout": "1ms", "intent": {"evil": 1}});
    let jobs = runtime.run_pipeline("p", evil, SubmittedBy::Webhook).await;
    jobs.unwrap();
    let intent = claimed(&world).await;
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&intent.payload).unwrap(),
        json!({"timeout": "1ms", "intent": {"evil": 1}}),
        "what the step does not name is payload"
    );
}
