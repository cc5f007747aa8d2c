//! Intents with different ends, and an operator who reads them.

use std::time::Duration;

use consign_beam::lifecycle::state_word;
use consign_beam::settings::BeamSettings;
use consign_kernel::state::State;
use serde_json::{Value, json};

use crate::admin::{VIEWER, log_in, with_roles};
use crate::world::{Answer, Identity, TestSocket, World};

/// A reader with a session.
pub(crate) struct Viewer<'a> {
    world: &'a World,
    bearer: String,
}

impl<'a> Viewer<'a> {
    pub(crate) async fn of(world: &'a World) -> Self {
        let bearer = log_in(world, VIEWER).await;
        Self { world, bearer }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let headers = [("authorization", self.bearer.as_str())];
        self.world.request("GET", path, &headers, None).await
    }

    pub(crate) async fn trace(&self, nonce: &str) -> Value {
        let answer = self.get(&format!("/observability/intents/{nonce}")).await;
        assert_eq!(answer.status, 200, "{nonce}: {}", answer.text);
        answer.json()
    }

    pub(crate) async fn total(&self, query: &str) -> i64 {
        let answer = self.get(&format!("/observability/intents?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text);
        let body = answer.json();
        let listed = body["intents"].as_array().unwrap().len();
        let total = body["total"].as_i64().unwrap();
        assert_eq!(i64::try_from(listed).unwrap(), total, "{query}");
        total
    }
}

/// Sends an intent while the recipient answers as told.
pub(crate) async fn exchange(
    world: &World,
    (alice, bob): (&Identity, &Identity),
    socket: &mut TestSocket,
    nonce: &str,
    answer: Option<&Value>,
) -> Answer {
    let frame = alice.message(world, bob, nonce);
    let sending = world.post("/intents/send", &frame);
    let answering = async {
        let message = socket.next_json().await.unwrap();
        assert_eq!(message["frame"]["nonce"], nonce);
        if let Some(answer) = answer {
            socket.send(answer).await;
        }
    };
    tokio::join!(sending, answering).0
}

/// One intent for each end: acked, failed by the recipient, timed out, offline, acked when sent again, and acked after its
/// timeout. The names are the nonces.
pub(crate) async fn send_all(world: &World) -> (Identity, Identity) {
    let (alice, bob) = world.alice_and_bob().await;
    for nonce in ["offline", "again"] {
        let frame = alice.message(world, &bob, nonce);
        let refused = world.post("/intents/send", &frame).await;
        assert_eq!(refused.error(), (503, "OFFLINE".to_owned()));
    }
    let mut socket = world.connect(&bob.beam_id).await;
    let parties = (&alice, &bob);
    for nonce in ["acked", "again"] {
        let result = bob.result(nonce, &json!({}));
        let sent = exchange(world, parties, &mut socket, nonce, Some(&result)).await;
        assert_eq!(sent.status, 200, "{}", sent.text);
    }
    let failure = bob.failure("refused", "NO_FUNDS");
    let sent = exchange(world, parties, &mut socket, "refused", Some(&failure)).await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    for nonce in ["late", "timeout"] {
        let sent = exchange(world, parties, &mut socket, nonce, None).await;
        assert_eq!(sent.error(), (504, "TIMEOUT".to_owned()));
    }
    socket.send(&bob.result("late", &json!({}))).await;
    (alice, bob)
}

pub(crate) fn with_short_timeout(settings: &mut BeamSettings) {
    with_roles(settings);
    settings.result_timeout = Some(Duration::from_millis(300));
}

/// Waits for the state of an intent.
pub(crate) async fn until(viewer: &Viewer<'_>, nonce: &str, state: State) -> Value {
    for _ in 0..200 {
        let trace = viewer.trace(nonce).await;
        if trace["intent"]["status"] == state_word(state) {
            return trace;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{nonce} is never {}", state_word(state));
}
