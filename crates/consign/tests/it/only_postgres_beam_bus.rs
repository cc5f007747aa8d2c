//! The message bus on two real nodes of one PostgreSQL: what came in at one is read at the other, both retry, and one is killed.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::postgres::Database;
use consign_testkit::process::websocket::WebSocketClient;
use consign_testkit::process::{Options, Server};
use serde_json::{Value, json};

use super::beam_world::{
    BeamAgent, INTENT, OPERATOR, alice_and_bob, assert_no_panic, beam_error, begin_send, count,
    legal_trace, next_intent, send, until_status,
};
use super::only_postgres_nodes::{copy_keys, database, node};
use super::{Place, get, start, word};

/// A node that was killed is noticed within ten seconds; a lease would last longer than this.
const TAKEN_OVER_IN: Duration = Duration::from_secs(25);

/// A database with two nodes, whose buses sign for Alice.
struct BusNodes {
    place: Place,
    database: Database,
}

impl BusNodes {
    fn new() -> Self {
        let (place, database) = (Place::new(), database());
        let alice = BeamAgent::new("alice", 1);
        let bundle = place.path("identities.json");
        std::fs::write(&bundle, json!({"alice": alice.identity()}).to_string()).unwrap();
        std::fs::set_permissions(&bundle, std::fs::Permissions::from_mode(0o600)).unwrap();
        Self { place, database }
    }

    fn options(&self, name: &str, retry_interval_ms: u32) -> Options {
        let bundle = self.place.path("identities.json");
        node(&self.place, &self.database, name)
            .env("BEAM_ADMIN_EMAILS", OPERATOR)
            .env("BEAM_RATE_LIMIT_PER_MIN", "1000000")
            .env("BEAM_BUS_RATE_LIMIT", "1000000")
            .env("BEAM_BUS_IDENTITY_PATH", bundle.to_str().unwrap())
            .env("BEAM_BUS_RETRY_INTERVAL_MS", &retry_interval_ms.to_string())
            .env("BEAM_BUS_RETRY_TIME_SCALE", "0.05")
    }

    fn first(&self, retry_interval_ms: u32) -> Server {
        start(&self.options("one", retry_interval_ms))
    }

    fn second(&self, retry_interval_ms: u32) -> Server {
        copy_keys(&self.place.path("one"), &self.place.path("two"));
        start(&self.options("two", retry_interval_ms))
    }
}

fn send_message(server: &Server, bob: &BeamAgent, nonce: &str) -> Value {
    let message = json!({
        "from": "alice@acme.beam.directory", "to": bob.beam_id, "intent": INTENT,
        "payload": {"message": "hello"}, "nonce": nonce,
    });
    let reply = server.http().post("/v1/beam/send", &message).unwrap();
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()
}

fn history(server: &Server) -> BTreeMap<String, Value> {
    let history = get(&mut server.http(), "/v1/beam/history?limit=500").json();
    let messages = history["messages"].as_array().unwrap();
    let each = messages.iter();
    each.map(|message| (word(&message["nonce"]), message.clone()))
        .collect()
}

/// Waits until all messages have this status.
#[track_caller]
fn until_all(server: &Server, status: &str, limit: Duration) -> BTreeMap<String, Value> {
    let deadline = Instant::now() + limit;
    loop {
        let messages = history(server);
        if messages.values().all(|message| message["status"] == status) {
            return messages;
        }
        assert!(Instant::now() < deadline, "{messages:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Answers everything until the socket is closed, and counts the deliveries by nonce.
fn answer_all(mut socket: WebSocketClient, bob: &BeamAgent) -> Arc<Mutex<BTreeMap<String, u32>>> {
    let delivered = Arc::new(Mutex::new(BTreeMap::new()));
    let (counts, bob) = (Arc::clone(&delivered), bob.clone());
    socket.set_patience(Duration::from_mins(2)).unwrap();
    thread::spawn(move || {
        while let Ok(message) = socket.next_json() {
            let nonce = word(&message["frame"]["nonce"]);
            if socket.send_json(&bob.result(&nonce, "ok")).is_err() {
                return;
            }
            *counts.lock().unwrap().entry(nonce).or_insert(0) += 1;
        }
    });
    delivered
}

/// Reads the events of an agent until one has this state of a message, and returns the states before it.
fn follow_events(server: &Server, agent: &str, last: &str) -> thread::JoinHandle<Vec<String>> {
    let mut stream = server.http().connect().unwrap();
    let path = format!("/v1/beam/events?agent={agent}");
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n",
        server.authority()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines();
    // The stream has begun when its head is there.
    for line in lines.by_ref() {
        if line.unwrap().is_empty() {
            break;
        }
    }
    let last = last.to_owned();
    thread::spawn(move || {
        let mut states = Vec::new();
        for line in lines {
            let line = line.unwrap();
            let Some(data) = line.strip_prefix("data:") else {
                continue;
            };
            let Ok(event) = serde_json::from_str::<Value>(data.trim()) else {
                continue;
            };
            if let Some(state) = event["status"].as_str().or_else(|| event["state"].as_str()) {
                states.push(state.to_owned());
            }
            if states.last() == Some(&last) {
                return states;
            }
        }
        states
    })
}

#[test]
fn be_035_be_039_what_came_in_at_one_node_is_polled_awaited_and_streamed_at_the_other() {
    let nodes = BusNodes::new();
    let one = nodes.first(600_000);
    let two = nodes.second(600_000);
    let (_, bob) = alice_and_bob(&one);
    let delivered = answer_all(bob.connect(&one), &bob);
    let events = follow_events(&two, &bob.beam_id, "acked");
    let poll = format!("/v1/beam/poll?agent={}", bob.beam_id);
    let mut waiting = two.http().patience(Duration::from_secs(30));
    let wait = format!("{poll}&wait=25");
    let asked = Instant::now();
    let waiting = thread::spawn(move || waiting.get(&wait).unwrap().json());

    let sent = send_message(&one, &bob, "n-1");
    assert_eq!(sent["status"], "delivered", "{sent}");
    let awaited = waiting.join().unwrap();
    assert_eq!(
        awaited["messages"][0]["id"], sent["message_id"],
        "{awaited}"
    );
    assert!(asked.elapsed() < Duration::from_secs(15), "a wake came");
    let polled = get(&mut two.http(), &poll).json();
    assert_eq!(polled["messages"], awaited["messages"]);
    // It is acknowledged at the other node, and gone at both.
    let ack =
        json!({"message_id": sent["message_id"], "status": "acked", "response": {"ok": true}});
    let acked = two.http().post("/v1/beam/ack", &ack).unwrap();
    assert_eq!(acked.status, 200, "{}", acked.text());
    for node in [&one, &two] {
        let rest = get(&mut node.http(), &poll).json();
        assert_eq!(rest["messages"], json!([]), "{rest}");
    }
    let states = events.join().unwrap();
    assert_eq!(states, ["received", "dispatched", "delivered", "acked"]);
    assert_eq!(delivered.lock().unwrap().get("n-1"), Some(&1));
    // A repetition at the other node is the same message.
    let message = json!({
        "from": "alice@acme.beam.directory", "to": bob.beam_id, "intent": INTENT,
        "payload": {"message": "hello"}, "nonce": "n-1",
    });
    let again = two.http().post("/v1/beam/send", &message).unwrap();
    assert_eq!(again.json()["message_id"], sent["message_id"]);
    for node in [&one, &two] {
        assert_no_panic(node);
    }
}

#[test]
fn be_032_the_retry_workers_of_two_nodes_deliver_no_message_twice() {
    const MESSAGES: usize = 40;
    let nodes = BusNodes::new();
    let one = nodes.first(20);
    let two = nodes.second(20);
    let (_, bob) = alice_and_bob(&one);
    for number in 0..MESSAGES {
        let server = [&one, &two][number % 2];
        send_message(server, &bob, &format!("n-{number}"));
    }
    let delivered = answer_all(bob.connect(&two), &bob);
    let messages = until_all(&one, "delivered", Duration::from_secs(40));
    assert_eq!(messages.len(), MESSAGES);
    let delivered = delivered.lock().unwrap();
    assert_eq!(delivered.len(), MESSAGES);
    let twice: Vec<_> = delivered.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    for node in [&one, &two] {
        assert_no_panic(node);
    }
}

#[test]
fn be_008_be_045_what_a_killed_node_was_about_to_retry_goes_on_at_the_other_one_within_seconds() {
    const MESSAGES: usize = 10;
    let nodes = BusNodes::new();
    // All messages are due when its worker looks for the first time.
    let mut killed = nodes.first(5_000);
    let (_, bob) = alice_and_bob(&killed);
    for number in 0..MESSAGES {
        send_message(&killed, &bob, &format!("n-{number}"));
    }
    // The worker takes all of them, and the recipient answers none.
    let mut silent = bob.connect(&killed);
    let mut begun = vec![word(&next_intent(&mut silent)["nonce"])];
    let stays = nodes.second(500);
    let mut taken = history(&stays);
    taken.retain(|_, message| message["status"] == "dispatched");
    assert!(taken.len() > 1, "{taken:?}");
    killed.kill9().unwrap();
    let died = Instant::now();
    while let Ok(message) = silent.next_json() {
        begun.push(word(&message["frame"]["nonce"]));
    }
    // What it has received it answers over the other node.
    let mut socket = bob.connect(&stays);
    for nonce in &begun {
        socket.send_json(&bob.result(nonce, "late")).unwrap();
        until_status(&stays, nonce, "acked");
    }
    let delivered = answer_all(socket, &bob);
    let messages = until_all(&stays, "delivered", TAKEN_OVER_IN);
    assert!(died.elapsed() < TAKEN_OVER_IN, "{:?}", died.elapsed());
    assert_eq!(messages.len(), MESSAGES);
    for (nonce, before) in &taken {
        let counts = [before, &messages[nonce]].map(|message| message["retry_count"].as_u64());
        assert_eq!(
            counts[0], counts[1],
            "the interrupted attempt does not count"
        );
    }
    let delivered = delivered.lock().unwrap();
    for nonce in messages.keys() {
        let times = delivered.get(nonce).copied().unwrap_or(0);
        let expected = u32::from(!begun.contains(nonce));
        assert_eq!(times, expected, "{nonce}: {begun:?}");
    }
    assert_no_panic(&stays);
}

#[test]
fn be_154_an_intent_that_a_killed_node_had_dispatched_fails_within_seconds_and_may_be_sent_again() {
    let nodes = BusNodes::new();
    let stays = nodes.first(600_000);
    // Its endpoint accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = silent.local_addr().unwrap().to_string();
    copy_keys(&nodes.place.path("one"), &nodes.place.path("two"));
    let options = nodes.options("two", 600_000);
    let mut killed = start(&options.env("BEAM_ALLOW_TARGETS", &endpoint));
    let (alice, bob) = alice_and_bob(&killed);
    let mut registration = bob.registration();
    registration["httpEndpoint"] = json!(format!("http://{endpoint}/"));
    let registered = killed
        .http()
        .post("/agents/register", &registration)
        .unwrap();
    assert!(
        [200, 201].contains(&registered.status),
        "{}",
        registered.text()
    );
    let frame = alice.message(&bob, "n-1");
    let sending = begin_send(&killed, &frame);
    let _called = silent.accept().unwrap();
    until_status(&stays, "n-1", "dispatched");
    killed.kill9().unwrap();
    sending.join().unwrap().unwrap_err();
    let early = send(&mut stays.http(), &frame);
    assert_eq!(beam_error(&early), (409, "IN_PROGRESS".to_owned()));
    let deadline = Instant::now() + TAKEN_OVER_IN;
    while legal_trace(&stays, "n-1").last().unwrap() != "failed" {
        assert!(
            Instant::now() < deadline,
            "{:?}",
            legal_trace(&stays, "n-1")
        );
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(until_status(&stays, "n-1", "failed"), "DELIVERY_FAILED");
    // The node that is left may not call the endpoint, but it has the socket now.
    let mut socket = bob.connect(&stays);
    let sending = begin_send(&stays, &frame);
    assert_eq!(next_intent(&mut socket), frame);
    socket.send_json(&bob.result("n-1", "again")).unwrap();
    let answer = sending.join().unwrap().unwrap();
    assert_eq!(
        answer.json()["payload"]["message"],
        "again",
        "{}",
        answer.text()
    );
    let trace = legal_trace(&stays, "n-1");
    assert_eq!(
        (count(&trace, "delivered"), count(&trace, "acked")),
        (1, 1),
        "{trace:?}"
    );
    assert_no_panic(&stays);
}
