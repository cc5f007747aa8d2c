//! Bulk jobs: each row that matched at the beginning is treated once, whatever happens to the process.

use consign_engine::{BulkJob, BulkRunner, BulkState, Operator, OperatorAction};
use consign_kernel::command::{Admit, Answer, Command, NewIntent, Operate, Settlement};
use consign_kernel::filter::Filter;
use consign_kernel::ids::IntentId;
use consign_kernel::profile::Face;
use consign_kernel::state::{State, Verb};
use consign_store::TypedReads as _;

use crate::world::{World, claim, intent};

impl World {
    /// So many dead letters.
    async fn dead(&self, count: usize) -> Vec<IntentId> {
        let mut ids = Vec::new();
        for piece in 0..count.div_ceil(500) {
            let items = vec![intent(); 500.min(count - piece * 500)];
            let admit = Command::Admit(Admit { items, cap: None });
            let Answer::Admitted(made) = self.engine.apply(None, admit).await.unwrap() else {
                panic!("an admission answers with its intents");
            };
            let cancels = made.iter().map(|row| cancel(row.id)).collect();
            let answers = self.engine.execute(None, cancels).await.unwrap();
            assert!(answers.iter().all(Result::is_ok));
            ids.extend(made.iter().map(|row| row.id));
        }
        ids
    }

    async fn begin(&self, action: OperatorAction, filter: &str) -> BulkJob {
        let (operator, filter) = (Operator::vouched(), Filter::parse(filter).unwrap());
        let job = self.engine.start_bulk(operator, action, &filter).await;
        job.unwrap()
    }

    async fn job(&self, id: &str) -> BulkJob {
        let found = self.engine.bulk_job(Operator::vouched(), id).await;
        found.unwrap().unwrap()
    }

    /// Carries all jobs on until nothing is left.
    async fn finish(&self, runner: &mut BulkRunner) {
        while runner.tick().await.unwrap() {}
    }

    /// How often each row was put back into the queue.
    async fn requeues(&self, id: IntentId) -> usize {
        let row = self.store.intent(id).await.unwrap().unwrap();
        let facts = self.engine.timeline(row.seq).await.unwrap();
        facts
            .iter()
            .filter(|fact| fact.verb == Verb::Requeue)
            .count()
    }
}

fn cancel(id: IntentId) -> Command {
    Command::Cancel(Operate {
        id,
        face: Face::Intent,
        reason: "test".to_owned(),
    })
}

#[tokio::test]
async fn five_thousand_dead_intents_are_retried_once_each_although_the_process_dies() {
    let world = World::new();
    let dead = world.dead(5_000).await;
    let job = world
        .begin(OperatorAction::Retry, "state:dead goal:g")
        .await;
    assert_eq!(job.matching, Some(5_000));
    let mut first = BulkRunner::new(world.engine.clone());
    for _ in 0..7 {
        assert!(first.tick().await.unwrap());
    }
    // It dies after a commit whose answers it did not count.
    drop(first);
    let mut second = BulkRunner::new(world.restarted_with_seal([8; 32]));
    assert!(
        !second.tick().await.unwrap(),
        "the job still belongs to the first one"
    );
    world.clock.advance_s(11);
    world.finish(&mut second).await;
    let job = world.job(&job.id).await;
    assert_eq!(
        (job.state, job.done, job.refused_count()),
        (BulkState::Done, 5_000, 0)
    );
    for id in dead.iter().step_by(97) {
        assert_eq!(world.requeues(*id).await, 1);
    }
    let counts = world
        .engine
        .counts(Operator::vouched(), Face::Intent)
        .await
        .unwrap();
    let open: Vec<(State, u64)> = counts
        .iter()
        .map(|count| (count.state, count.count))
        .collect();
    assert_eq!(open, [(State::Queued, 5_000)]);
}

#[tokio::test]
async fn a_job_treats_only_what_matched_when_it_began() {
    let world = World::new();
    let before = world.dead(120).await;
    let alive = world.publish(intent()).await;
    let job = world.begin(OperatorAction::Retry, "state:dead").await;
    let after = world.dead(3).await;
    world.engine.apply(None, cancel(alive)).await.unwrap();
    let mut runner = BulkRunner::new(world.engine.clone());
    assert!(runner.tick().await.unwrap());
    // One of the rows that are not treated yet is retried by hand, and dies again.
    let operator = Operator::vouched();
    let again = before[0];
    world
        .engine
        .requeue(operator, Face::Intent, again, "by hand")
        .await
        .unwrap();
    world.engine.apply(None, cancel(again)).await.unwrap();
    world.finish(&mut runner).await;
    let job = world.job(&job.id).await;
    assert_eq!((job.state, job.done), (BulkState::Done, 119));
    for id in after.iter().chain([&alive]) {
        assert_eq!(world.requeues(*id).await, 0);
    }
    assert_eq!(world.requeues(again).await, 1, "by hand alone");
}

#[tokio::test]
async fn rows_that_cannot_be_changed_are_counted_by_their_reason() {
    let world = World::new();
    for _ in 0..3 {
        world.publish(intent()).await;
    }
    let claimed = world
        .engine
        .claim(None, claim(), std::time::Duration::ZERO)
        .await
        .unwrap();
    world
        .settle(&claimed[0], Settlement::Complete { result: None })
        .await;
    let held = world
        .engine
        .claim(None, claim(), std::time::Duration::ZERO)
        .await
        .unwrap();
    let mut job = intent();
    job.profile = consign_kernel::profile::ProfileId::Automation;
    world.publish(NewIntent { ..job }).await;
    let mut runner = BulkRunner::new(world.engine.clone());
    let deleting = world.begin(OperatorAction::Delete, "goal:g").await;
    world.finish(&mut runner).await;
    let deleted = world.job(&deleting.id).await;
    assert_eq!((deleted.done, deleted.refused_count()), (2, 2));
    assert_eq!(
        (deleted.refused["held"], deleted.refused["not_allowed"]),
        (1, 1)
    );
    assert!(
        deleted
            .refusals
            .iter()
            .any(|refusal| refusal.id == held[0].id.to_string())
    );
}

#[tokio::test]
async fn a_job_that_is_cancelled_ends_after_its_piece_and_counts_it() {
    let world = World::new();
    world.dead(200).await;
    let job = world.begin(OperatorAction::Retry, "state:dead").await;
    let mut runner = BulkRunner::new(world.engine.clone());
    assert!(runner.tick().await.unwrap());
    let asked = world
        .engine
        .cancel_bulk(Operator::vouched(), &job.id)
        .await
        .unwrap();
    assert_eq!(asked.unwrap().state, BulkState::Cancelling);
    world.finish(&mut runner).await;
    let job = world.job(&job.id).await;
    assert_eq!((job.state, job.done), (BulkState::Cancelled, 50));
    let listed = world.engine.bulk_jobs(Operator::vouched()).await.unwrap();
    assert_eq!(listed, [job]);
}
