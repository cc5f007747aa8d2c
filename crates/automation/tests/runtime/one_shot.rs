//! One-shot mode: which jobs run, and which are left to a service.

use consign_automation::runtime::Runtime;
use consign_kernel::ids::IntentId;
use consign_kernel::state::State;
use serde_json::Value;

use crate::world::{OK, WAITS, World, keyed, run};

/// A plugin that waits until it may end, and one that ends at once; jobs of the first are queued for a service.
struct Left {
    world: World,
    one_shot: Runtime,
    waiting: Vec<IntentId>,
}

impl Left {
    async fn with(parallelism: usize) -> Self {
        let world = World::new();
        world.plugin("slow", &format!("echo x >> $here/ran; {WAITS}{OK}"));
        world.plugin("quick", OK);
        let config = format!(
            "service: {{max_workers: 4}}\nplugins: {{slow: {{parallelism: {parallelism}}}, quick: {{}}}}"
        );
        let service = world.idle(&config);
        let mut waiting = Vec::new();
        for _ in 0..2 {
            waiting.push(run(&service, "slow", "work", Value::Null).await);
        }
        let one_shot = world.start_one_shot(&config).await;
        Self {
            world,
            one_shot,
            waiting,
        }
    }

    async fn is_running(&self, id: IntentId) {
        let is_held = |intent: &consign_kernel::intent::Intent| intent.state == State::Dispatched;
        self.world.until(id, is_held).await;
    }

    /// When the second one has ended, all other jobs were considered at least once.
    async fn looks_again(&self) {
        for _ in 0..2 {
            let quick = run(&self.one_shot, "quick", "work", Value::Null).await;
            assert_eq!(self.world.ended(quick).await.state, State::Acked);
        }
    }

    async fn is_untouched(&self, id: IntentId) {
        let job = self.world.intent(id).await;
        assert_eq!((job.state, job.attempts), (State::Queued, 0));
    }

    /// Lets these end, and checks that the others are still queued.
    async fn ends(&self, asked: &[IntentId]) {
        std::fs::write(self.world.path("go"), "").unwrap();
        for id in asked {
            assert_eq!(self.world.ended(*id).await.state, State::Acked);
        }
        for id in &self.waiting {
            self.is_untouched(*id).await;
        }
        assert_eq!(self.world.read("ran").lines().count(), asked.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_runs_is_not_asked_for_again() {
    let left = Left::with(4).await;
    let job = run(&left.one_shot, "slow", "work", Value::Null).await;
    left.is_running(job).await;
    left.looks_again().await;
    left.ends(&[job]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_behind_another_of_its_key_is_not_asked_for_before_its_turn() {
    let left = Left::with(4).await;
    let keyed = async || {
        let job = keyed("slow", "work", "k");
        left.one_shot.enqueue(job, None).await.unwrap().id
    };
    let first = keyed().await;
    left.is_running(first).await;
    let second = keyed().await;
    left.looks_again().await;
    left.is_untouched(second).await;
    left.ends(&[first, second]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_beyond_the_cap_of_its_plugin_begins_when_there_is_room() {
    let left = Left::with(1).await;
    let first = run(&left.one_shot, "slow", "work", Value::Null).await;
    left.is_running(first).await;
    let second = run(&left.one_shot, "slow", "work", Value::Null).await;
    left.looks_again().await;
    left.is_untouched(second).await;
    left.ends(&[first, second]).await;
}
