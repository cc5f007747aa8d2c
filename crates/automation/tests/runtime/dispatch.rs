//! The dispatcher, and the outcomes of attempts.

use std::time::Duration;

use consign_automation::runtime::SubmittedBy;
use consign_engine::{Heartbeat, NodeIdentity, NodeState, Operator};
use consign_kernel::intent::Intent;
use consign_kernel::state::{Cause, State};
use serde_json::{Value, json};

use crate::world::{OK, WAITS, World, keyed, run};

/// Far more than the dispatcher needs to start a job.
const MOMENT: Duration = Duration::from_millis(500);
/// Records its start and end, with a pause in between.
const SLOW: &str = r#"echo "+$(basename $(dirname $0))" >> $here/order; sleep 0.1; echo "-$(basename $(dirname $0))" >> $here/order
echo '{"status":"ok","result":"done"}'"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_and_its_outcome_is_kept_du_123() {
    let world = World::new();
    world.plugin(
        "echo",
        &format!("echo noise >&2\necho \"$request\" > $here/asked\n{OK}"),
    );
    let runtime = world.start("plugins: {echo: {config: {level: 3}}}").await;
    let id = run(&runtime, "echo", "work", json!({"a": 1})).await;
    let done = world.ended(id).await;
    assert_eq!((done.state, done.attempts), (State::Acked, 1));
    let asked: Value = serde_json::from_str(&world.read("asked")).unwrap();
    assert_eq!(asked["protocol"], 2);
    assert_eq!(asked["command"], "work");
    assert_eq!(asked["config"], json!({"level": 3}));
    assert_eq!(asked["payload"], json!({"a": 1}));
    assert_eq!(asked["job_id"], consign_automation::runtime::job_id(id));
    assert_eq!(asked.get("event"), None);
    let log = world.log(id, 1).await;
    assert_eq!((log.status.as_str(), log.attempt), ("succeeded", 1));
    assert_eq!(log.stderr.as_deref(), Some("noise\n"));
    assert!(log.result.unwrap().contains("\"result\":\"done\""));
    assert_eq!(log.submitted_by, SubmittedBy::Api);
    let asked = asked["deadline_at"].as_str().unwrap();
    let deadline: jiff::Timestamp = asked.parse().unwrap();
    let patience = deadline.duration_since(log.started_at);
    assert_eq!(patience, jiff::SignedDuration::from_mins(1));
    assert!(log.started_at <= log.completed_at && log.created_at <= log.started_at);
}

/// The end of a job frees a slot, and the next job is claimed in the same commit on the same node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_node_finishes_what_runs_and_begins_nothing_until_it_is_resumed() {
    let world = World::new();
    world.plugin("slow", &format!("{WAITS}{OK}"));
    world.plugin("echo", OK);
    let config = "service: {max_workers: 1}\nplugins: {slow: {}, echo: {}}";
    let runtime = world.start(config).await;
    let identity = NodeIdentity {
        id: 1,
        name: "here".to_owned(),
        address: String::new(),
        version: String::new(),
        alone: false,
    };
    let mut heart = Heartbeat::new(world.engine.clone(), identity);
    heart.beat().await.unwrap();
    let running = run(&runtime, "slow", "work", Value::Null).await;
    let waiting = run(&runtime, "echo", "work", Value::Null).await;
    let is_running = |job: &Intent| job.state == State::Dispatched;
    world.until(running, is_running).await;
    let drain = |drain| world.engine.drain_node(Operator::vouched(), 1, drain);
    drain(true).await.unwrap();
    for _ in 0..2 {
        heart.beat().await.unwrap();
    }
    let nodes = || world.engine.nodes(Operator::vouched());
    assert_eq!(nodes().await.unwrap()[0].state, NodeState::Draining);
    std::fs::write(world.path("go"), "").unwrap();
    assert_eq!(world.ended(running).await.state, State::Acked);
    let another = run(&runtime, "echo", "work", Value::Null).await;
    tokio::time::sleep(MOMENT).await;
    for id in [waiting, another] {
        let job = world.intent(id).await;
        assert_eq!((job.state, job.attempts), (State::Queued, 0));
    }
    heart.beat().await.unwrap();
    assert_eq!(nodes().await.unwrap()[0].state, NodeState::Drained);

    drain(false).await.unwrap();
    heart.beat().await.unwrap();
    for id in [waiting, another] {
        assert_eq!(world.ended(id).await.state, State::Acked);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_wrong_clock_begins_no_job_until_it_is_set() {
    let world = World::new();
    world.plugin("echo", OK);
    let runtime = world.start("plugins: {echo: {}}").await;
    world.engine.set_wrong_clock(true);
    let id = run(&runtime, "echo", "work", Value::Null).await;
    tokio::time::sleep(MOMENT).await;
    let job = world.intent(id).await;
    assert_eq!((job.state, job.attempts), (State::Queued, 0));
    world.engine.set_wrong_clock(false);
    assert_eq!(world.ended(id).await.state, State::Acked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_attempt_is_kept_with_all_that_it_printed_du_123_du_038_du_042() {
    let world = World::new();
    world.plugin("odd", "echo cause >&2; printf 'no json'");
    world.plugin(
        "long",
        "head -c 11000000 /dev/zero | tr '\\0' x; echo end >&2",
    );
    let config = "plugins: {odd: {retry: {max_attempts: 1}}, long: {retry: {max_attempts: 1}}}";
    let runtime = world.start(config).await;
    for (plugin, bytes, reason, stderr) in [
        ("odd", 7, "protocol", "cause\n"),
        ("long", 10 << 20, "output_too_long", "end\n"),
    ] {
        let id = run(&runtime, plugin, "poll", Value::Null).await;
        let dead = world.ended(id).await;
        assert_eq!(dead.state, State::DeadLetter, "{plugin}");
        let log = world.log(id, 1).await;
        assert_eq!(log.status.as_str(), "failed");
        assert_eq!(log.reason.as_deref(), Some(reason));
        assert_eq!(log.stderr.as_deref(), Some(stderr));
        assert_eq!(log.result.unwrap().len(), bytes, "{plugin}");
        assert_eq!(log.last_error, dead.last_error);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_job_is_tried_again_and_dies_du_056_du_059_du_060() {
    let world = World::new();
    world.plugin("bad", r#"echo '{"status":"error","error":"broken"}'"#);
    let config = "plugins: {bad: {retry: {max_attempts: 2, backoff_base: 300ms}}}";
    let runtime = world.start(config).await;
    let id = run(&runtime, "bad", "poll", Value::Null).await;
    let waiting = world
        .until(id, |job| job.attempts == 1 && job.state == State::Queued)
        .await;
    assert!(waiting.run_at > waiting.created_at);
    assert_eq!(waiting.last_error.as_deref(), Some("broken"));
    let failed_at = world.log(id, 1).await.completed_at.as_microsecond();
    let wait_us = waiting.run_at.0 - failed_at;
    // Between one and two times the base, plus the time of a commit.
    assert!((300_000..1_500_000).contains(&wait_us), "{wait_us}");
    let dead = world.ended(id).await;
    assert_eq!((dead.state, dead.attempts), (State::DeadLetter, 2));
    assert_eq!(dead.last_error.as_deref(), Some("broken"));
    for attempt in [1, 2] {
        assert_eq!(world.log(id, attempt).await.status.as_str(), "failed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_by_hand_is_one_more_attempt_and_the_log_keeps_the_others_du_123() {
    let world = World::new();
    world.plugin("broken", r#"echo '{"status":"error","error":"broken"}'"#);
    let config = "plugins: {broken: {retry: {max_attempts: 1}}}";
    let runtime = world.start(config).await;
    let id = run(&runtime, "broken", "poll", Value::Null).await;
    world.ended(id).await;
    runtime.retry(id, "by hand").await.unwrap();
    let is_dead = |job: &Intent| job.state == State::DeadLetter && job.attempts == 2;
    world.until(id, is_dead).await;
    for attempt in [1, 2] {
        assert_eq!(world.log(id, attempt).await.status.as_str(), "failed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_word_there_are_four_attempts_half_a_minute_apart_du_056_du_057() {
    let world = World::new();
    world.plugin("bad", r#"echo '{"status":"error","error":"broken"}'"#);
    let runtime = world.start("").await;
    let id = run(&runtime, "bad", "poll", Value::Null).await;
    let waiting = world
        .until(id, |job| job.attempts == 1 && job.state == State::Queued)
        .await;
    assert_eq!(waiting.attempts_max, 4);
    let failed_at = world.log(id, 1).await.completed_at.as_microsecond();
    let wait_us = waiting.run_at.0 - failed_at;
    assert!((30_000_000..61_000_000).contains(&wait_us), "{wait_us}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_retry_cures_fails_at_once_du_058_du_039() {
    let world = World::new();
    world.plugin(
        "final",
        r#"echo '{"status":"error","error":"no","retry":false}'"#,
    );
    world.plugin("config", "exit 78");
    let runtime = world.start("").await;
    for plugin in ["final", "config"] {
        let id = run(&runtime, plugin, "poll", Value::Null).await;
        let failed = world.ended(id).await;
        assert_eq!(
            (failed.state, failed.attempts),
            (State::Failed, 1),
            "{plugin}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_takes_too_long_is_timed_out_du_044() {
    let world = World::new();
    world.plugin("slow", "sleep 60");
    let config = "plugins: {slow: {timeouts: {poll: 200ms}, retry: {max_attempts: 1}}}";
    let runtime = world.start(config).await;
    let id = run(&runtime, "slow", "poll", Value::Null).await;
    let dead = world.ended(id).await;
    assert_eq!(
        (dead.state, dead.cause),
        (State::DeadLetter, Cause::Exhausted)
    );
    assert_eq!(world.log(id, 1).await.status.as_str(), "timed_out");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_worker_is_a_serial_system_in_order_du_048_du_049() {
    let world = World::new();
    world.plugin("a", SLOW);
    world.plugin("b", SLOW);
    let runtime = world.start("service: {max_workers: 1}").await;
    let mut last = None;
    for plugin in ["a", "b", "a", "b"] {
        last = Some(run(&runtime, plugin, "poll", Value::Null).await);
    }
    world.ended(last.unwrap()).await;
    let order = world.read("order");
    let order: Vec<&str> = order.lines().collect();
    assert_eq!(order, ["+a", "-a", "+b", "-b", "+a", "-a", "+b", "-b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_at_its_cap_holds_up_nobody_du_050_du_051() {
    let world = World::new();
    world.plugin("capped", SLOW);
    world.plugin(
        "free",
        r#"echo "free" >> $here/order; echo '{"status":"ok","result":"done"}'"#,
    );
    let config = "service: {max_workers: 4}\nplugins: {capped: {parallelism: 1}}";
    let runtime = world.start(config).await;
    let mut capped = Vec::new();
    for _ in 0..5 {
        capped.push(run(&runtime, "capped", "poll", Value::Null).await);
    }
    let free = run(&runtime, "free", "poll", Value::Null).await;
    world.ended(free).await;
    let waiting = world.intent(capped[4]).await;
    assert_eq!(waiting.state, State::Queued, "the last one still waits");
    for id in capped {
        world.ended(id).await;
    }
    let order = world.read("order");
    let capped: Vec<&str> = order
        .lines()
        .filter(|line| line.contains("capped"))
        .collect();
    assert_eq!(
        capped,
        ["+capped", "-capped"].repeat(5),
        "never two at once"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_one_key_run_one_after_the_other_du_052() {
    let world = World::new();
    world.plugin("a", SLOW);
    world.plugin("b", SLOW);
    let runtime = world.start("service: {max_workers: 4}").await;
    let mut ids = Vec::new();
    for plugin in ["a", "a", "b"] {
        let enqueued = runtime
            .enqueue(keyed(plugin, "poll", "k"), None)
            .await
            .unwrap();
        assert!(!enqueued.duplicate);
        ids.push(enqueued.id);
    }
    for id in ids {
        assert_eq!(world.ended(id).await.state, State::Acked);
    }
    let order = world.read("order");
    let of_a: Vec<&str> = order.lines().filter(|line| line.ends_with('a')).collect();
    assert_eq!(of_a, ["+a", "-a", "+a", "-a"]);
    let before_the_end: Vec<&str> = order.lines().take(2).collect();
    assert!(
        before_the_end.contains(&"+b"),
        "another target is not held up: {order}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_is_not_queued_du_053_du_054_du_055() {
    let world = World::new();
    world.plugin("good", OK);
    world.plugin(
        "bad",
        r#"echo '{"status":"error","error":"no","retry":false}'"#,
    );
    let runtime = world.start("").await;
    let first = runtime
        .enqueue(keyed("good", "poll", "k"), None)
        .await
        .unwrap();
    world.ended(first.id).await;
    let again = runtime
        .enqueue(keyed("good", "poll", "k"), None)
        .await
        .unwrap();
    assert_eq!((again.duplicate, again.id), (true, first.id));
    let other = runtime
        .enqueue(keyed("good", "work", "k"), None)
        .await
        .unwrap();
    assert!(!other.duplicate, "another command is another target");
    for _ in 0..2 {
        let failed = runtime
            .enqueue(keyed("bad", "poll", "k"), None)
            .await
            .unwrap();
        assert!(!failed.duplicate, "what failed serves nobody");
        world.ended(failed.id).await;
    }
    let window = Some(Duration::from_mins(1));
    world.plugin("good", "sleep 5");
    let running = runtime
        .enqueue(keyed("good", "work", "k2"), window)
        .await
        .unwrap();
    let beside = runtime
        .enqueue(keyed("good", "work", "k2"), window)
        .await
        .unwrap();
    assert_eq!((beside.duplicate, beside.id), (true, running.id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_serves_as_long_as_the_window_says_du_053() {
    let world = World::new();
    world.plugin("good", OK);
    let runtime = world.start("service: {dedupe_ttl: 1500ms}").await;
    let enqueue = async || {
        let job = keyed("good", "poll", "k");
        runtime.enqueue(job, None).await.unwrap()
    };
    let first = enqueue().await;
    world.ended(first.id).await;
    assert!(enqueue().await.duplicate, "it is recent");
    tokio::time::sleep(Duration::from_millis(1_600)).await;
    let late = enqueue().await;
    assert!(!late.duplicate && late.id != first.id, "it is old");
    let blank = async || {
        let job = keyed("good", "poll", " ");
        let queued = runtime.enqueue(job, None).await.unwrap();
        world.ended(queued.id).await;
        queued.duplicate
    };
    assert!(!blank().await && !blank().await, "a blank key is none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_may_be_long_du_052() {
    let world = World::new();
    world.plugin("echo", OK);
    let runtime = world.start("").await;
    // Incompressible, so that an index entry cannot be shortened.
    let numbers = (0..4_000_u32).map(|number| number.wrapping_mul(2_654_435_761));
    let key: Vec<String> = numbers.map(|number| format!("{number:08x}")).collect();
    let key = key.concat();
    let job = runtime.enqueue(keyed("echo", "poll", &key), None).await;
    let first = job.unwrap().id;
    assert_eq!(world.ended(first).await.state, State::Acked);
    let again = runtime.enqueue(keyed("echo", "poll", &key), None).await;
    assert_eq!(again.unwrap().id, first);
}
