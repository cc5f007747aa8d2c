//! A server that ends in the middle of its relays, and its next start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_beam::outbound::{AddressGuard, AllowedTargets};
use consign_testkit::ledger::Ledger;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::world::{Identity, World};

/// What the first start left behind.
struct Left {
    ledger: Arc<Ledger>,
    /// An intent that the recipient has and did not answer.
    delivered: Value,
    /// An intent whose endpoint did not answer yet.
    dispatched: Value,
}

/// Ends a server as a kill does: none of its tasks takes another step.
fn killed_server(timeout: Duration) -> Left {
    let runtime = Runtime::new().unwrap();
    let left = runtime.block_on(async {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = silent.local_addr().unwrap().to_string();
        let allowed = AllowedTargets::parse(&endpoint).unwrap();
        let world = World::with(|settings| {
            settings.guard = AddressGuard::new(allowed);
            settings.result_timeout = Some(timeout);
        })
        .await;
        let (alice, bob) = world.alice_and_bob().await;
        let carol = Identity::new("carol@acme.beam.directory", 3);
        world.add_agent(&carol).await;
        world
            .allow(&carol.beam_id, "conversation.message", "*")
            .await;
        let url = format!("http://{endpoint}/");
        world
            .change_agent(&carol.beam_id, |agent| {
                agent.http_endpoint = Some(url.clone());
            })
            .await;
        let mut socket = world.connect(&bob.beam_id).await;
        let delivered = alice.message(&world, &bob, "n-delivered");
        let dispatched = alice.message(&world, &carol, "n-dispatched");
        let world = Arc::new(world);
        for frame in [delivered.clone(), dispatched.clone()] {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.post("/intents/send", &frame).await });
        }
        socket.next_json().await.unwrap();
        let _called = silent.accept().await.unwrap();
        world.until_status("n-delivered", "delivered").await;
        world.until_status("n-dispatched", "dispatched").await;
        Left {
            ledger: world.ledger(),
            delivered,
            dispatched,
        }
    });
    runtime.shutdown_background();
    left
}

#[test]
fn be_154_be_155_a_restart_fails_what_was_dispatched_and_waits_for_what_was_delivered() {
    let left = killed_server(Duration::from_mins(1));
    Runtime::new().unwrap().block_on(async {
        let world = World::restarted(left.ledger, "start-2", |_| ()).await;
        let failed = world.until_status("n-dispatched", "failed").await;
        assert_eq!(failed["errorCode"], "DELIVERY_FAILED");
        let open = world.until_status("n-delivered", "delivered").await;
        assert_eq!(open["errorCode"], Value::Null);
        let answer = world.post("/intents/send", &left.delivered).await;
        assert_eq!(answer.error(), (409, "IN_PROGRESS".to_owned()));
        // The recipient reconnects and answers what it got before.
        let bob = Identity::bob();
        let mut socket = world.connect(&bob.beam_id).await;
        let payload = json!({"message": "after the restart"});
        socket.send(&bob.result("n-delivered", &payload)).await;
        world.until_status("n-delivered", "acked").await;
        for _ in 0..2 {
            let answer = world.post("/intents/send", &left.delivered).await;
            assert_eq!((answer.status, &answer.json()["payload"]), (200, &payload));
        }
        // What failed without an answer may be sent again; its agent has only an endpoint, which is not allowed here.
        let answer = world.post("/intents/send", &left.dispatched).await;
        assert_eq!(answer.error(), (503, "OFFLINE".to_owned()));
    });
}

#[test]
fn be_154_a_delivered_intent_past_its_timeout_fails_after_the_restart() {
    let left = killed_server(Duration::from_millis(1_500));
    Runtime::new().unwrap().block_on(async {
        tokio::time::sleep(Duration::from_millis(1_600)).await;
        let world = World::restarted(left.ledger, "start-2", |_| ()).await;
        // It has failed before the first request.
        let recent = world.get("/intents/recent").await.json();
        let failed = recent["intents"].as_array().unwrap().iter();
        let failed = failed.clone().find(|row| row["nonce"] == "n-delivered");
        assert_eq!(failed.unwrap()["status"], "failed");
        assert_eq!(failed.unwrap()["errorCode"], "TIMEOUT");
        let trace = world.trace("n-delivered").await;
        let details = &trace.last().unwrap().1;
        assert_eq!(details["recoveryAction"], "timeout_after_restart");
        assert_eq!(details["recoveredOnBoot"], true);
    });
}

#[test]
fn be_154_a_delivered_intent_fails_at_its_timeout_after_the_restart() {
    let left = killed_server(Duration::from_secs(4));
    Runtime::new().unwrap().block_on(async {
        let began = Instant::now();
        let often = Duration::from_millis(50);
        let world = World::restarted(left.ledger, "start-2", |settings| {
            settings.recovery_sweep = often;
        })
        .await;
        world.until_status("n-delivered", "delivered").await;
        let failed = world.until_status("n-delivered", "failed").await;
        assert_eq!(failed["errorCode"], "TIMEOUT");
        assert!(
            began.elapsed() < Duration::from_secs(7),
            "the lease would end five seconds later"
        );
        let trace = world.trace("n-delivered").await;
        let details = &trace.last().unwrap().1;
        assert_eq!(details["recoveryAction"], "timeout_without_waiter");
        assert_eq!(details["timeoutMs"], 4_000);
    });
}

#[test]
fn be_154_the_sweep_ends_delivered_intents_at_its_interval_and_not_before() {
    let left = killed_server(Duration::from_millis(2_500));
    Runtime::new().unwrap().block_on(async {
        let world = World::restarted(left.ledger, "start-2", |settings| {
            settings.recovery_sweep = Duration::from_secs(5);
        })
        .await;
        world.until_status("n-delivered", "delivered").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        // Its time is over, and no sweep has seen it yet.
        world.until_status("n-delivered", "delivered").await;
        world.until_status("n-delivered", "failed").await;
        let trace = world.trace("n-delivered").await;
        let details = &trace.last().unwrap().1;
        assert_eq!(details["recoveryAction"], "timeout_without_waiter");
        assert_eq!(details["timeoutMs"], 2_500);
    });
}
