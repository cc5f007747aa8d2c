//! Two directories, each a server process, that lose each other in the middle of a relay; and a peer that lies or floods.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::websocket::WebSocketClient;
use consign_testkit::process::{Options, Reply, Server};
use consign_testkit::proxy::{Carrier, Mode, Wire};
use serde_json::{Value, json};

use super::beam_world::{
    BeamAgent, assert_no_panic, assert_nothing_waits, beam_error, beam_options, begin_send, count,
    legal_trace, next_intent, resident_bytes, send, until_status,
};
use super::{Place, code, start, text, word};

const SECRET: &str = "a-federation-secret-of-the-tests";
const SECRET_VARIABLE: &str = "BEAM_FEDERATION_SHARED_SECRET";

/// A directory behind a proxy, so that its public address is known before it starts and stays the same after a restart.
struct BeamSite {
    place: Place,
    options: Options,
    server: Server,
    wire: Wire,
}

impl BeamSite {
    /// A directory that may call these ports of this machine.
    fn start(place: Place, wire: Wire, peers: &[u16]) -> Self {
        let allowed: Vec<String> = peers.iter().map(|port| authority(*port)).collect();
        let options = beam_options(&place)
            .env(SECRET_VARIABLE, SECRET)
            .env("BEAM_DIRECTORY_URL", &url(wire.port))
            .env("BEAM_ALLOW_TARGETS", &allowed.join(","))
            .env("RELAY_TIMEOUT_MS", "3000");
        let server = start(&options);
        let site = Self {
            place,
            options,
            server,
            wire,
        };
        site.point_wire();
        site
    }

    fn point_wire(&self) {
        let port = self.server.authority().rsplit(':').next().unwrap();
        self.wire.retarget(port.parse().unwrap());
    }

    fn kill_and_restart(&mut self) {
        self.server.kill9().unwrap();
        self.server = start(&self.options);
        self.point_wire();
    }

    /// Registers a peer with the command line.
    fn add_peer(&self, peer: &str) {
        let added = self
            .place
            .consign_with(&["peer", "add", peer], &[(SECRET_VARIABLE, SECRET)]);
        assert_eq!(code(&added), 0, "{}", text(&added.stderr));
    }

    /// An intent that a peer relays to this directory.
    fn relayed(&self, source: &str, frame: &Value) -> Reply {
        let headers = [
            ("X-Beam-Federation-Secret", SECRET),
            ("X-Beam-Source-Directory", source),
            ("X-Beam-Hop-Count", "1"),
        ];
        let mut http = self.server.http();
        http.send("POST", "/federation/relay", &headers, Some(frame))
            .unwrap()
    }
}

fn authority(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn url(port: u16) -> String {
    format!("http://{}", authority(port))
}

/// Two directories that know each other; Alice is in the first one, and Bob, who accepts her messages, in the second.
struct Federation {
    near: BeamSite,
    far: BeamSite,
    alice: BeamAgent,
    bob: BeamAgent,
    _carrier: Carrier,
}

impl Federation {
    fn start() -> Self {
        let carrier = Carrier::start().unwrap();
        // The ports of the servers are not known yet.
        let wires = [(); 2].map(|()| carrier.wire(0).unwrap());
        let ports = wires.each_ref().map(|wire| wire.port);
        let [near, far] = wires.map(|wire| BeamSite::start(Place::new(), wire, &ports));
        let (alice, bob) = (BeamAgent::new("alice", 1), BeamAgent::new("bob", 2));
        alice.register(&mut near.server.http());
        bob.register(&mut far.server.http());
        bob.accept_from(&mut far.server.http(), &alice.beam_id);
        near.add_peer(&url(far.wire.port));
        far.add_peer(&url(near.wire.port));
        Self {
            near,
            far,
            alice,
            bob,
            _carrier: carrier,
        }
    }

    /// Both directories stored one delivery, and Bob got the intent once.
    fn assert_delivered_once(&self, nonce: &str, socket: &mut WebSocketClient) {
        for site in [&self.near, &self.far] {
            assert_no_panic(&site.server);
            let trace = legal_trace(&site.server, nonce);
            assert_eq!(
                (count(&trace, "delivered"), count(&trace, "acked")),
                (1, 1),
                "{trace:?}"
            );
        }
        assert_nothing_waits(&self.near.server, (&self.alice, &self.bob), socket);
    }
}

#[test]
fn be_133_directories_that_are_cut_apart_during_a_relay_agree_after_a_repetition() {
    let world = Federation::start();
    let mut socket = world.bob.connect(&world.far.server);
    let frame = world.alice.message(&world.bob, "cut");
    let sending = begin_send(&world.near.server, &frame);
    assert_eq!(next_intent(&mut socket), frame);
    world.far.wire.set(Mode::Cut);
    let answer = sending.join().unwrap().unwrap();
    assert_eq!(beam_error(&answer), (502, "DELIVERY_FAILED".to_owned()));
    let mut http = world.near.server.http();
    // While they are apart nothing is delivered; while the recipient works, the other side says so.
    let apart = send(&mut http, &frame);
    assert_eq!(beam_error(&apart), (502, "DELIVERY_FAILED".to_owned()));
    world.far.wire.set(Mode::Open);
    let early = send(&mut http, &frame);
    assert_eq!(beam_error(&early), (502, "DELIVERY_FAILED".to_owned()));

    socket
        .send_json(&world.bob.result("cut", "after the cut"))
        .unwrap();
    until_status(&world.far.server, "cut", "acked");
    let first = send(&mut http, &frame);
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(first.json()["payload"]["message"], "after the cut");
    assert_eq!(send(&mut http, &frame).body, first.body);
    world.assert_delivered_once("cut", &mut socket);
}

#[test]
fn be_133_be_155_a_directory_that_is_killed_during_a_relay_returns_the_late_result() {
    let mut world = Federation::start();
    let mut socket = world.bob.connect(&world.far.server);
    let frame = world.alice.message(&world.bob, "killed");
    let sending = begin_send(&world.near.server, &frame);
    next_intent(&mut socket);
    until_status(&world.far.server, "killed", "delivered");
    world.far.kill_and_restart();
    let answer = sending.join().unwrap().unwrap();
    assert_eq!(beam_error(&answer), (502, "DELIVERY_FAILED".to_owned()));
    let mut socket = world.bob.connect(&world.far.server);
    socket
        .send_json(&world.bob.result("killed", "after the kill"))
        .unwrap();
    until_status(&world.far.server, "killed", "acked");
    let mut http = world.near.server.http();
    let answer = send(&mut http, &frame);
    assert_eq!(answer.json()["payload"]["message"], "after the kill");

    // The other side: the directory of the sender is killed, and the recipient answers meanwhile.
    let frame = world.alice.message(&world.bob, "sender-killed");
    let sending = begin_send(&world.near.server, &frame);
    next_intent(&mut socket);
    world.near.kill_and_restart();
    sending.join().unwrap().unwrap_err();
    socket
        .send_json(&world.bob.result("sender-killed", "meanwhile"))
        .unwrap();
    until_status(&world.far.server, "sender-killed", "acked");
    let answer = send(&mut world.near.server.http(), &frame);
    assert_eq!(answer.json()["payload"]["message"], "meanwhile");
    for nonce in ["killed", "sender-killed"] {
        world.assert_delivered_once(nonce, &mut socket);
    }
}

#[test]
fn a_peer_that_hangs_costs_its_own_intents_their_time_and_no_other() {
    let world = Federation::start();
    let carol = BeamAgent::new("carol", 3);
    let near = &world.near.server;
    carol.register(&mut near.http());
    carol.accept_from(&mut near.http(), &world.alice.beam_id);
    let mut local = carol.connect(near);
    world.far.wire.set(Mode::Hung);
    let asked = Instant::now();
    let sending = begin_send(near, &world.alice.message(&world.bob, "hung"));
    until_status(near, "hung", "dispatched");
    assert_nothing_waits(near, (&world.alice, &carol), &mut local);
    let answer = sending.join().unwrap().unwrap();
    assert!(answer.status >= 500, "{}", answer.text());
    assert!(
        asked.elapsed() < Duration::from_secs(15),
        "{:?}",
        asked.elapsed()
    );
    until_status(near, "hung", "failed");
    legal_trace(near, "hung");
    world.far.wire.set(Mode::Open);
    let mut socket = world.bob.connect(&world.far.server);
    let sending = begin_send(near, &world.alice.message(&world.bob, "hung"));
    next_intent(&mut socket);
    socket.send_json(&world.bob.result("hung", "now")).unwrap();
    assert_eq!(sending.join().unwrap().unwrap().status, 200);
    world.assert_delivered_once("hung", &mut socket);
}

/// What a lying peer does with a relayed intent.
#[derive(Clone, Debug)]
enum Lie {
    /// A whole response: status, further header lines, body.
    Response(u16, String, String),
    /// The head of a response, and then a byte now and then.
    Slow,
}

/// A directory that has Dave and answers relays with lies.
struct LyingPeer {
    port: u16,
    lie: Arc<Mutex<Lie>>,
    relayed: Arc<Mutex<usize>>,
}

impl LyingPeer {
    fn start(dave: &BeamAgent) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let lie = Arc::new(Mutex::new(Lie::Slow));
        let relayed = Arc::new(Mutex::new(0));
        let agent = json!({
            "beam_id": dave.beam_id, "display_name": "Dave", "capabilities": ["test"],
            "public_key": dave.public_key(),
        });
        let (lies, counted) = (Arc::clone(&lie), Arc::clone(&relayed));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (lies, counted) = (Arc::clone(&lies), Arc::clone(&counted));
                let agent = agent.clone();
                thread::spawn(move || answer(stream.unwrap(), &agent, &lies, &counted));
            }
        });
        Self { port, lie, relayed }
    }

    fn tell(&self, lie: Lie) {
        *self.lie.lock().unwrap() = lie;
    }

    fn relayed(&self) -> usize {
        *self.relayed.lock().unwrap()
    }
}

/// Answers one request.
fn answer(stream: TcpStream, agent: &Value, lie: &Mutex<Lie>, relayed: &Mutex<usize>) {
    let mut stream = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
        if first.is_empty() {
            first.clone_from(&line);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    let _ = stream.read_exact(&mut body);
    let reply = if first.starts_with("GET /directory/agents") {
        Lie::Response(200, String::new(), json!({"agents": [agent]}).to_string())
    } else if first.starts_with("GET /federation/agents/") {
        let found = json!({"agent": agent, "scope": "local"});
        Lie::Response(200, String::new(), found.to_string())
    } else {
        *relayed.lock().unwrap() += 1;
        lie.lock().unwrap().clone()
    };
    let stream = stream.get_mut();
    match reply {
        Lie::Response(status, further, body) => {
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status} X\r\n{further}content-length: {length}\r\n\r\n{body}");
            let _ = stream.write_all(head.as_bytes());
        }
        Lie::Slow => {
            let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n".as_slice();
            while stream.write_all(bytes).is_ok() {
                thread::sleep(Duration::from_millis(50));
                bytes = b" ";
            }
        }
    }
}

#[test]
fn a_peer_that_lies_fails_its_own_intents_and_nothing_else() {
    let carrier = Carrier::start().unwrap();
    let (alice, bob) = (BeamAgent::new("alice", 1), BeamAgent::new("bob", 2));
    let dave = BeamAgent::new("dave", 4);
    let peer = LyingPeer::start(&dave);
    let elsewhere = LyingPeer::start(&dave);
    let ports = [peer.port, elsewhere.port];
    let site = BeamSite::start(Place::new(), carrier.wire(0).unwrap(), &ports);
    let near = &site.server;
    let mut http = near.http();
    alice.register(&mut http);
    bob.register(&mut http);
    bob.accept_from(&mut http, &alice.beam_id);
    site.add_peer(&url(peer.port));
    let mut socket = bob.connect(near);
    assert_nothing_waits(near, (&alice, &bob), &mut socket);
    let before = resident_bytes(near.pid());

    let result = |nonce: &str, text: &str| dave.result(nonce, text)["frame"].to_string();
    let location = format!("location: {}/federation/relay\r\n", url(elsewhere.port));
    let lies = [
        (
            "another",
            Lie::Response(200, String::new(), result("other", "x")),
        ),
        (
            "large",
            Lie::Response(200, String::new(), result("large", &"x".repeat(2 << 20))),
        ),
        ("moved", Lie::Response(307, location, String::new())),
        (
            "page",
            Lie::Response(200, String::new(), "<html>".to_owned()),
        ),
        ("slow", Lie::Slow),
    ];
    let asked = Instant::now();
    let mut expected = 0;
    for (nonce, lie) in lies {
        peer.tell(lie);
        let frame = alice.message(&dave, nonce);
        let sending = begin_send(near, &frame);
        assert_nothing_waits(near, (&alice, &bob), &mut socket);
        let answer = sending.join().unwrap().unwrap();
        assert_eq!(
            beam_error(&answer),
            (502, "DELIVERY_FAILED".to_owned()),
            "{nonce}"
        );
        let trace = legal_trace(near, nonce);
        assert_eq!(trace.last().map(String::as_str), Some("failed"), "{nonce}");
        assert_eq!(count(&trace, "delivered"), 0, "{nonce}");
        expected += 1;
        assert_eq!(peer.relayed(), expected, "{nonce}");
    }
    assert!(
        asked.elapsed() < Duration::from_secs(30),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(elsewhere.relayed(), 0, "a redirect is not followed");
    let grown = resident_bytes(near.pid()).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");

    // Honest again: the same nonce is delivered.
    peer.tell(Lie::Response(200, String::new(), result("slow", "at last")));
    let answer = send(&mut http, &alice.message(&dave, "slow"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["payload"]["message"], "at last");
}

#[test]
fn a_peer_that_floods_is_refused_while_local_intents_are_delivered() {
    let carrier = Carrier::start().unwrap();
    let dave = BeamAgent::new("dave", 4);
    let peer = LyingPeer::start(&dave);
    let (alice, bob) = (BeamAgent::new("alice", 1), BeamAgent::new("bob", 2));
    let place = Place::new();
    let options = beam_options(&place)
        .env(SECRET_VARIABLE, SECRET)
        .env("BEAM_ALLOW_TARGETS", &authority(peer.port))
        .env("BEAM_RATE_LIMIT_PER_MIN", "20");
    let site = BeamSite {
        server: start(&options),
        wire: carrier.wire(0).unwrap(),
        options,
        place,
    };
    let mut http = site.server.http();
    alice.register(&mut http);
    bob.register(&mut http);
    bob.accept_from(&mut http, &alice.beam_id);
    site.add_peer(&url(peer.port));
    let mut socket = bob.connect(&site.server);

    // Ten times the limit of one sender passes, refused for what it is; the rest is refused before any work.
    let source = url(peer.port);
    let mut frame = dave.message(&bob, "flood");
    frame["signature"] = json!("AAAA");
    let errors: Vec<String> = thread::scope(|scope| {
        let flood = |_| {
            scope.spawn(|| {
                let errors = (0..60).map(|_| word(&site.relayed(&source, &frame).json()["error"]));
                errors.collect::<Vec<_>>()
            })
        };
        let floods = [0; 4].map(flood);
        for _ in 0..5 {
            assert_nothing_waits(&site.server, (&alice, &bob), &mut socket);
        }
        let errors = floods.map(|flood| flood.join().unwrap());
        errors.into_iter().flatten().collect()
    });
    let limited = format!("Rate limit exceeded for {source}");
    let refused = errors.iter().filter(|error| **error == limited).count();
    assert_eq!((errors.len(), refused), (240, 40));
    let recent = http.get("/intents/recent").unwrap().json();
    assert_eq!(recent["intents"].as_array().map(Vec::len), Some(5));
}
