//! Settlements that the ledger refuses at first.

use std::time::{Duration, Instant};

use consign_automation::runtime::records;
use consign_kernel::state::{State, Verb};
use serde_json::{Value, json};

use crate::intents::{details, publish, wanted};
use crate::world::{OK, PATIENCE, World, run};

const COUNTS: &str = "open(here + '/ran', 'a').write('x')\nok(state_updates={'seen': 1})";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_ledger_refuses_the_end_of_a_job_its_lease_is_kept_and_that_of_its_intent_du_116()
{
    let world = World::new();
    world.plugin("quick", &format!("echo x >> $here/ran; {OK}"));
    let config = "plugins: {quick: {serves: [{goal: resize, namespace: images}]}}";
    let _runtime = world.start(config).await;
    world.obstacles.refuse(true);
    let intent = publish(&world, wanted(&json!({}))).await;
    let id = world.jobs_are("quick", 1).await.remove(0).1.id;
    let done = world.until(id, |_| world.obstacles.met() > 0).await;
    assert_eq!(done.state, State::Dispatched);
    // Without the lease another node would consider the job lost.
    let kept = world
        .until(id, |job| job.lease_until > done.lease_until)
        .await;
    assert_eq!((kept.state, kept.attempts), (State::Dispatched, 1));
    // Without the lease of the intent another worker would repeat the work. It was extended when the job was queued, when it
    // started, and since.
    let served = world.intent(intent).await;
    let began = Instant::now();
    while details(&world, &served, Verb::Extend).await.len() < 3 {
        assert!(began.elapsed() < PATIENCE, "the intent's lease runs out");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.obstacles.refuse(false);
    for id in [id, intent] {
        let ended = world.ended(id).await;
        assert_eq!((ended.state, ended.attempts), (State::Acked, 1));
    }
    assert_eq!(world.read("ran"), "x\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_others_are_faster_than_again_and_again_is_not_given_up_du_116() {
    let world = World::new();
    world.python("counter", "", COUNTS);
    let runtime = world.start("").await;
    let first = run(&runtime, "counter", "poll", Value::Null).await;
    world.ended(first).await;
    // More than one series of retries, so that the retry after a delay is covered, too.
    let rivals = 120;
    world.obstacles.send_rivals(rivals);
    let id = run(&runtime, "counter", "poll", Value::Null).await;
    let ended = world.ended(id).await;
    assert_eq!((ended.state, ended.attempts), (State::Acked, 1));
    assert_eq!(world.obstacles.met(), rivals);
    assert_eq!(world.read("ran"), "xx", "it ran again");
    assert_eq!(world.log(id, 1).await.status.as_str(), "succeeded");
    let state = world.record(records::state_key("counter")).await.unwrap();
    let state: records::PluginState = serde_json::from_str(&state.value).unwrap();
    assert_eq!(state.state["seen"], 1);
    runtime.stop(Duration::from_secs(10)).await;
}
