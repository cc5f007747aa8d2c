//! Agents of a directory in a server process: their keys, signed frames and sockets, and the traces of their intents.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::thread;
use std::time::{Duration, Instant};

use consign_beam::frame::{IntentFields, IntentFrame, ResultFields, ResultFrame};
use consign_beam::keys::BeamPrivateKey;
use consign_beam::lifecycle::{TransitionContext, check_transition, parse_state, state_word};
use consign_beam::signed_text::BeamSignedText;
use consign_beam::text::{self, BeamObject, BeamValue};
use consign_beam::timestamp;
use consign_engine::SystemTimes;
use consign_kernel::ids::{Micros, SECOND_US};
use consign_testkit::process::websocket::WebSocketClient;
use consign_testkit::process::{Http, Options, Reply, Server};
use serde_json::{Value, json};

use super::{PATIENCE, Place, word};

pub(crate) const INTENT: &str = "conversation.message";
pub(crate) const OPERATOR: &str = "ops@example.com";

/// A server whose operator may read traces, and whose senders have no limit worth mentioning.
pub(crate) fn beam_options(place: &Place) -> Options {
    place
        .options()
        .env("BEAM_ADMIN_EMAILS", OPERATOR)
        .env("BEAM_RATE_LIMIT_PER_MIN", "1000000")
}

/// An agent with its key.
#[derive(Clone)]
pub(crate) struct BeamAgent {
    pub(crate) beam_id: String,
    seed: [u8; 32],
}

impl BeamAgent {
    /// The agent `NAME@acme.beam.directory`. Agents with one seed have one key.
    pub(crate) fn new(name: &str, seed: u8) -> Self {
        Self {
            beam_id: format!("{name}@acme.beam.directory"),
            seed: [seed; 32],
        }
    }

    fn key(&self) -> BeamPrivateKey {
        BeamPrivateKey::from_seed(&self.seed)
    }

    pub(crate) fn public_key(&self) -> String {
        self.key().public_key().to_string()
    }

    /// The identity as a bundle of the bus has it.
    pub(crate) fn identity(&self) -> Value {
        json!({
            "beamId": self.beam_id,
            "publicKeyBase64": self.public_key(),
            "privateKeyBase64": BeamPrivateKey::text_of_seed(&self.seed).as_str(),
        })
    }

    pub(crate) fn registration(&self) -> Value {
        json!({
            "beamId": self.beam_id,
            "displayName": "An agent",
            "capabilities": ["test"],
            "publicKey": self.public_key(),
        })
    }

    pub(crate) fn register(&self, http: &mut Http) {
        let reply = http.post("/agents/register", &self.registration()).unwrap();
        assert!([200, 201].contains(&reply.status), "{}", reply.text());
    }

    /// Lets the other agent send messages to this one.
    pub(crate) fn accept_from(&self, http: &mut Http, from: &str) {
        let rule = json!({"targetBeamId": self.beam_id, "intentType": INTENT, "allowedFrom": from});
        let reply = http.post("/acl", &rule).unwrap();
        assert_eq!(reply.status, 201, "{}", reply.text());
    }

    /// A signed message, sent now.
    pub(crate) fn message(&self, to: &Self, nonce: &str) -> Value {
        self.message_at(0, to, nonce, "hello")
    }

    /// The same with a clock that is off by so many seconds, and with its text.
    pub(crate) fn message_at(&self, off_s: i64, to: &Self, nonce: &str, text: &str) -> Value {
        let at = Micros(SystemTimes::own_wall().0 + off_s * SECOND_US);
        let mut frame = IntentFrame::new(IntentFields {
            from: self.beam_id.clone(),
            to: to.beam_id.clone(),
            intent: INTENT.to_owned(),
            payload: object(&json!({"message": text})),
            nonce: nonce.to_owned(),
            timestamp: timestamp::format(at),
        });
        let signature = BeamSignedText::intent(&frame).sign(&self.key());
        frame.set_signature(signature);
        serde_json::from_str(&frame.to_value().to_text()).unwrap()
    }

    /// A signed result, as its socket sends it.
    pub(crate) fn result(&self, nonce: &str, message: &str) -> Value {
        let at = timestamp::format(SystemTimes::own_wall());
        let mut frame = ResultFrame::new(ResultFields {
            success: true,
            nonce,
            timestamp: &at,
            payload: Some(object(&json!({"message": message}))),
            ..ResultFields::default()
        });
        let signature = BeamSignedText::result(&frame).sign(&self.key());
        frame.set_signature(&signature);
        let frame: Value = serde_json::from_str(&frame.to_value().to_text()).unwrap();
        json!({"type": "result", "frame": frame})
    }

    pub(crate) fn path(&self) -> String {
        format!("/ws?beamId={}", self.beam_id)
    }

    pub(crate) fn connect(&self, server: &Server) -> WebSocketClient {
        let mut socket = WebSocketClient::open(server.authority(), &self.path()).unwrap();
        let hello = socket.next_json().unwrap();
        assert_eq!(hello["type"], "connected", "{hello}");
        socket
    }
}

fn object(value: &Value) -> BeamObject {
    match text::parse(value.to_string().as_bytes()) {
        Ok(BeamValue::Object(object)) => object,
        other => panic!("a payload is an object: {other:?}"),
    }
}

/// Two registered agents; Bob accepts messages of Alice.
pub(crate) fn alice_and_bob(server: &Server) -> (BeamAgent, BeamAgent) {
    let (alice, bob) = (BeamAgent::new("alice", 1), BeamAgent::new("bob", 2));
    let mut http = server.http();
    alice.register(&mut http);
    bob.register(&mut http);
    bob.accept_from(&mut http, &alice.beam_id);
    (alice, bob)
}

pub(crate) fn send(http: &mut Http, frame: &Value) -> Reply {
    http.post("/intents/send", frame).unwrap()
}

/// Sends in the background. The outcome is an error if the server ends meanwhile.
pub(crate) fn begin_send(
    server: &Server,
    frame: &Value,
) -> thread::JoinHandle<std::io::Result<Reply>> {
    let (mut http, frame) = (server.http(), frame.clone());
    thread::spawn(move || http.post("/intents/send", &frame))
}

/// The first agent sends an intent, and the second one answers it from its socket and is not connected then.
pub(crate) fn relay_once(server: &Server, (from, to): (&BeamAgent, &BeamAgent), nonce: &str) {
    let mut socket = to.connect(server);
    let sending = begin_send(server, &from.message(to, nonce));
    next_intent(&mut socket);
    socket.send_json(&to.result(nonce, "here")).unwrap();
    assert_eq!(sending.join().unwrap().unwrap().status, 200);
    drop(socket);
    let mut http = server.http();
    until("the recipient is not connected", || {
        let path = format!("/agents/{}", to.beam_id);
        let agent = http.get(&path).unwrap().json();
        (agent["connected"] == false).then_some(())
    });
}

/// The status and the code of an error of Beam.
pub(crate) fn beam_error(reply: &Reply) -> (u16, String) {
    (reply.status, word(&reply.json()["errorCode"]))
}

/// Reads the next intent of a socket.
#[track_caller]
pub(crate) fn next_intent(socket: &mut WebSocketClient) -> Value {
    let message = socket.next_json().unwrap();
    assert_eq!(message["type"], "intent", "{message}");
    message["frame"].clone()
}

/// Sends a further intent and answers it: no other message reached the recipient before it.
#[track_caller]
pub(crate) fn assert_nothing_waits(
    server: &Server,
    (from, to): (&BeamAgent, &BeamAgent),
    socket: &mut WebSocketClient,
) {
    let nonce = format!("marker-{}", SystemTimes::own_wall().0);
    let frame = from.message(to, &nonce);
    let sending = begin_send(server, &frame);
    assert_eq!(next_intent(socket)["nonce"], nonce);
    socket.send_json(&to.result(&nonce, "marker")).unwrap();
    assert_eq!(sending.join().unwrap().unwrap().status, 200);
}

/// Repeats `look` until it finds something.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}

/// Waits for the state of an intent and returns its error code.
#[track_caller]
pub(crate) fn until_status(server: &Server, nonce: &str, status: &str) -> Value {
    let mut http = server.http();
    until(&format!("{nonce} is {status}"), || {
        let recent = http.get("/intents/recent").unwrap().json();
        let entries = recent["intents"].as_array()?;
        let entry = entries.iter().find(|entry| entry["nonce"] == nonce)?;
        (entry["status"] == status).then(|| entry["errorCode"].clone())
    })
}

/// An operator with a session.
pub(crate) fn operator(server: &Server) -> Http {
    let session = session(server, OPERATOR);
    server
        .http()
        .header("Authorization", &format!("Bearer {session}"))
}

/// The token of a session that the operator with this address begins.
#[track_caller]
pub(crate) fn session(server: &Server, email: &str) -> String {
    let mut http = server.http();
    let mut login = |path: &str, body: Value| {
        let reply = http.post(path, &body).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        word(&reply.json()["token"])
    };
    let token = login("/admin/auth/magic-link", json!({"email": email}));
    login("/admin/auth/verify", json!({"token": token}))
}

/// The states of an intent in their order, each of which must be a legal step.
#[track_caller]
pub(crate) fn legal_trace(server: &Server, nonce: &str) -> Vec<String> {
    let reply = operator(server)
        .get(&format!("/observability/intents/{nonce}"))
        .unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let trace = reply.json();
    let mut words = Vec::new();
    let mut from = None;
    for stage in trace["stages"].as_array().unwrap() {
        let to = parse_state(stage["stage"].as_str().unwrap()).unwrap();
        let context = TransitionContext::Trace {
            nonce: nonce.to_owned(),
        };
        check_transition(context, from, to).unwrap();
        words.push(state_word(to).to_owned());
        from = Some(to);
    }
    assert_eq!(
        trace["intent"]["status"].as_str(),
        words.last().map(String::as_str),
        "{trace}"
    );
    words
}

/// No task of the server panicked, which its clients might not notice.
#[track_caller]
pub(crate) fn assert_no_panic(server: &Server) {
    let log = server.stderr();
    assert!(!log.contains("panicked"), "{log}");
}

pub(crate) fn count(words: &[String], of: &str) -> usize {
    words.iter().filter(|word| *word == of).count()
}

/// The resident memory of a process.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let lines = status.lines();
    let mut found = lines.filter_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = found.next().unwrap().trim_end_matches("kB").trim();
    kilobytes.parse::<u64>().unwrap() * 1024
}
