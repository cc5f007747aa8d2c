//! The sockets of Beam under load and abuse: many idle ones, clients that do not read, and frames that break the rules.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::io::{BufReader, Write as _};
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::websocket::{
    BINARY, CLOSE, ClientEnd, FINAL, PING, PONG, TEXT, WebSocketClient, client_frame,
};
use consign_testkit::process::{Server, read_reply};
use serde_json::json;

use super::beam_world::{
    BeamAgent, alice_and_bob, assert_no_panic, assert_nothing_waits, beam_error, beam_options,
    resident_bytes, send, until,
};
use super::{Place, start};

const FEED: &str = "/ws?feed=intents";
/// The largest message of a client.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

const IDLE_AGENTS: usize = 1_000;
const IDLE_FEEDS: usize = 1_000;
const IDLE_BYTES_MAX: u64 = 40 << 10;
/// Far less than the clients of these tests send or announce.
const SLOW_BYTES_MAX: u64 = 64 << 20;
/// Far more than it takes until a client that does not read is closed.
const ROUNDS_MAX: usize = 100;
/// Intents that a sender has in flight at once.
const FEED_ROUND: usize = 200;
/// Entries of the feed are small, and the queue of a socket takes megabytes of them.
const FEED_ROUNDS_MAX: usize = 300;
/// Requests of other clients take a few milliseconds; this is for a machine that is busy.
const OTHERS_MAX: Duration = Duration::from_secs(5);

/// Registers agents over several connections, so that their commits are grouped.
fn register_all(server: &Server, agents: &[BeamAgent]) {
    thread::scope(|scope| {
        for part in agents.chunks(agents.len().div_ceil(8)) {
            scope.spawn(move || {
                let mut http = server.http();
                for agent in part {
                    agent.register(&mut http);
                }
            });
        }
    });
}

/// The sockets of one client: the server limits the connections of an address.
fn open_all(server: &Server, last: u8, paths: &[String]) -> Vec<WebSocketClient> {
    let end = ClientEnd {
        address: Ipv4Addr::new(127, 0, 0, last).into(),
        ..ClientEnd::default()
    };
    let open = |path: &String| {
        let mut socket = WebSocketClient::open_from(server.authority(), path, end).unwrap();
        socket.next_json().unwrap();
        socket
    };
    paths.iter().map(open).collect()
}

#[test]
fn two_thousand_idle_sockets_are_cheap_and_others_are_served() {
    let place = Place::new();
    let options = beam_options(&place);
    let idle: Vec<BeamAgent> = (0..IDLE_AGENTS)
        .map(|number| BeamAgent::new(&format!("idle-{number}"), 9))
        .collect();
    let mut first = start(&options);
    register_all(&first, &idle);
    let (alice, bob) = alice_and_bob(&first);
    // The memory of the registrations is not measured.
    assert!(first.terminate(Duration::from_secs(10)).unwrap().success());
    let server = start(&options);
    let mut recipient = bob.connect(&server);
    assert_nothing_waits(&server, (&alice, &bob), &mut recipient);

    let agents: Vec<String> = idle.iter().map(BeamAgent::path).collect();
    let feeds = vec![FEED.to_owned(); IDLE_FEEDS];
    let sockets = [("agent", 2, agents), ("feed", 3, feeds)].map(|(kind, last, paths)| {
        let before = resident_bytes(server.pid());
        let sockets = open_all(&server, last, &paths);
        let grown = resident_bytes(server.pid()).saturating_sub(before);
        let each = grown / sockets.len() as u64;
        assert!(
            each < IDLE_BYTES_MAX,
            "{each} bytes for the socket of each {kind}"
        );
        sockets
    });
    let metrics = server.admin_client().unwrap().get("/metrics").unwrap();
    for count in ["connected_agents 1001\n", "feed_readers 1000\n"] {
        let line = format!("consign_beam_{count}");
        assert!(metrics.text().contains(&line), "{count}");
    }

    // Every feed gets every event of these.
    let asked = Instant::now();
    for _ in 0..3 {
        assert_nothing_waits(&server, (&alice, &bob), &mut recipient);
    }
    let took = asked.elapsed();
    assert!(took < OTHERS_MAX, "{took:?}");
    for mut socket in sockets.into_iter().flatten().rev().take(IDLE_FEEDS) {
        assert_eq!(socket.next_json().unwrap()["type"], "intent_feed");
    }
}

/// A client whose system receives almost nothing unless it reads.
fn narrow(server: &Server, path: &str) -> WebSocketClient {
    let end = ClientEnd {
        receive_bytes: Some(4096),
        ..ClientEnd::default()
    };
    let mut socket = WebSocketClient::open_from(server.authority(), path, end).unwrap();
    socket.next_json().unwrap();
    socket
}

/// A client that reads again sees why it was closed, unless the server has given it up meanwhile.
fn assert_was_slow(mut socket: WebSocketClient) {
    if let Ok(closed) = socket.until_closed() {
        assert_eq!(closed, (1013, "Slow reader".to_owned()));
    }
}

#[test]
fn a_recipient_that_does_not_read_is_closed_and_delays_no_other() {
    let place = Place::new();
    let server = start(&beam_options(&place));
    let (alice, bob) = alice_and_bob(&server);
    let carol = BeamAgent::new("carol", 3);
    carol.register(&mut server.http());
    carol.accept_from(&mut server.http(), &alice.beam_id);
    let mut quick = carol.connect(&server);
    assert_nothing_waits(&server, (&alice, &carol), &mut quick);
    let before = resident_bytes(server.pid());

    let slow = narrow(&server, &bob.path());
    let mut sender = alice.connect(&server);
    let text = "x".repeat(MESSAGE_BYTES_MAX - 2048);
    let mut nonces = (0..).map(|number| format!("n-{number}"));
    // Buffers of the system take some megabytes first.
    let closed = (0..ROUNDS_MAX).any(|_| {
        for nonce in nonces.by_ref().take(10) {
            let frame = alice.message_at(0, &bob, &nonce, &text);
            let message = json!({"type": "intent", "frame": frame});
            sender.send_json(&message).unwrap();
        }
        let asked = Instant::now();
        assert_nothing_waits(&server, (&alice, &carol), &mut quick);
        assert!(asked.elapsed() < OTHERS_MAX, "{:?}", asked.elapsed());
        let shown = server.http().get(&format!("/agents/{}", bob.beam_id));
        shown.unwrap().json()["connected"] == false
    });
    assert!(closed, "the recipient still counts as connected");
    assert_was_slow(slow);
    let error = sender.next_json().unwrap();
    assert_eq!(error["errorCode"], "OFFLINE", "{error}");
    let grown = resident_bytes(server.pid()).saturating_sub(before);
    assert!(grown < SLOW_BYTES_MAX, "{grown} bytes");

    // It comes back and answers the first intent, which it was sent before it was closed.
    let mut back = bob.connect(&server);
    back.send_json(&bob.result("n-0", "late")).unwrap();
    let result = until("the result arrives", || {
        let message = sender.next_json().unwrap();
        (message["type"] == "result").then_some(message)
    });
    assert_eq!(result["frame"]["nonce"], "n-0");
    assert_nothing_waits(&server, (&alice, &bob), &mut back);
}

#[test]
fn a_feed_that_does_not_read_is_closed_and_another_feed_gets_every_event() {
    let place = Place::new();
    let server = start(&beam_options(&place));
    let (alice, bob) = alice_and_bob(&server);
    let mut quick = WebSocketClient::open(server.authority(), FEED).unwrap();
    quick.next_json().unwrap();
    let slow = narrow(&server, FEED);
    let failed = thread::spawn(move || {
        let mut failed = 0;
        loop {
            let message = quick.next_json().unwrap();
            failed += usize::from(message["entry"]["status"] == "failed");
            if message["entry"]["nonce"] == "the-last" {
                return failed;
            }
        }
    });

    let mut sender = alice.connect(&server);
    let mut sent = 0;
    let mut operator = server.admin_client().unwrap();
    let closed = (0..FEED_ROUNDS_MAX).any(|_| {
        for _ in 0..FEED_ROUND {
            let nonce = format!("{sent:0>240}");
            let message = json!({"type": "intent", "frame": alice.message(&bob, &nonce)});
            sender.send_json(&message).unwrap();
            sent += 1;
        }
        for _ in 0..FEED_ROUND {
            assert_eq!(sender.next_json().unwrap()["errorCode"], "OFFLINE");
        }
        let metrics = operator.get("/metrics").unwrap().text();
        metrics.contains("consign_beam_feed_readers 1\n")
    });
    assert!(closed, "the feed is still open");
    assert_was_slow(slow);
    let last = send(&mut server.http(), &alice.message(&bob, "the-last"));
    assert_eq!(beam_error(&last), (503, "OFFLINE".to_owned()));
    assert_eq!(failed.join().unwrap(), sent);
}

/// A text message in so many frames of so many bytes.
fn fragments(frames: usize, bytes: usize) -> Vec<u8> {
    let part = vec![b'x'; bytes];
    let mut all = client_frame(TEXT, &part);
    for _ in 2..frames {
        all.extend(client_frame(0, &part));
    }
    all.extend(client_frame(FINAL, &part));
    all
}

#[test]
fn frames_that_break_a_rule_close_their_socket_and_nothing_else() {
    const RESERVED: u8 = 0x40;
    const BIG: usize = MESSAGE_BYTES_MAX + 1;
    let place = Place::new();
    let server = start(&beam_options(&place));
    let (alice, bob) = alice_and_bob(&server);
    let mut recipient = bob.connect(&server);
    let mallory = BeamAgent::new("mallory", 66);
    mallory.register(&mut server.http());
    let before = resident_bytes(server.pid());

    let text = |payload: &[u8]| client_frame(FINAL | TEXT, payload);
    // Four gigabytes are announced, and almost nothing is sent.
    let announced = [
        &[FINAL | TEXT, 0xff][..],
        &(4_u64 << 30).to_be_bytes(),
        &[0; 64],
    ]
    .concat();
    let unmasked = [&[FINAL | TEXT, 2][..], b"{}"].concat();
    let flood = |opcode: u8| client_frame(FINAL | opcode, b"").repeat(200);
    let cases: Vec<(&str, Vec<u8>, u16)> = vec![
        ("a long message", text(&vec![b'x'; BIG]), 1009),
        ("an announced length", announced, 1009),
        ("a long message in parts", fragments(100, 1024), 1009),
        ("many parts", fragments(200, 1), 1008),
        ("a flood of pings", flood(PING), 1008),
        ("a flood of pongs", flood(PONG), 1008),
        (
            "a compressed message",
            client_frame(FINAL | RESERVED | TEXT, b"{}"),
            1002,
        ),
        ("a frame without a mask", unmasked, 1002),
        ("an unknown opcode", client_frame(FINAL | 3, b""), 1002),
        ("a part of nothing", client_frame(FINAL, b"x"), 1002),
        (
            "a message inside of a message",
            [client_frame(TEXT, b"{"), text(b"{}")].concat(),
            1002,
        ),
        ("a ping in parts", client_frame(PING, b""), 1002),
        ("a long ping", client_frame(FINAL | PING, &[0; 126]), 1002),
        (
            "half a closing code",
            client_frame(FINAL | CLOSE, &[3]),
            1002,
        ),
        (
            "an invalid closing code",
            client_frame(FINAL | CLOSE, &1005_u16.to_be_bytes()),
            1002,
        ),
        (
            "text that is not UTF-8",
            text(b"{\"type\":\"\xff\xfe\"}"),
            1007,
        ),
        (
            "a binary message",
            client_frame(FINAL | BINARY, b"{}"),
            1003,
        ),
    ];
    for (what, bytes, code) in cases {
        let mut socket = mallory.connect(&server);
        // The server may close before it has read everything.
        let _ = socket.send_bytes(&bytes);
        let closed = socket.until_closed();
        assert_eq!(closed.map(|(code, _)| code).ok(), Some(code), "{what}");
    }
    // At the limit a message is read, and refused for what it says.
    let mut socket = mallory.connect(&server);
    let kind = r#"{"type":"what"}"#;
    let longest = format!("{}{kind}", " ".repeat(MESSAGE_BYTES_MAX - kind.len()));
    socket.send_text(&longest).unwrap();
    assert_eq!(
        socket.next_json().unwrap()["message"],
        "Unknown message type: what"
    );
    let deep = "[".repeat(MESSAGE_BYTES_MAX);
    socket.send_text(&deep).unwrap();
    let refused = socket.next_json().unwrap();
    assert_eq!(
        refused["message"],
        "Invalid message format: must be valid JSON"
    );
    assert_nothing_waits(&server, (&alice, &bob), &mut recipient);
    assert_no_panic(&server);
    let grown = resident_bytes(server.pid()).saturating_sub(before);
    assert!(grown < SLOW_BYTES_MAX, "{grown} bytes");
}

#[test]
fn compression_is_never_negotiated() {
    let place = Place::new();
    let server = start(&beam_options(&place));
    let (alice, _) = alice_and_bob(&server);
    let mut stream = server.http().connect().unwrap();
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\
         Sec-WebSocket-Protocol: beam\r\n\r\n",
        alice.path(),
        server.authority(),
    );
    stream.write_all(request.as_bytes()).unwrap();
    let response = read_reply(&mut BufReader::new(stream)).unwrap();
    assert_eq!(response.status, 101);
    assert_eq!(response.header("sec-websocket-extensions"), None);
    assert_eq!(response.header("sec-websocket-protocol"), None);
}
