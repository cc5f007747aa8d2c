//! Deletion of old rows by housekeeping.

use std::time::Duration;

use consign_automation::runtime::job_id;
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
    // The current setting also applies to rows written before; and records that only facts need are deleted with them.
    for left in [
        "SELECT count(*) FROM job_log",
        "SELECT count(*) FROM records WHERE kind = 24",
        "SELECT count(*) FROM facts WHERE intent <> (SELECT seq FROM intents WHERE capability = 'slow')",
    ] {
        let began = std::time::Instant::now();
        while world.ledger.sql(left) != ["0"] {
            assert!(began.elapsed() < Duration::from_secs(20), "{left}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert_eq!(world.intent(slow).await.state, State::Dispatched);
    std::fs::write(world.path("go"), "").unwrap();
    world.until(slow, |job| job.state == State::Acked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_pruned_job_went_through_is_still_told_by_the_tables_du_121_du_122() {
    let world = World::new();
    world.plugin("quick", OK);
    let config = "service: {tick_interval: 100ms, dedupe_ttl: 1s, job_queue_retention: 1s}";
    let runtime = world.start(config).await;
    let id = run(&runtime, "quick", "poll", Value::Null).await;
    world.ended(id).await;
    let told = || {
        let job = job_id(id);
        let moves = format!(
            "SELECT from_status, to_status FROM job_transitions WHERE job_id = '{job}' ORDER BY id"
        );
        let attempts = format!("SELECT attempt FROM job_attempts WHERE job_id = '{job}'");
        (world.ledger.sql(&moves), world.ledger.sql(&attempts))
    };
    let moves = ["|queued", "queued|running", "running|succeeded"].map(str::to_owned);
    let whole = (moves.to_vec(), vec!["1".to_owned()]);
    assert_eq!(told(), whole);
    let began = std::time::Instant::now();
    while world.engine.observe(id).await.unwrap().is_some() {
        assert!(began.elapsed() < Duration::from_secs(20), "it stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(told(), whole);
    assert_eq!(world.ledger.sql("SELECT count(*) FROM job_queue"), ["0"]);
}
