//! Circuit breakers of scheduled jobs that keep failing.

use std::time::Duration;

use consign_automation::breaker::{BreakerState, TransitionReason};
use consign_automation::runtime::{BreakerInfo, Job, Runtime, SubmittedBy};
use consign_kernel::state::State;
use serde_json::Value;

use crate::world::{OK, World, told};

const BROKEN: &str = r#"echo '{"status":"error","error":"broken"}'"#;

fn config(reset_after: &str, attempts: u32) -> String {
    format!(
        "service: {{tick_interval: 100ms, max_workers: 2}}\nplugins: {{mail: {{retry: {{max_attempts: {attempts}, backoff_base: 10ms}}, \
         circuit_breaker: {{threshold: 3, reset_after: {reset_after}}}, schedules: [{{every: 1h}}]}}}}"
    )
}

async fn info(runtime: &Runtime) -> BreakerInfo {
    runtime.breaker("mail", "poll", 20).await.unwrap().unwrap()
}

async fn state_is(runtime: &Runtime, wanted: BreakerState) -> BreakerInfo {
    for _ in 0..1_000 {
        let info = info(runtime).await;
        if info.state == wanted {
            return info;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never {wanted:?}: {:?}", info(runtime).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_third_failure_opens_and_others_are_unaffected_du_074_du_075_du_077() {
    let world = World::new();
    world.plugin("mail", BROKEN);
    let runtime = world.start(&config("1h", 2)).await;
    let opened = state_is(&runtime, BreakerState::Open).await;
    let jobs = world.jobs("mail").await;
    assert_eq!(
        jobs.len(),
        3,
        "a failed run is due again with the next tick"
    );
    for (_, job) in &jobs {
        assert_eq!(
            (job.state, job.attempts),
            (State::DeadLetter, 2),
            "each counts once"
        );
    }
    assert_eq!((opened.failure_count, opened.transitions.len()), (3, 1));
    let change = &opened.transitions[0];
    assert_eq!(change.transition.reason, TransitionReason::FailureThreshold);
    let last = consign_automation::runtime::job_id(jobs[2].1.id);
    assert_eq!(change.job_id.as_deref(), Some(last.as_str()));
    let event = told(&runtime, "scheduler.circuit_state_changed", |_| true).await;
    assert_eq!(
        (&event["previous_state"], &event["state"]),
        (&"closed".into(), &"open".into())
    );
    told(&runtime, "scheduler.skipped", |data| {
        data["reason"] == "circuit_open"
    })
    .await;

    let others = [
        SubmittedBy::Api,
        SubmittedBy::Webhook,
        SubmittedBy::Route,
        SubmittedBy::Cli,
        SubmittedBy::Hook,
    ];
    for (script, ends) in [(BROKEN, State::DeadLetter), (OK, State::Acked)] {
        world.plugin("mail", script);
        for other in others {
            let job = Job::root("mail", "poll", other, Value::Null);
            let queued = runtime.enqueue(job, None).await.unwrap();
            assert_eq!(world.ended(queued.id).await.state, ends, "{other:?}");
            let info = info(&runtime).await;
            assert_eq!((info.state, info.failure_count), (BreakerState::Open, 3));
        }
    }

    runtime.stop(Duration::from_secs(5)).await;
    let again = world.start(&config("1h", 2)).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(info(&again).await.state, BreakerState::Open);
    assert_eq!(
        world.jobs("mail").await.len(),
        13,
        "nothing new by the clock"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_probe_decides_du_076() {
    let world = World::new();
    world.plugin("mail", BROKEN);
    let runtime = world.start(&config("700ms", 1)).await;
    state_is(&runtime, BreakerState::Open).await;
    world.plugin("mail", &format!("sleep 0.5; {BROKEN}"));
    state_is(&runtime, BreakerState::HalfOpen).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        world.jobs("mail").await.len(),
        4,
        "one probe, over several ticks"
    );
    let reopened = state_is(&runtime, BreakerState::Open).await;
    assert_eq!(reopened.transitions.len(), 3);
    world.plugin("mail", OK);
    let closed = state_is(&runtime, BreakerState::Closed).await;
    assert_eq!(world.jobs("mail").await.len(), 5);
    assert_eq!(closed.failure_count, 0);
    let reasons: Vec<TransitionReason> = closed
        .transitions
        .iter()
        .map(|change| change.transition.reason)
        .collect();
    let expected = [
        TransitionReason::Success,
        TransitionReason::CooldownElapsed,
        TransitionReason::FailureThreshold,
        TransitionReason::CooldownElapsed,
        TransitionReason::FailureThreshold,
    ];
    assert_eq!(reasons, expected, "the newest first");
    told(&runtime, "scheduler.circuit_half_open", |_| true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_closes_at_once_du_078() {
    let world = World::new();
    world.plugin("mail", BROKEN);
    let runtime = world.start(&config("1h", 1)).await;
    state_is(&runtime, BreakerState::Open).await;
    world.plugin("mail", OK);
    runtime.reset_breaker("mail", "poll").await.unwrap();
    let jobs = world.jobs_are("mail", 4).await;
    assert_eq!(world.ended(jobs[3].1.id).await.state, State::Acked);
    let closed = info(&runtime).await;
    assert_eq!(
        (closed.state, closed.failure_count),
        (BreakerState::Closed, 0)
    );
    assert_eq!(
        closed.transitions[0].transition.reason,
        TransitionReason::ManualReset
    );
    assert!(
        runtime
            .breaker("mail", "nothing", 1)
            .await
            .unwrap()
            .is_none()
    );
    let never = runtime.breaker("mail", "work", 1).await.unwrap().unwrap();
    assert_eq!(
        (never.state, never.transitions.len()),
        (BreakerState::Closed, 0)
    );
}
