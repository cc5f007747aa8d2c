//! Crashes of the service, and recovery by the next start.

use std::time::Duration;

use consign_automation::runtime::job::{NAMESPACE, OWNER};
use consign_automation::runtime::records;
use consign_kernel::command::{Audience, Claim};
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;
use consign_kernel::state::State;
use serde_json::Value;

use crate::world::{OK, World, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_finishes_what_runs_du_119() {
    let world = World::new();
    world.plugin(
        "slow",
        r#"echo began > $here/began; sleep 0.4; echo '{"status":"ok","result":"done"}'"#,
    );
    let runtime = world.start("").await;
    let id = run(&runtime, "slow", "poll", Value::Null).await;
    world.until(id, |job| job.state == State::Dispatched).await;
    runtime.stop(Duration::from_secs(10)).await;
    assert_eq!(world.intent(id).await.state, State::Acked);
    let late = run(&runtime, "slow", "poll", Value::Null).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        world.intent(late).await.state,
        State::Queued,
        "nothing more is taken"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_start_left_runs_again_at_once_du_116() {
    let world = World::new();
    world.plugin(
        "once",
        r#"if [ -e $here/second ]; then echo '{"status":"ok","result":"done"}'; else touch $here/second; sleep 60; fi"#,
    );
    let first = world.start("").await;
    let id = run(&first, "once", "poll", Value::Null).await;
    world.until(id, |_| world.path("second").exists()).await;
    // For the ledger, the service is gone.
    first.stop(Duration::ZERO).await;
    let _second = world.start("").await;
    let done = world.ended(id).await;
    assert_eq!((done.state, done.attempts), (State::Acked, 2));
    let lost = world.logged(id, 1).await;
    assert_eq!(
        (lost.status.as_str(), lost.reason.as_deref()),
        ("failed", Some("recovered"))
    );
    assert_eq!(world.log(id, 2).await.status.as_str(), "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_after_the_job_was_taken_back_leaves_nothing_du_116_du_080() {
    let world = World::new();
    let rule = "fact_outputs: [{when: {command: poll}, from: state_updates, fact_type: seen, compatibility_view: mirror_object}]\n";
    let body = "
late = not os.path.exists(here + '/second')
open(here + '/second', 'a').close()
while late and not os.path.exists(here + '/go'):
    time.sleep(0.02)
ok(state_updates={'late': late}, events=[{'type': 'e', 'payload': {'late': late}}])";
    world.python("once", rule, body);
    world.plugin("sink", OK);
    let config = "plugins: {once: {}, sink: {}}\nroutes: [{from: once, event_type: e, to: sink}]";
    let first = world.start(config).await;
    let id = run(&first, "once", "poll", Value::Null).await;
    world.until(id, |_| world.path("second").exists()).await;
    first.stop(Duration::ZERO).await;
    let _second = world.start(config).await;
    assert_eq!(world.tree(id).await.len(), 2);
    // Now the first process responds, too.
    std::fs::write(world.path("go"), "").unwrap();
    while first.running() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let tree = world.tree(id).await;
    assert_eq!((tree.len(), tree[0].1.attempts), (2, 2));
    assert_eq!(tree[1].0.payload["payload"]["late"], false);
    let state = world.record(records::state_key("once")).await.unwrap();
    let state: records::PluginState = serde_json::from_str(&state.value).unwrap();
    assert_eq!((state.facts, &state.state["late"]), (1, &false.into()));
    let facts = world.engine.last_records(Kind::PluginFact, "once", "", 10);
    assert_eq!(facts.await.unwrap().len(), 1);
    assert_eq!(
        world.logged(id, 1).await.reason.as_deref(),
        Some("recovered")
    );
    assert_eq!(world.log(id, 2).await.status.as_str(), "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_dies_with_the_service_is_logged_and_tells_its_hook_du_116_du_097() {
    let world = World::new();
    world.plugin("mail", "touch $here/began; sleep 60");
    world.python(
        "alarm",
        "",
        "open(here + '/heard', 'a').write(json.dumps(request['event']['payload']) + '\\n')\nok()",
    );
    let config = "service: {tick_interval: 100ms}
plugins: {mail: {notify_on_complete: true, retry: {max_attempts: 1}}, alarm: {}}
pipelines: [{name: alarm, on-hook: job.failed, steps: [{uses: alarm}]}]";
    let first = world.start(config).await;
    let id = run(&first, "mail", "poll", Value::Null).await;
    world.until(id, |_| world.path("began").exists()).await;
    first.stop(Duration::ZERO).await;
    let second = world.start(config).await;
    assert_eq!(world.ended(id).await.state, State::DeadLetter);
    let lost = world.logged(id, 1).await;
    assert_eq!(lost.status.as_str(), "dead");
    let error = lost.last_error.unwrap();
    assert!(error.contains("the process that ran it ended"), "{error}");
    let heard = world.jobs_are("alarm", 1).await;
    world.ended(heard[0].1.id).await;
    let heard: Value = serde_json::from_str(world.read("heard").trim()).unwrap();
    assert_eq!(
        (&heard["recovery"], &heard["status"]),
        (&true.into(), &"dead".into())
    );
    second.stop(Duration::from_secs(5)).await;
    // A third start finds nothing to recover.
    let _third = world.start(config).await;
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    assert_eq!(world.jobs("alarm").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_node_is_silent_is_logged_when_its_lease_ends() {
    let world = World::new();
    world.plugin("mail", OK);
    let config = "service: {tick_interval: 100ms}\nplugins: {mail: {retry: {backoff_base: 10ms}}}";
    let runtime = world.start(config).await;
    runtime.stop(Duration::ZERO).await;
    let id = run(&runtime, "mail", "poll", Value::Null).await;
    let claim = Claim {
        face: Face::Automation,
        namespace: NAMESPACE.to_owned(),
        goal: None,
        holder: "elsewhere/1".to_owned(),
        audience: Audience::Publisher(OWNER.to_owned()),
        worker_id: None,
        capabilities: vec!["mail".to_owned()],
        max: 1,
        lease_us: 300_000,
        grant: None,
    };
    let taken = world.engine.claim(None, claim, Duration::ZERO).await;
    assert_eq!(taken.unwrap()[0].id, id);
    let _again = world.start(config).await;
    let done = world.ended(id).await;
    assert_eq!((done.state, done.attempts), (State::Acked, 2));
    let lost = world.logged(id, 1).await;
    assert_eq!(
        (lost.status.as_str(), lost.reason.as_deref()),
        ("timed_out", Some("lease_expired"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_cancelled_while_it_waits_is_logged_and_counts() {
    let world = World::new();
    world.plugin("mail", "touch $here/began; sleep 60");
    let config = "service: {tick_interval: 100ms, max_workers: 1}
plugins: {mail: {circuit_breaker: {threshold: 1}, schedules: [{every: 1h, command: work}]}}";
    let runtime = world.start(config).await;
    let scheduled = world.jobs_are("mail", 1).await[0].1.id;
    world
        .until(scheduled, |_| world.path("began").exists())
        .await;
    let waiting = run(&runtime, "mail", "poll", Value::Null).await;
    runtime.cancel(waiting, "not needed").await.unwrap();
    let log = world.logged(waiting, 1).await;
    assert_eq!(
        (log.status.as_str(), log.reason.as_deref()),
        ("dead", Some("cancelled"))
    );
    assert_eq!(log.last_error.as_deref(), Some("not needed"));
    runtime.pause_schedule("mail", "default").await.unwrap();
    runtime.cancel(scheduled, "not needed").await.unwrap();
    world.logged(scheduled, 1).await;
    let breaker = runtime.breaker("mail", "work", 1).await.unwrap().unwrap();
    assert_eq!(
        (breaker.state, breaker.failure_count),
        (consign_automation::breaker::BreakerState::Open, 1)
    );
    let polls = runtime.breaker("mail", "poll", 1).await.unwrap().unwrap();
    assert_eq!(polls.failure_count, 0, "nobody scheduled it");
    runtime.stop(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_ends_with_its_process_and_may_be_tried_again() {
    let world = World::new();
    world.plugin(
        "slow",
        "trap 'touch $here/ended; exit 1' TERM; touch $here/began; sleep 60 & wait",
    );
    let runtime = world.start("").await;
    let id = run(&runtime, "slow", "poll", Value::Null).await;
    world.until(id, |_| world.path("began").exists()).await;
    runtime.cancel(id, "not needed").await.unwrap();
    let dead = world.intent(id).await;
    assert_eq!(dead.state, State::DeadLetter);
    assert_eq!(dead.last_error.as_deref(), Some("not needed"));
    world.until(id, |_| world.path("ended").exists()).await;
    world.plugin("slow", OK);
    runtime.retry(id, "by hand").await.unwrap();
    assert_eq!(world.ended(id).await.state, State::Acked);
}
