//! The mesh on bad days: a network that is cut for long, an id that is used for something else, a broker that was rolled back,
//! an identity that runs twice, and a recipient that does not read.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::signed_text::MeshSignedText;
use consign_testkit::proxy::{Carrier, Mode, Wire};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use super::mesh_world::{MeshUser, MeshWorld, failed, wait_for};
use super::{printed, word};

/// Pauses of a daemon between connections, in milliseconds: 50, 100, and 200 from then on.
const SHORT_PAUSES: &str = "[reconnect]\ninitial_backoff_ms = 50\nmax_backoff_ms = 200\n";
/// More than the pauses that grow.
const LOST_CONNECTIONS: usize = 12;
/// How long a client may take to write one request.
const WRITE_LIMIT: Duration = Duration::from_secs(20);
/// Far more answers than a broker keeps for one client.
const REQUESTS_MAX: u32 = 2_000_000;

/// A mesh whose members reach the broker through a wire.
fn wired() -> (Carrier, Wire, MeshWorld) {
    let carrier = Carrier::start().expect("threads can be started");
    let wire = carrier.wire(0).expect("a port is free");
    let url = format!("ws://127.0.0.1:{}/ws", wire.port);
    let world = MeshWorld::serving(&[], |options| options.env("MESH_URL", &url));
    let server = world.server.as_ref().expect("the server runs");
    let port = server.authority().rsplit(':').next();
    let port = port.and_then(|port| port.parse().ok());
    wire.retarget(port.expect("the address has a port"));
    (carrier, wire, world)
}

fn with_short_pauses(world: &MeshWorld, name: &str) -> MeshUser {
    let mut user = world.join(name);
    user.configure(SHORT_PAUSES);
    user.up();
    user.wait_connected();
    user
}

fn outbox_is_empty(user: &MeshUser) -> bool {
    let left = printed(&user.daemon(&["status"]));
    left["queue_depth"] == 0 && left["inflight"] == 0 && left["dead"] == 0
}

#[test]
fn a_network_that_is_cut_for_long_loses_and_repeats_no_message() {
    let (_carrier, wire, world) = wired();
    let alice = with_short_pauses(&world, "alice");
    let bob = with_short_pauses(&world, "bob");
    let to = bob.pubkey();
    printed(&alice.send(&to, "text", "before"));
    bob.wait_received("before");
    // What is on its way when the network stops is sent again, because nobody knows whether it arrived.
    wire.set(Mode::Hung);
    printed(&alice.send(&to, "text", "on-its-way"));
    wait_for("the message is on its way", || {
        alice.outbox_status("on-its-way") == "inflight"
    });
    wire.set(Mode::Cut);
    let mut expected = vec!["before".to_owned(), "on-its-way".to_owned()];
    for number in 0..5 {
        let id = format!("cut-{number}");
        printed(&alice.send(&to, "text", &id));
        expected.push(id);
    }
    wait_for("the longest pause was reached", || {
        let log = std::fs::read_to_string(alice.folder().join("daemon.log"));
        let lost = log.unwrap_or_default();
        lost.matches("broker_not_connected").count() >= LOST_CONNECTIONS
    });
    assert_eq!(
        printed(&alice.daemon(&["status"]))["connected"],
        false,
        "the network is still cut"
    );
    wire.set(Mode::Open);
    for id in &expected {
        bob.wait_received(id);
    }
    wait_for("the outbox is empty", || outbox_is_empty(&alice));
    let mut received = bob.inbox_ids();
    received.sort();
    expected.sort();
    assert_eq!(received, expected, "each once");
}

#[test]
fn cm_064_an_id_with_another_destination_priority_meta_or_parent_is_refused() {
    let mut world = MeshWorld::new();
    let (alice, bob) = (world.member("alice"), world.member("bob"));
    let (to, own) = (bob.pubkey(), alice.pubkey());
    let meta = ["--priority", "next", "--meta", r#"{"a":1}"#];
    let send = |to: &str, message: &str, more: &[&str]| {
        let first = ["send", to, message, "--id", "same"];
        alice.daemon(&[&first, more].concat())
    };
    let parent = "0198c0de-0000-7000-8000-000000000000";
    let check = |word: &str| {
        for (to, message, more) in [
            (own.as_str(), "text", &meta[..]),
            (&to, "other", &meta),
            (&to, "text", &["--priority", "now", "--meta", r#"{"a":1}"#]),
            (&to, "text", &["--priority", "next", "--meta", r#"{"a":2}"#]),
            (&to, "text", &["--priority", "next"]),
            (&to, "text", &["--meta", r#"{"a":1}"#, "--reply-to", parent]),
        ] {
            let (status, error) = failed(&send(to, message, more));
            assert_eq!(status, 4, "{more:?}: {error}");
            assert!(error.contains("idempotency_key_reused"), "{error}");
            assert!(error.contains(word), "{error}");
        }
    };
    world.kill_broker();
    printed(&send(&to, "text", &meta));
    check("outbox_pending_fingerprint_mismatch");
    world.start_broker();
    bob.wait_received("same");
    wait_for("the row is done", || alice.outbox_status("same") == "done");
    check("outbox_done_fingerprint_mismatch");
    // The same request is no other one, however its parts are written.
    printed(&send(&to, "text", &["--meta", r#"{ "a": 1 }"#]));
    let outbox = printed(&alice.daemon(&["outbox"]));
    assert_eq!(
        outbox["items"].as_array().map(Vec::len),
        Some(1),
        "{outbox}"
    );
    let inbox = printed(&bob.daemon(&["inbox"]));
    assert_eq!(inbox["items"].as_array().map(Vec::len), Some(1), "{inbox}");
    assert_eq!(inbox["items"][0]["body"], "text", "{inbox}");
    assert_eq!(alice.inbox_ids(), Vec::<String>::new());
}

#[test]
fn cm_143_a_broker_that_is_rolled_back_ends_its_daemons_with_10_and_loses_nothing() {
    let mut world = MeshWorld::new();
    let (mut alice, mut bob) = (world.member("alice"), world.member("bob"));
    let to = bob.pubkey();
    world.kill_broker();
    printed(&alice.send(&to, "text", "kept"));
    // Without ids it offers less than the daemons need.
    let usual = world.settings.clone();
    world.settings = usual.clone().env("MESH_DEDUPE_ENFORCED", "false");
    world.start_broker();
    for daemon in [&mut alice, &mut bob] {
        assert_eq!(daemon.exit_status(), 10, "{}", daemon.stderr());
    }
    world.kill_broker();
    world.settings = usual;
    world.start_broker();
    alice.up();
    bob.up();
    bob.wait_received("kept");
    wait_for("the row is done", || alice.outbox_status("kept") == "done");
    assert_eq!(bob.inbox_ids(), ["kept"]);
}

#[test]
fn cm_019_of_two_daemons_with_one_identity_the_replaced_one_ends_with_6() {
    let world = MeshWorld::new();
    let bob = world.member("bob");
    let mut first = world.member("alice");
    let mut second = world.stranger("copy");
    let config = ".claudemesh/config.json";
    std::fs::create_dir_all(second.home.join(".claudemesh")).expect("a folder can be made");
    std::fs::copy(first.home.join(config), second.home.join(config)).expect("a file can be copied");
    assert_eq!(second.pubkey(), first.pubkey());
    second.up();
    assert_eq!(first.exit_status(), 6, "{}", first.stderr());
    second.wait_connected();
    printed(&bob.send(&second.pubkey(), "text", "to-the-newest"));
    second.wait_received("to-the-newest");
    assert_eq!(second.inbox_ids(), ["to-the-newest"]);
}

/// Connects as the daemon of a member would, without negotiation.
fn greet(world: &MeshWorld, user: &MeshUser) -> WebSocket<TcpStream> {
    let server = world.server.as_ref().expect("the server runs");
    let text = std::fs::read_to_string(user.home.join(".claudemesh/config.json"));
    let config: Value = serde_json::from_str(&text.expect("the user has joined")).expect("JSON");
    let mesh = &config["meshes"][0];
    let (id, member, pubkey) = (
        word(&mesh["meshId"]),
        word(&mesh["memberId"]),
        word(&mesh["pubkey"]),
    );
    let key = MeshPrivateKey::parse(&word(&mesh["secretKey"])).expect("a key");
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let timestamp = since.expect("the clock is right").as_millis();
    let timestamp = u64::try_from(timestamp).expect("not so far away");
    let signature = MeshSignedText::hello(&id, &member, &pubkey, timestamp).sign(&key);
    let hello = json!({
        "type": "hello", "meshId": id, "memberId": member, "pubkey": pubkey, "displayName": "bob",
        "sessionId": "slow", "pid": 1, "timestamp": timestamp, "signature": signature,
    });
    let stream = TcpStream::connect(server.authority()).expect("the server listens");
    stream
        .set_read_timeout(Some(WRITE_LIMIT))
        .and_then(|()| stream.set_write_timeout(Some(WRITE_LIMIT)))
        .expect("limits can be set");
    let url = format!("ws://{}/ws", server.authority());
    let (mut socket, _) = tungstenite::client(url, stream).expect("it is a broker");
    socket
        .send(Message::text(hello.to_string()))
        .expect("it reads");
    loop {
        let Message::Text(text) = socket.read().expect("it answers") else {
            continue;
        };
        let frame: Value = serde_json::from_str(&text).expect("JSON");
        assert_ne!(frame["type"], "error", "{frame}");
        if frame["type"] == "hello_ack" {
            return socket;
        }
    }
}

#[test]
fn a_client_that_does_not_read_is_closed_and_its_mail_comes_with_the_next_connection() {
    let world = MeshWorld::new();
    let alice = world.member("alice");
    let mut bob = world.join("bob");
    let mut slow = greet(&world, &bob);
    printed(&alice.send(&bob.pubkey(), "text", "waits"));
    wait_for("the broker has it", || {
        alice.outbox_status("waits") == "done"
    });
    // It asks and asks, and reads no answer.
    let ended = (0..REQUESTS_MAX).find_map(|number| {
        let request = json!({"type": "list_peers", "_reqId": number.to_string()});
        slow.send(Message::text(request.to_string())).err()
    });
    match ended {
        Some(tungstenite::Error::Io(error)) => assert!(
            matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ),
            "the broker closes the connection: {error:?}"
        ),
        other => panic!("the broker closes the connection: {other:?}"),
    }
    drop(slow);
    let peers = printed(&alice.daemon(&["peers"]));
    assert!(peers["peers"].is_array(), "the others are served: {peers}");
    bob.up();
    bob.wait_received("waits");
    assert_eq!(bob.inbox_ids(), ["waits"]);
}

#[test]
fn a_daemon_whose_socket_is_gone_can_be_stopped() {
    let world = MeshWorld::new();
    let mut alice = world.member("alice");
    std::fs::remove_file(alice.folder().join("sock")).expect("the socket can be removed");
    let stopped = printed(&alice.daemon(&["down"]));
    assert_eq!(stopped["stopped"], true);
    assert_eq!(alice.exit_status(), 0);
}

#[test]
fn a_member_has_its_name_while_it_and_then_the_broker_are_away() {
    let mut world = MeshWorld::new();
    let mut bob = world.join("bob");
    let mut alice = world.join("alice");
    let cold = ["mesh", "send", "bob", "text", "--id", "cold", "--json"];
    assert_eq!(printed(&alice.consign(&cold))["via"], "broker");
    alice.up();
    alice.wait_connected();
    printed(&alice.send("bob", "text", "offline"));
    wait_for("the row is done", || {
        alice.outbox_status("offline") == "done"
    });
    alice.kill();
    world.kill_broker();
    alice.up();
    printed(&alice.send("bob", "text", "alone"));
    let (_, error) = failed(&alice.send("nobody", "text", "unknown"));
    assert!(error.contains("broker_unreachable"), "{error}");
    world.start_broker();
    bob.up();
    for id in ["cold", "offline", "alone"] {
        bob.wait_received(id);
    }
}
