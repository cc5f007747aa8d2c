//! The traces of intents.

use consign_beam::lifecycle::{TransitionContext, check_transition, parse_state, state_word};
use consign_beam::outbound::{AddressGuard, AllowedTargets};
use consign_beam::timestamp;
use consign_engine::UnitOfWork;
use consign_kernel::command::{Begin, NewIntent, OnceGuard};
use consign_kernel::ids::{IntentId, Micros, SECOND_US, Seq};
use consign_kernel::intent::Ties;
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::ProfileId;
use consign_kernel::state::State;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::admin::with_roles;
use crate::observed::{Viewer, exchange, send_all, until, with_short_timeout};
use crate::world::World;

fn words(trace: &Value) -> Vec<&str> {
    let stages = trace["stages"].as_array().unwrap().iter();
    stages
        .map(|stage| stage["stage"].as_str().unwrap())
        .collect()
}

/// The first stage is a start, every next one a legal step, and the last one the state of the intent.
#[track_caller]
fn assert_legal(trace: &Value) {
    let nonce = trace["intent"]["nonce"].as_str().unwrap().to_owned();
    let mut from = None;
    for word in words(trace) {
        let to = parse_state(word).unwrap();
        let context = TransitionContext::Trace {
            nonce: nonce.clone(),
        };
        check_transition(context, from, to).unwrap();
        from = Some(to);
    }
    let last = from.map(state_word);
    assert_eq!(last, trace["intent"]["status"].as_str(), "{trace}");
}

#[tokio::test]
async fn be_008_every_trace_is_a_walk_of_legal_edges() {
    let world = World::with(with_short_timeout).await;
    send_all(&world).await;
    let viewer = Viewer::of(&world).await;
    until(&viewer, "late", State::Acked).await;
    for (nonce, ends) in [
        ("acked", &["dispatched", "delivered", "acked"][..]),
        ("refused", &["delivered", "failed"]),
        ("timeout", &["delivered", "failed"]),
        ("offline", &["dispatched", "failed"]),
        ("again", &["failed", "queued", "dispatched"]),
        (
            "late",
            &["failed", "queued", "dispatched", "delivered", "acked"],
        ),
    ] {
        let trace = viewer.trace(nonce).await;
        assert_legal(&trace);
        let words = words(&trace);
        assert_eq!(words[..2], ["received", "validated"], "{nonce}");
        let found = words.windows(ends.len()).any(|part| part == ends);
        assert!(found, "{nonce}: {words:?}");
    }
}

#[tokio::test]
async fn be_008_a_trace_that_a_restart_ends_is_legal_too() {
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = silent.local_addr().unwrap().to_string();
    let allowed = target.clone();
    let world = World::with(move |settings| {
        with_roles(settings);
        settings.guard = AddressGuard::new(AllowedTargets::parse(&allowed).unwrap());
    })
    .await;
    let (alice, bob) = world.alice_and_bob().await;
    world
        .change_agent(&bob.beam_id, |agent| {
            agent.http_endpoint = Some(format!("http://{target}/"));
        })
        .await;
    let frame = alice.message(&world, &bob, "interrupted");
    let sending = world.post("/intents/send", &frame);
    // Once the endpoint is called, the intent is stored.
    let (_connection, _) = tokio::select! {
        answer = sending => panic!("{}", answer.text),
        called = silent.accept() => called.unwrap(),
    };
    let ledger = world.ledger();
    drop(world);
    let world = World::restarted(ledger, "start-2", with_roles).await;
    let viewer = Viewer::of(&world).await;
    let trace = viewer.trace("interrupted").await;
    assert_legal(&trace);
    assert_eq!(trace["intent"]["status"], "failed");
    assert_eq!(trace["intent"]["errorCode"], "DELIVERY_FAILED");
    let last = trace["stages"].as_array().unwrap().last().unwrap();
    let expected = json!({
        "transport": "recovery",
        "previousStatus": "dispatched",
        "recoveryAction": "fail_interrupted_intent",
        "recoveredOnBoot": true,
    });
    assert_eq!(last["details"], expected);
}

#[tokio::test]
async fn be_151_a_trace_has_the_stages_with_their_transport() {
    let world = World::with(with_short_timeout).await;
    let (alice, bob) = send_all(&world).await;
    let viewer = Viewer::of(&world).await;
    let trace = viewer.trace("acked").await;
    assert_eq!(trace["audit"], json!([]));
    assert_eq!(trace["shield"], json!([]));
    let intent = trace["intent"].as_object().unwrap();
    for member in [
        "nonce",
        "from",
        "to",
        "intentType",
        "timestamp",
        "completedAt",
        "roundTripLatencyMs",
        "status",
        "errorCode",
    ] {
        assert!(intent.contains_key(member), "{member}");
    }
    assert_eq!(intent["errorCode"], Value::Null);
    for stage in trace["stages"].as_array().unwrap() {
        assert_eq!(stage.as_object().unwrap().len(), 9, "{stage}");
        assert!(stage["id"].is_i64(), "{stage}");
        assert_eq!(stage["nonce"], "acked");
        assert_eq!(stage["from"], alice.beam_id);
        assert_eq!(stage["to"], bob.beam_id);
        assert_eq!(stage["intentType"], "conversation.message");
        assert_eq!(stage["stage"], stage["status"]);
        assert!(stage["details"]["transport"].is_string(), "{stage}");
    }
    let trace = viewer.trace("timeout").await;
    let failed = trace["stages"].as_array().unwrap().last().unwrap();
    assert_eq!(failed["details"]["errorCode"], "TIMEOUT");
    assert_eq!(failed["details"]["timeoutMs"], 300);
    assert_eq!(failed["details"]["transport"], "ws");

    let missing = viewer.get("/observability/intents/unknown").await;
    assert_eq!(missing.json()["error"], "Intent not found");
    assert_eq!(missing.error(), (404, "NOT_FOUND".to_owned()));
    let closed = world.get("/observability/intents/acked").await;
    assert_eq!(closed.error(), (401, "UNAUTHORIZED".to_owned()));
}

#[tokio::test]
async fn be_151_a_message_of_the_bus_has_a_trace_under_its_nonce() {
    let world = World::with(with_roles).await;
    let mut entropy = world.engine.entropy();
    let begin = Begin {
        id: IntentId::new(world.engine.now(), Seq(0), entropy.draw()),
        item: NewIntent {
            profile: ProfileId::BeamBus,
            namespace: "bus".to_owned(),
            goal: "conversation.message".to_owned(),
            owner: "bob@acme.beam.directory".to_owned(),
            public: false,
            target: None,
            capability: None,
            priority: 0,
            payload: "{}".to_owned(),
            traceparent: None,
            delay_us: 0,
            ttl_us: 60 * SECOND_US,
            attempts_max: 5,
            backoff_us: SECOND_US,
            once: Some(OnceGuard {
                key: OnceKey {
                    scope: Scope::BeamBusNonce,
                    owner: String::new(),
                    key: "of-the-bus".to_owned(),
                },
                fingerprint: [0; 32],
                lifetime_us: 60 * SECOND_US,
            }),
            ties: Ties {
                sender: Some("alice@acme.beam.directory".to_owned()),
                ..Ties::default()
            },
            unless: None,
        },
        hold: None,
        within: None,
        walk: Vec::new(),
        detail: Some(json!({"transport": "bus"}).to_string()),
    };
    let mut unit = UnitOfWork::default();
    unit.begin(begin);
    world.engine.commit(unit).await.unwrap();
    let trace = Viewer::of(&world).await.trace("of-the-bus").await;
    assert_eq!(words(&trace), ["received"]);
    assert_eq!(trace["intent"]["nonce"], "of-the-bus");
    assert_eq!(trace["intent"]["from"], "alice@acme.beam.directory");
    assert_eq!(trace["stages"][0]["details"]["transport"], "bus");
}

/// A reader may meet an intent between two steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn be_008_a_trace_that_is_read_while_its_intent_goes_on_ends_with_its_state() {
    let world = World::with(with_roles).await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    let viewer = Viewer::of(&world).await;
    for number in 0..20 {
        let nonce = format!("n-{number}");
        let result = bob.result(&nonce, &json!({}));
        let sending = exchange(&world, (&alice, &bob), &mut socket, &nonce, Some(&result));
        let path = format!("/observability/intents/{nonce}");
        let reading = async {
            loop {
                let read = viewer.get(&path).await;
                if read.status == 404 {
                    continue;
                }
                let trace = read.json();
                assert_legal(&trace);
                if trace["intent"]["status"] == "acked" {
                    break;
                }
            }
        };
        let (sent, ()) = tokio::join!(sending, reading);
        assert_eq!(sent.status, 200, "{}", sent.text);
    }
}

#[tokio::test]
async fn be_156_a_trace_is_in_the_order_of_its_steps() {
    let world = World::with(with_roles).await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    // The clock of the sender is four minutes ahead.
    let ahead = Micros(world.engine.wall().0 + 240 * SECOND_US);
    let ahead = timestamp::format(ahead);
    let payload = json!({"message": "hello"});
    let frame = alice.frame_at(
        &ahead,
        &bob.beam_id,
        "conversation.message",
        &payload,
        "ahead",
    );
    let sending = world.post("/intents/send", &frame);
    let payload = json!({});
    let answering = socket.answer(&bob, &payload);
    let (sent, _) = tokio::join!(sending, answering);
    assert_eq!(sent.status, 200, "{}", sent.text);
    let trace = Viewer::of(&world).await.trace("ahead").await;
    assert_legal(&trace);
    let expected = [
        "received",
        "validated",
        "dispatched",
        "dispatched",
        "delivered",
        "acked",
    ];
    assert_eq!(words(&trace), expected);
    let stages = trace["stages"].as_array().unwrap();
    assert_eq!(stages[0]["timestamp"], ahead);
    for pair in stages.windows(2) {
        assert!(pair[0]["id"].as_i64() < pair[1]["id"].as_i64(), "{trace}");
    }
    for later in &stages[1..] {
        assert!(
            later["timestamp"].as_str().unwrap() < ahead.as_str(),
            "{later}"
        );
    }
}
