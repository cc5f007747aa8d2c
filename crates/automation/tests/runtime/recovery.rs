//! Ends of the service, and what the next start finds.

use std::time::Duration;

use consign_kernel::state::State;
use serde_json::Value;

use crate::world::{World, run};

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
    // It is not there any more, as far as the ledger can tell.
    first.stop(Duration::ZERO).await;
    let _second = world.start("").await;
    let done = world.ended(id).await;
    assert_eq!((done.state, done.attempts), (State::Acked, 2));
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
    world.plugin("slow", r#"echo '{"status":"ok","result":"done"}'"#);
    runtime.retry(id, "by hand").await.unwrap();
    assert_eq!(world.ended(id).await.state, State::Acked);
}
