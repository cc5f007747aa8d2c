//! Posts and queue items of a mesh that start pipelines, on rows as the broker stores them.

use std::sync::{Arc, Mutex};

use consign_automation::config::model::{MeshFeed, MeshSource};
use consign_automation::runtime::{MeshFuture, MeshWork, MessageInbox};
use consign_engine::{Operator, UnitOfWork};
use consign_kernel::command::NewIntent;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::limits;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;
use serde_json::{Value, json};

use crate::world::{OK, PATIENCE, World};

const CONFIG: &str = "
plugins: {keep: {}}
mesh: {receive: [{mesh: acme, topic: alerts, event: alerted}]}
pipelines: [{name: p, on: alerted, steps: [{uses: keep}]}]
";

/// One queue for all sources, whose rows belong to the source that they name.
#[derive(Debug, Default)]
struct OneQueue {
    /// What was opened, and what was kept, in their order.
    calls: Mutex<Vec<String>>,
    /// How many times opening fails.
    failures: Mutex<u32>,
}

impl OneQueue {
    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl MeshWork for OneQueue {
    fn inbox(&self, source: &MeshSource) -> Option<MessageInbox> {
        Some(MessageInbox {
            face: Face::Mesh,
            namespace: "mesh.queue".to_owned(),
            owner: source.mesh.clone(),
            granted: "mesh.acme.queue".to_owned(),
        })
    }

    fn open<'a>(&'a self, source: &'a MeshSource) -> MeshFuture<'a> {
        Box::pin(async move {
            let mut failures = self.failures.lock().unwrap();
            if *failures > 0 {
                *failures -= 1;
                return Err("there is no topic alerts in this mesh".to_owned());
            }
            self.calls.lock().unwrap().push(format!("open {source}"));
            Ok(())
        })
    }

    fn close_others<'a>(&'a self, sources: &'a [MeshSource]) -> MeshFuture<'a> {
        Box::pin(async move {
            let kept = format!("keep {}", sources.len());
            self.calls.lock().unwrap().push(kept);
            Ok(())
        })
    }

    fn read(&self, row: &Intent, source: &MeshSource) -> Option<Value> {
        let item: Value = serde_json::from_str(&row.payload).ok()?;
        let MeshFeed::Topic(topic) = &source.feed else {
            return None;
        };
        (item["topic"] == topic.as_str()).then_some(item)
    }
}

/// An item that a post to a topic made.
async fn posted(world: &World, topic: &str) -> IntentId {
    let mut unit = UnitOfWork::default();
    let admitted = unit.admit(vec![NewIntent {
        profile: ProfileId::MeshQueue,
        namespace: "mesh.queue".to_owned(),
        goal: "queue".to_owned(),
        owner: "acme".to_owned(),
        public: false,
        target: None,
        capability: None,
        priority: 0,
        payload: json!({"message_id": "m-1", "topic": topic, "ciphertext": "aGVsbG8="}).to_string(),
        traceparent: None,
        delay_us: 0,
        ttl_us: limits::RETENTION_US,
        attempts_max: limits::ATTEMPTS_DEFAULT,
        backoff_us: SECOND_US,
        once: None,
        ties: Ties::default(),
        unless: None,
    }]);
    let mut committed = world.engine.commit(unit).await.unwrap();
    committed.get(admitted).unwrap()[0].id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_post_runs_its_pipeline_and_is_settled_when_it_has_ended() {
    let world = World::new();
    world.plugin(
        "keep",
        &format!(r#"printf '%s' "$request" > $here/got; {OK}"#),
    );
    let mesh = Arc::new(OneQueue::default());
    let _runtime = world.start_with_mesh(CONFIG, mesh.clone()).await;
    let id = posted(&world, "alerts").await;
    let ended = world.ended(id).await;
    assert_eq!(ended.state, State::Acked, "{ended:?}");
    let got: Value = serde_json::from_str(&world.read("got")).unwrap();
    assert_eq!(got["event"]["type"], "alerted", "{got}");
    assert_eq!(got["event"]["payload"]["message_id"], "m-1", "{got}");
    assert_eq!(got["event"]["payload"]["ciphertext"], "aGVsbG8=", "{got}");
    let (job, row) = &world.jobs_are("core.receive", 1).await[0];
    assert_eq!(row.state, State::Acked);
    assert_eq!(job.source_event_id, Some(id.to_string()));
    // The grant is made after the source is open, because the first claim is refused.
    let open = "open topic alerts of mesh acme";
    assert_eq!(mesh.calls(), ["keep 1", open, open]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_post_whose_pipeline_fails_is_a_dead_letter_that_can_be_requeued() {
    let world = World::new();
    world.plugin(
        "keep",
        &format!(
            r#"echo ran >> $here/ran; [ -e $here/yes ] || {{ echo '{{"status":"error","error":"refused it","retry":false}}'; exit; }}; {OK}"#
        ),
    );
    let _runtime = world
        .start_with_mesh(CONFIG, Arc::new(OneQueue::default()))
        .await;
    let id = posted(&world, "alerts").await;
    let dead = world.ended(id).await;
    assert_eq!(dead.state, State::DeadLetter, "{dead:?}");
    let error = dead.last_error.unwrap();
    assert!(error.contains("refused it"), "{error}");
    assert_eq!(world.read("ran"), "ran\n", "it is not tried again");
    std::fs::write(world.path("yes"), "").unwrap();
    let engine = &world.engine;
    let requeued = engine.requeue(Operator::vouched(), Face::Mesh, id, "again");
    requeued.await.unwrap();
    let acked = world.until(id, |row| row.state == State::Acked).await;
    assert_eq!(acked.state, State::Acked, "{acked:?}");
    assert_eq!(world.read("ran"), "ran\nran\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_is_no_post_to_the_topic_is_a_dead_letter_and_runs_nothing() {
    let world = World::new();
    world.plugin("keep", &format!("echo ran >> $here/ran; {OK}"));
    let _runtime = world
        .start_with_mesh(CONFIG, Arc::new(OneQueue::default()))
        .await;
    let foreign = posted(&world, "other").await;
    let dead = world.ended(foreign).await;
    assert_eq!(dead.state, State::DeadLetter, "{dead:?}");
    let error = dead.last_error.unwrap();
    assert!(
        error.contains("it is no message of topic alerts of mesh acme"),
        "{error}"
    );
    assert_eq!(world.read("ran"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_missing_at_the_start_is_received_when_it_is_there() {
    let world = World::new();
    world.plugin("keep", OK);
    let mesh = Arc::new(OneQueue {
        failures: Mutex::new(1),
        ..OneQueue::default()
    });
    let _runtime = world.start_with_mesh(CONFIG, mesh.clone()).await;
    let id = posted(&world, "alerts").await;
    assert_eq!(world.ended(id).await.state, State::Acked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_is_removed_ends_what_it_began() {
    let world = World::new();
    world.plugin("keep", OK);
    let mesh = Arc::new(OneQueue::default());
    let runtime = world.start_with_mesh(CONFIG, mesh.clone()).await;
    let id = posted(&world, "alerts").await;
    assert_eq!(world.ended(id).await.state, State::Acked);
    let without = world.program("plugins: {keep: {}}");
    runtime.reload(without).await.unwrap();
    let began = std::time::Instant::now();
    while mesh.calls().last().map(String::as_str) != Some("keep 0") {
        assert!(began.elapsed() < PATIENCE, "{:?}", mesh.calls());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let grants = world.engine.grants(Operator::vouched()).await.unwrap();
    assert!(grants.is_empty(), "{grants:?}");
}
