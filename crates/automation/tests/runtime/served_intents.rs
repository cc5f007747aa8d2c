//! A plugin that serves a goal of the Intent Protocol.

use std::fs;
use std::time::{Duration, Instant};

use consign_automation::runtime::{SubmittedBy, job_id};
use consign_engine::Operator;
use consign_kernel::command::NewIntent;
use consign_kernel::profile::Face;
use consign_kernel::state::{State, Verb};
use serde_json::{Value, json};

use crate::intents::{details, left, publish, wanted};
use crate::world::{OK, WAITS, World};

const CONFIG: &str = "
service: {tick_interval: 100ms}
plugins: {resize: {parallelism: 1, serves: [{goal: resize, namespace: images}]}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_fulfils_an_intent_in_the_commit_that_ends_its_job() {
    let world = World::new();
    world.python(
        "resize",
        "",
        "open(here + '/request', 'w').write(json.dumps(request))\n\
         ok(result='small', events=[{'type': 'image.resized', 'payload': {'url': 'x'}}])",
    );
    let runtime = world.start(CONFIG).await;
    let id = publish(&world, wanted(&json!({"size": 3}))).await;
    let intent = world.ended(id).await;
    assert_eq!((intent.state, intent.attempts), (State::Acked, 1));
    let (job, row) = world.jobs("resize").await.remove(0);
    let result: Value = serde_json::from_str(&intent.result.as_ref().unwrap().body).unwrap();
    // The protocol copies the result into each event.
    let event = json!({"url": "x", "result": "small"});
    let events = json!([{"type": "image.resized", "payload": event}]);
    assert_eq!(
        result,
        json!({"job_id": job_id(row.id), "result": "small", "events": events})
    );
    assert_eq!((row.state, row.attempts_max), (State::Acked, 1));
    assert_eq!(row.settled_at, intent.settled_at, "two commits");
    assert_eq!(job.submitted_by, SubmittedBy::Intent);
    let shown = runtime.job(row.id).await.unwrap().unwrap();
    assert_eq!(shown.intent_id, Some(id.to_string()));
    let request: Value = serde_json::from_str(&world.read("request")).unwrap();
    let event = &request["event"];
    assert_eq!(
        (&event["type"], &event["payload"], &event["event_id"]),
        (
            &json!("intent.resize"),
            &json!({"size": 3}),
            &json!(id.to_string())
        )
    );
    let told = json!({"id": id.to_string(), "goal": "resize", "namespace": "images", "attempt": 1});
    assert_eq!(request["context"]["ductile_intent"], told);
    let facts = world.engine.timeline(intent.seq).await.unwrap();
    let workers = facts.iter().filter_map(|fact| fact.worker.as_deref());
    assert!(workers.clone().count() >= 2, "claimed and completed");
    assert!(workers.clone().all(|worker| worker == "automation"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_costs_the_intent_an_attempt_and_the_job_has_only_one() {
    let world = World::new();
    let body = format!("if [ ! -e $here/tried ]; then touch $here/tried; exit 1; fi; {OK}");
    world.plugin("resize", &body);
    let _runtime = world.start(CONFIG).await;
    let id = publish(&world, wanted(&json!({}))).await;
    let intent = world.ended(id).await;
    assert_eq!((intent.state, intent.attempts), (State::Acked, 2));
    let jobs = world.jobs("resize").await;
    let states: Vec<State> = jobs.iter().map(|(_, row)| row.state).collect();
    assert_eq!(states, [State::DeadLetter, State::Acked]);
    let failures = details(&world, &intent, Verb::Fail).await;
    let named = format!("job {}: ", job_id(jobs[0].1.id));
    assert!(failures[0].starts_with(&named), "{failures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_rules_out_a_retry_ends_the_intent_and_its_job_cannot_be_run_for_it_again() {
    let world = World::new();
    let body =
        r#"echo x >> $here/runs; echo '{"status":"error","error":"no image","retry":false}'"#;
    world.plugin("resize", body);
    let runtime = world.start(CONFIG).await;
    let id = publish(&world, wanted(&json!({}))).await;
    let intent = world.ended(id).await;
    assert_eq!((intent.state, intent.attempts), (State::DeadLetter, 1));
    assert!(intent.last_error.unwrap().contains("no image"));
    let (_, row) = world.jobs("resize").await.remove(0);
    assert_eq!(row.state, State::Failed);
    runtime.retry(row.id, "try again").await.unwrap();
    let again = world.ended(row.id).await;
    assert!(
        again
            .last_error
            .unwrap()
            .contains("no longer holds the lease")
    );
    assert_eq!(world.read("runs"), "x\n", "it ran without a lease");
    // Retrying the intent creates another job.
    let operator = Operator::vouched();
    world
        .engine
        .requeue(operator, Face::Intent, id, "mended")
        .await
        .unwrap();
    world.jobs_are("resize", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_whose_job_died_with_the_service_is_served_again() {
    let world = World::new();
    let body = format!("if [ ! -e $here/began ]; then touch $here/began; sleep 60; fi; {OK}");
    world.plugin("resize", &body);
    let first = world.start(CONFIG).await;
    let id = publish(&world, wanted(&json!({}))).await;
    world.until(id, |_| world.path("began").exists()).await;
    // For the ledger, the service is gone.
    first.stop(Duration::ZERO).await;
    let _second = world.start(CONFIG).await;
    let intent = world.ended(id).await;
    assert_eq!((intent.state, intent.attempts), (State::Acked, 2));
    let jobs = world.jobs("resize").await;
    assert_eq!(jobs.len(), 2);
    // The second started when the first was over, long before the lease would have ended.
    let (first, second) = (&jobs[0].1, &jobs[1].1);
    assert_eq!(first.state, State::DeadLetter);
    assert!(first.settled_at.unwrap() <= second.created_at);
    let failures = details(&world, &intent, Verb::Fail).await;
    assert!(
        failures[0].contains("the process that ran it ended"),
        "{failures:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_cancelled_meanwhile_stays_so_and_the_job_has_its_own_end() {
    let world = World::new();
    let body = format!("{WAITS}{OK}");
    world.plugin("resize", &body);
    let _runtime = world.start(CONFIG).await;
    let id = publish(&world, wanted(&json!({}))).await;
    world.until(id, |_| world.path("began").exists()).await;
    let operator = Operator::vouched();
    world
        .engine
        .cancel(operator, Face::Intent, id, "not needed")
        .await
        .unwrap();
    fs::write(world.path("go"), "").unwrap();
    let (_, row) = world.jobs("resize").await.remove(0);
    assert_eq!(world.ended(row.id).await.state, State::Acked);
    assert_eq!(world.logged(row.id, 1).await.status.as_str(), "succeeded");
    let intent = world.intent(id).await;
    assert_eq!(intent.state, State::DeadLetter);
    assert_eq!(intent.last_error.as_deref(), Some("not needed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_kept_and_a_job_that_lost_its_own_is_ended() {
    let world = World::new();
    world.plugin("resize", "sleep 60");
    let config = "service: {max_workers: 2}\nplugins: {resize: {serves: [{goal: resize, namespace: images}]}}";
    let _runtime = world.start(config).await;
    let id = publish(&world, wanted(&json!({}))).await;
    let kept = publish(&world, wanted(&json!({}))).await;
    let jobs = world.jobs_are("resize", 2).await;
    for (_, row) in &jobs {
        world
            .until(row.id, |row| row.state == State::Dispatched)
            .await;
    }
    let operator = Operator::vouched();
    world
        .engine
        .cancel(operator, Face::Intent, id, "not needed")
        .await
        .unwrap();
    let ended = world.ended(jobs[0].1.id).await;
    assert_eq!(ended.state, State::DeadLetter);
    assert!(
        ended
            .last_error
            .unwrap()
            .contains("was cancelled or claimed by another worker")
    );
    // Extended when it was queued, when it started, and once since.
    let kept = world.intent(kept).await;
    assert_eq!(details(&world, &kept, Verb::Extend).await.len(), 3);
    assert_eq!(kept.state, State::Dispatched);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_plugin_leaves_intents_to_others() {
    let world = World::new();
    let body = format!("{WAITS}{OK}");
    world.plugin("resize", &body);
    let _runtime = world.start(CONFIG).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(publish(&world, wanted(&json!({}))).await);
    }
    world.until(ids[0], |_| world.path("began").exists()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.jobs("resize").await.len(), 1);
    let elsewhere = left(&world, 1).await;
    assert_eq!(elsewhere[0].id, ids[1]);
    fs::write(world.path("go"), "").unwrap();
    let began = Instant::now();
    assert_eq!(world.ended(ids[2]).await.state, State::Acked);
    assert!(began.elapsed() < Duration::from_secs(4), "nobody woke it");
    assert_eq!(world.intent(ids[1]).await.state, State::Dispatched);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_the_operator_could_claim_is_taken() {
    let world = World::new();
    world.plugin("resize", OK);
    let _runtime = world.start(CONFIG).await;
    let theirs = |public: bool| NewIntent {
        owner: "k_0123456789abcdef".to_owned(),
        public,
        ..wanted(&json!({}))
    };
    let private = publish(&world, theirs(false)).await;
    let elsewhere = NewIntent {
        namespace: "default".to_owned(),
        ..wanted(&json!({}))
    };
    let elsewhere = publish(&world, elsewhere).await;
    let special = NewIntent {
        capability: Some("gpu".to_owned()),
        ..wanted(&json!({}))
    };
    let special = publish(&world, special).await;
    let meant = NewIntent {
        target: Some("automation".to_owned()),
        ..wanted(&json!({}))
    };
    let meant = publish(&world, meant).await;
    let public = publish(&world, theirs(true)).await;
    for id in [meant, public] {
        assert_eq!(world.ended(id).await.state, State::Acked);
    }
    for id in [private, elsewhere, special] {
        assert_eq!(world.intent(id).await.state, State::Queued);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_changes_what_is_served() {
    let world = World::new();
    world.plugin("resize", OK);
    let runtime = world.start("plugins: {resize: {}}").await;
    let id = publish(&world, wanted(&json!([1]))).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.intent(id).await.state, State::Queued);
    let with_capability = "plugins: {resize: {serves: [{goal: resize, namespace: images, command: work, capability: gpu}]}}";
    runtime
        .reload(world.program(with_capability))
        .await
        .unwrap();
    assert_eq!(world.ended(id).await.state, State::Acked);
    let (job, _) = world.jobs("resize").await.remove(0);
    assert_eq!(
        (job.command.as_str(), job.payload),
        ("work", json!({"body": [1]}))
    );
    let special = NewIntent {
        capability: Some("gpu".to_owned()),
        ..wanted(&json!({}))
    };
    let special = publish(&world, special).await;
    assert_eq!(world.ended(special).await.state, State::Acked);
    runtime
        .reload(world.program("plugins: {resize: {}}"))
        .await
        .unwrap();
    let late = publish(&world, wanted(&json!({}))).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(left(&world, 5).await[0].id, late);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_and_a_plugin_of_one_service_work_together_with_one_worker() {
    let world = World::new();
    world.python("resize", "", "ok(result='small')");
    let keep = "open(here + '/got', 'w').write(json.dumps(request['event']['payload']))\nok()";
    world.python("after", "", keep);
    let config = "
service: {max_workers: 1}
plugins: {after: {}, resize: {serves: [{goal: resize, namespace: images}]}}
pipelines:
  - name: p
    on: start
    steps:
      - {uses: core.publish, with: {goal: resize, namespace: images}}
      - {uses: after}
";
    let runtime = world.start(config).await;
    let jobs = runtime.run_pipeline("p", json!({"size": 3}), SubmittedBy::Api);
    let root = jobs.await.unwrap()[0].id;
    assert_eq!(world.ended(root).await.state, State::Acked);
    let after = world.jobs_are("after", 1).await.remove(0).1.id;
    assert_eq!(world.ended(after).await.state, State::Acked);
    let got: Value = serde_json::from_str(&world.read("got")).unwrap();
    let (_, row) = world.jobs("resize").await.remove(0);
    assert_eq!(got["result"]["job_id"], job_id(row.id), "{got}");
}
