//! The events of jobs, read from the ledger.

use std::time::Duration;

use consign_automation::http::views::events::{self as views, NamedEvent};
use consign_automation::runtime::{JobEvent, Runtime, SubmittedBy, job_id};
use consign_engine::Lease;
use consign_kernel::command::{Hold, Settlement, Take};
use consign_kernel::ids::FactSeq;
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use serde_json::{Value, json};

use crate::world::{OK, WAITS, World, job_events, run};

const FAILS: &str = r#"echo '{"status":"error","error":"no luck"}'"#;
const RETRIES: &str = "retry: {max_attempts: 2, backoff_base: 1ms}";

fn kinds(events: &[NamedEvent]) -> Vec<&'static str> {
    events.iter().map(|(kind, _)| *kind).collect()
}

async fn of_job(runtime: &Runtime, id: &str) -> Vec<NamedEvent> {
    let events = job_events(runtime).await.into_iter();
    events.filter(|(_, data)| data["job_id"] == id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_fails_is_retried_and_then_exhausted() {
    let world = World::new();
    world.plugin("bad", FAILS);
    let runtime = world
        .start(&format!("plugins: {{bad: {{{RETRIES}}}}}"))
        .await;
    let id = run(&runtime, "bad", "poll", Value::Null).await;
    world.ended(id).await;
    let events = of_job(&runtime, &job_id(id)).await;
    let expected = [
        "job.enqueued",
        "job.started",
        "job.retry_scheduled",
        "job.started",
        "job.retry_exhausted",
        "job.failed",
    ];
    assert_eq!(kinds(&events), expected);
    let enqueued = json!({
        "job_id": job_id(id), "plugin": "bad", "command": "poll", "submitted_by": "api", "direct": true,
    });
    assert_eq!(events[0].1, enqueued);
    let started = json!({
        "job_id": job_id(id), "plugin": "bad", "command": "poll", "attempt": 1, "parent_job_id": null, "submitted_by": "api",
    });
    assert_eq!(events[1].1, started);
    // The job has moved on, so the time of its retry is not known any more.
    let retried = json!({
        "job_id": job_id(id), "plugin": "bad", "command": "poll", "attempt": 1, "max_attempts": 2, "backoff_ms": null,
        "next_retry_at": null, "reason": "plugin_error",
    });
    assert_eq!(events[2].1, retried);
    let exhausted = json!({
        "job_id": job_id(id), "plugin": "bad", "attempts": 2, "final_error": "no luck", "reason": "plugin_error",
    });
    assert_eq!(events[4].1, exhausted);
    let ended = &events[5].1;
    assert!(ended["duration_ms"].as_i64().unwrap() >= 0);
    assert_eq!(
        (&ended["status"], &ended["error"]),
        (&json!("dead"), &json!("no luck"))
    );
    assert_eq!(ended["text"], "bad/poll dead: no luck");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_waits_is_shown_with_its_time_and_a_failure_for_good_without() {
    let world = World::new();
    world.plugin("bad", FAILS);
    let never = r#"echo '{"status":"error","error":"no","retry":false}'"#;
    world.plugin("never", never);
    let runtime = world
        .start("plugins: {bad: {retry: {max_attempts: 2, backoff_base: 1h}}, never: {}}")
        .await;
    let id = run(&runtime, "bad", "poll", Value::Null).await;
    world
        .until(id, |job| job.state == State::Queued && job.attempts == 1)
        .await;
    let events = of_job(&runtime, &job_id(id)).await;
    let (kind, data) = events.last().unwrap();
    assert_eq!(*kind, "job.retry_scheduled");
    assert!(data["backoff_ms"].as_i64().unwrap() >= 3_600_000, "{data}");
    assert!(data["next_retry_at"].is_string());
    let id = run(&runtime, "never", "poll", Value::Null).await;
    world.ended(id).await;
    let events = of_job(&runtime, &job_id(id)).await;
    assert_eq!(kinds(&events[2..]), ["job.failed"]);
    assert_eq!(events[2].1["status"], "failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_and_one_of_a_dead_start_are_shown_from_their_facts() {
    let world = World::new();
    world.plugin("slow", &format!("{WAITS}{OK}"));
    let first = world.start("").await;
    let id = run(&first, "slow", "poll", Value::Null).await;
    world.until(id, |_| world.path("began").exists()).await;
    first.stop(Duration::ZERO).await;
    let second = world.start("").await;
    world.until(id, |job| job.attempts == 2).await;
    second.cancel(id, "not wanted").await.unwrap();
    let events = of_job(&second, &job_id(id)).await;
    let expected = [
        "job.enqueued",
        "job.started",
        "job.retry_scheduled",
        "job.started",
        "job.retry_exhausted",
        "job.failed",
    ];
    assert_eq!(kinds(&events), expected);
    assert_eq!(events[2].1["reason"], "recovered");
    assert_eq!(events[4].1["reason"], "cancelled");
    assert_eq!(events[5].1["error"], "not wanted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_and_routes_are_shown_with_their_place() {
    let world = World::new();
    world.plugin("ok", OK);
    let runtime = world
        .start(
            "plugins: {ok: {}}
pipelines:
  - name: two
    on: never
    steps: [{id: one, uses: ok}, {id: next, uses: ok}]
",
        )
        .await;
    let begun = runtime
        .run_pipeline("two", Value::Null, SubmittedBy::Api)
        .await
        .unwrap();
    let id = job_id(begun[0].id);
    world.ended(begun[0].id).await;
    let events = job_events(&runtime).await;
    assert_eq!(
        kinds(&events[..3]),
        ["job.enqueued", "pipeline.enqueued", "job.started"]
    );
    assert_eq!(events[0].1["direct"], false);
    let pipeline = json!({"job_id": id, "job_ids": [id], "job_count": 1, "pipeline": "two"});
    assert_eq!(events[1].1, pipeline);
    let routed = events.iter().find(|(kind, _)| *kind == "router.enqueued");
    let (_, routed) = routed.unwrap();
    assert_eq!(routed["parent_job_id"], id.as_str());
    assert_eq!(
        (&routed["pipeline"], &routed["step_id"]),
        (&json!("two"), &json!("next"))
    );
    assert!(routed["event_context_id"].is_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_separates_a_failed_attempt_from_what_follows() {
    let world = World::new();
    world.plugin("bad", FAILS);
    let runtime = world
        .start(&format!("plugins: {{bad: {{{RETRIES}}}}}"))
        .await;
    let mut ids = Vec::new();
    for _ in 0..25 {
        ids.push(run(&runtime, "bad", "poll", Value::Null).await);
    }
    for id in &ids {
        world.ended(*id).await;
    }
    let whole = job_events(&runtime).await;
    for id in &ids {
        let id = job_id(*id);
        let own: Vec<_> = whole
            .iter()
            .filter(|(_, data)| data["job_id"] == id)
            .collect();
        let ends = own.iter().filter(|(kind, _)| *kind == "job.failed");
        assert_eq!((own.len(), ends.count()), (6, 1), "{own:?}");
    }
    every_position_continues(&runtime).await;
}

/// An idle runtime with a plugin, and a pipeline with this many first steps.
fn idle_with_first_steps(world: &World, count: usize) -> Runtime {
    world.plugin("ok", OK);
    let steps = vec!["{uses: ok}"; count].join(", ");
    world.idle(&format!(
        "plugins: {{ok: {{}}}}\npipelines: [{{name: wide, on: never, steps: [{{split: [{steps}]}}]}}]"
    ))
}

async fn run_wide(runtime: &Runtime) -> Vec<String> {
    let begun = runtime
        .run_pipeline("wide", Value::Null, SubmittedBy::Api)
        .await
        .unwrap();
    begun.iter().map(|job| job_id(job.id)).collect()
}

#[tokio::test]
async fn no_page_separates_the_first_steps_of_a_pipeline() {
    let world = World::new();
    let runtime = idle_with_first_steps(&world, 3);
    // The first page ends between two steps of a run: it has 50 facts.
    let mut expected = Vec::new();
    for _ in 0..20 {
        let jobs = run_wide(&runtime).await;
        assert_eq!(jobs.len(), 3);
        expected.push(json!({
            "job_id": jobs[0], "job_ids": jobs, "job_count": 3, "pipeline": "wide",
        }));
    }
    let events = job_events(&runtime).await;
    assert_eq!(events.len(), 20 * 4);
    let runs = events.into_iter();
    let runs = runs.filter(|(kind, _)| *kind == "pipeline.enqueued");
    let runs: Vec<Value> = runs.map(|(_, data)| data).collect();
    assert_eq!(runs, expected);
    every_position_continues(&runtime).await;
}

#[tokio::test]
async fn more_first_steps_than_a_page_has_facts_are_shown_in_parts() {
    let world = World::new();
    let runtime = idle_with_first_steps(&world, 60);
    let mut expected = run_wide(&runtime).await;
    expected.extend(run_wide(&runtime).await);
    let events = all_events(&runtime).await;
    let steps = events.iter().map(views::job_event);
    let steps = steps.filter(|(kind, _)| *kind == "job.enqueued");
    let steps: Vec<Value> = steps.map(|(_, data)| data["job_id"].clone()).collect();
    assert_eq!(steps, expected);
}

#[tokio::test]
async fn a_job_that_is_returned_to_the_queue_is_shown_as_postponed() {
    let world = World::new();
    world.plugin("ok", OK);
    let runtime = world.idle("plugins: {ok: {}}");
    let id = run(&runtime, "ok", "poll", Value::Null).await;
    let take = Take {
        detail: None,
        id,
        face: Face::Automation,
        hold: Hold {
            holder: "here".to_owned(),
            lease_us: 60_000_000,
        },
    };
    let taken = world.engine.take(take).await.unwrap().unwrap();
    let settle = Lease::of(&taken).settle(Settlement::GiveBack);
    world.engine.settle(settle).await.unwrap();
    let events = of_job(&runtime, &job_id(id)).await;
    assert_eq!(
        kinds(&events),
        ["job.enqueued", "job.started", "job.postponed"]
    );
    let postponed = json!({
        "job_id": job_id(id), "plugin": "ok", "command": "poll", "reason": "no_room",
    });
    assert_eq!(events[2].1, postponed);
}

/// All events of the ledger. Every page but the last moves the reader on.
async fn all_events(runtime: &Runtime) -> Vec<JobEvent> {
    let (mut reader, mut events) = (runtime.job_events(FactSeq(0)), Vec::new());
    loop {
        let before = reader.position();
        let page = reader.next_page().await.unwrap();
        events.extend(page.events);
        if !page.more {
            return events;
        }
        assert!(reader.position() > before, "the reader stays at {before:?}");
    }
}

/// From every position the rest is the same, with the events that one fact has together.
async fn every_position_continues(runtime: &Runtime) {
    let events = all_events(runtime).await;
    for (index, event) in events.iter().enumerate() {
        let Some(position) = event.position else {
            continue;
        };
        let page = runtime.job_events(position).next_page().await.unwrap();
        let expected = &events[index + 1..];
        assert_eq!(page.events, expected[..page.events.len()]);
        assert_eq!(page.events.is_empty(), expected.is_empty());
    }
}
