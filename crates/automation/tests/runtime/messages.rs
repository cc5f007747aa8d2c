//! Messages that start pipelines, on rows as the message bus stores them.

use std::sync::Arc;

use consign_automation::runtime::{
    IncomingMessage, MessageBus, MessageInbox, OutgoingMessage, SendError, SendFuture,
};
use consign_engine::{Lease, Operator, UnitOfWork};
use consign_kernel::command::{Begin, FirstStep, Hold, NewIntent, Settlement};
use consign_kernel::ids::{IntentId, SECOND_US, Seq};
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::limits;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::{State, Verb};

use crate::world::{OK, PATIENCE, WAITS, World};

const AGENT: &str = "bob@acme.beam.directory";
const INTENT: &str = "agent.ping";
const CONFIG: &str = "
plugins: {keep: {}}
beam: {receive: [{agent: bob@acme.beam.directory, intent: agent.ping}]}
pipelines: [{name: p, on: message.received, steps: [{uses: keep}]}]
";

/// Reads rows whose payload is that of the message; it sends nothing.
#[derive(Debug)]
struct PlainBus;

impl MessageBus for PlainBus {
    fn signs_for(&self, _: &str) -> bool {
        false
    }

    fn send(&self, _: OutgoingMessage) -> SendFuture<'_> {
        Box::pin(async { Err(SendError::Refused("it sends nothing".to_owned())) })
    }

    fn inbox(&self, _: &str) -> Option<MessageInbox> {
        Some(MessageInbox {
            face: Face::Beam,
            namespace: "bus".to_owned(),
            owner: AGENT.to_owned(),
            granted: "beam.bob.acme".to_owned(),
        })
    }

    fn read(&self, row: &Intent) -> Option<IncomingMessage> {
        Some(IncomingMessage {
            sender: row.ties.sender.clone()?,
            payload: row.payload.clone(),
            nonce: "n".to_owned(),
            trace_id: None,
        })
    }
}

/// A message that was delivered and waits for its recipient.
async fn delivered(world: &World) -> IntentId {
    let engine = &world.engine;
    let mut unit = UnitOfWork::default();
    let begun = unit.begin(Begin {
        id: IntentId::new(engine.now(), Seq(0), engine.entropy().draw()),
        item: NewIntent {
            profile: ProfileId::BeamBus,
            namespace: "bus".to_owned(),
            goal: INTENT.to_owned(),
            owner: AGENT.to_owned(),
            public: true,
            target: None,
            capability: None,
            priority: 0,
            payload: r#"{"message":"hello"}"#.to_owned(),
            traceparent: None,
            delay_us: 0,
            ttl_us: limits::RETENTION_US,
            attempts_max: 5,
            backoff_us: SECOND_US,
            once: None,
            ties: Ties {
                sender: Some("alice@acme.beam.directory".to_owned()),
                ..Ties::default()
            },
            unless: None,
        },
        hold: Some(Hold {
            holder: "bus/1".to_owned(),
            lease_us: 60 * SECOND_US,
        }),
        within: None,
        walk: vec![FirstStep {
            verb: Verb::Claim,
            detail: None,
        }],
        detail: None,
    });
    let row = engine.commit(unit).await.unwrap().get(begun).unwrap();
    let settle = Lease::of(&row).settle(Settlement::Deliver);
    engine.settle(settle).await.unwrap();
    row.id
}

/// Ends the lease of the holder, as time would.
async fn offered_again(world: &World, id: IntentId) {
    let held = world.intent(id).await;
    assert_eq!(held.state, State::Dispatched);
    let lost = Lease::of(&held).settle(Settlement::GiveBack);
    world.engine.settle(lost).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_offered_again_while_its_pipeline_runs_starts_it_once() {
    let world = World::new();
    world.plugin("keep", &format!("echo ran >> $here/ran; {WAITS}{OK}"));
    let _runtime = world.start_with_bus(CONFIG, Arc::new(PlainBus)).await;
    let id = delivered(&world).await;
    let holds =
        |row: &Intent| row.state == State::Dispatched && row.holder.as_deref() == Some("main");
    let first = world.until(id, holds).await.token;
    world.until(id, |_| world.path("began").exists()).await;
    offered_again(&world, id).await;
    let is_taken = |row: &Intent| holds(row) && row.token != first;
    world.until(id, is_taken).await;
    std::fs::write(world.path("go"), "").unwrap();
    let acked = world.ended(id).await;
    assert_eq!(acked.state, State::Acked, "{acked:?}");
    assert_eq!(world.read("ran"), "ran\n", "the pipeline ran once");
    let walked = world.engine.timeline(acked.seq).await.unwrap();
    let ends = walked.iter().filter(|fact| fact.to == State::Acked);
    assert_eq!(ends.count(), 1);
}

/// Waits until the service has these grants.
async fn until_granted(world: &World, expected: &[&str]) {
    let began = std::time::Instant::now();
    loop {
        let grants = world.engine.grants(Operator::vouched()).await.unwrap();
        let own = grants.iter().filter(|grant| grant.key_id == "automation");
        let own: Vec<&str> = own.map(|grant| grant.namespace.as_str()).collect();
        if own == expected {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{own:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_grant_of_an_agent_lives_as_long_as_its_entry() {
    let world = World::new();
    world.plugin("keep", OK);
    let runtime = world.start_with_bus(CONFIG, Arc::new(PlainBus)).await;
    until_granted(&world, &["beam.bob.acme"]).await;
    let without = world.program("plugins: {keep: {}}");
    runtime.reload(without).await.unwrap();
    until_granted(&world, &[]).await;
    let left = delivered(&world).await;
    runtime.reload(world.program(CONFIG)).await.unwrap();
    until_granted(&world, &["beam.bob.acme"]).await;
    assert_eq!(world.ended(left).await.state, State::Acked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_job_is_cancelled_fails() {
    let world = World::new();
    world.plugin("keep", &format!("{WAITS}{OK}"));
    let runtime = world.start_with_bus(CONFIG, Arc::new(PlainBus)).await;
    let id = delivered(&world).await;
    world.until(id, |_| world.path("began").exists()).await;
    let jobs = world.engine.open_jobs("core.receive", None, 10).await;
    let job = jobs.unwrap()[0].id;
    runtime.cancel(job, "not wanted").await.unwrap();
    let failed = world.ended(id).await;
    assert_eq!(failed.state, State::Failed, "{failed:?}");
    assert!(failed.last_error.unwrap().contains("not wanted"));
    std::fs::write(world.path("go"), "").unwrap();
}
