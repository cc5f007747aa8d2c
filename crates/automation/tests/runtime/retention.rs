//! What is old goes, on the tick.

use std::time::Duration;

use consign_automation::runtime::{job_id, keep};
use consign_kernel::command::{Answer, Command, Forget};
use consign_kernel::record::Kind;
use consign_kernel::state::State;
use serde_json::Value;

use crate::world::{OK, World, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_jobs_logs_and_facts_go_and_open_ones_stay_du_121() {
    let world = World::new();
    world.plugin("quick", OK);
    world.plugin(
        "bad",
        r#"echo '{"status":"error","error":"no","retry":false}'"#,
    );
    world.plugin(
        "slow",
        r#"while [ ! -e $here/go ]; do sleep 0.05; done; echo '{"status":"ok","result":"done"}'"#,
    );
    let kept = "service: {tick_interval: 100ms, max_workers: 3}";
    let runtime = world.start(kept).await;
    let slow = run(&runtime, "slow", "poll", Value::Null).await;
    let done = [
        run(&runtime, "quick", "poll", Value::Null).await,
        run(&runtime, "bad", "poll", Value::Null).await,
    ];
    let mut seqs = Vec::new();
    for id in done {
        seqs.push(world.ended(id).await.seq);
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for id in done {
        assert!(
            world.engine.observe(id).await.unwrap().is_some(),
            "a day is not over"
        );
    }
    let short = "service: {tick_interval: 100ms, max_workers: 3, dedupe_ttl: 1s, job_queue_retention: 1s, job_log_retention: 1s, \
                 job_transitions_retention: 1s, job_attempts_retention: 1s}";
    runtime.reload(world.program(short)).await.unwrap();
    let late = run(&runtime, "quick", "poll", Value::Null).await;
    world.ended(late).await;
    for (id, seq) in done.into_iter().zip(seqs) {
        let began = std::time::Instant::now();
        while world.engine.observe(id).await.unwrap().is_some()
            || !world.engine.timeline(seq).await.unwrap().is_empty()
        {
            assert!(began.elapsed() < Duration::from_secs(20), "it stays");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    // Its log was written with the shorter retention; the others keep theirs.
    let began = std::time::Instant::now();
    while world.record(keep::log(&job_id(late), 1)).await.is_some() {
        assert!(began.elapsed() < Duration::from_secs(20), "it stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let rest = Command::Forget(Forget::Records {
        kind: Kind::JobLog,
        limit: 10,
    });
    let rest = world.engine.apply(None, rest).await.unwrap();
    assert_eq!(
        rest,
        Answer::Forgotten { rows: 0 },
        "the row itself is gone"
    );
    assert!(world.record(keep::log(&job_id(done[0]), 1)).await.is_some());
    assert_eq!(world.intent(slow).await.state, State::Dispatched);
    std::fs::write(world.path("go"), "").unwrap();
    world.until(slow, |job| job.state == State::Acked).await;
}
