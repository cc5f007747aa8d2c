//! Intents that a daemon publishes: each is accepted without the server, published once, and fulfilled by a worker.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use consign_testkit::process::Http;
use serde_json::{Value, json};

use super::mesh_world::{MeshUser, MeshWorld, failed, wait_for};
use super::{get, main_client, printed, word};

const GOAL: &str = "mail";

/// A user whose daemon publishes with this key, at the server of the mesh or at the one that `url` names.
fn publisher(world: &MeshWorld, key: &str, url: Option<&str>) -> MeshUser {
    let user = world.join("alice");
    let url = url.map_or_else(String::new, |url| format!("url = \"{url}\"\n"));
    user.configure(&format!(
        "[daemon]\nmesh = \"team\"\n[intents]\n{url}api_key_file = \"intents_key\"\n"
    ));
    user.write_intents_key(key);
    user
}

fn http(world: &MeshWorld) -> Http {
    main_client(world.server.as_ref().expect("the server runs"))
}

fn row(user: &MeshUser, id: &str) -> Value {
    let listed = printed(&user.daemon(&["outbox", "--limit", "500"]));
    let rows = listed["items"].as_array().expect("a list");
    let found = rows.iter().find(|row| row["client_message_id"] == id);
    found.cloned().unwrap_or(Value::Null)
}

fn wait_done(user: &MeshUser, id: &str) -> Value {
    wait_for(&format!("{id} is published"), || {
        user.outbox_status(id) == "done"
    });
    row(user, id)
}

/// The ids of the intents that the server has for the goal.
fn intents(http: &mut Http) -> Vec<String> {
    let listed = get(http, &format!("/intents?goal={GOAL}")).json();
    let listed = listed["intents"].as_array().expect("a list");
    listed.iter().map(|intent| word(&intent["id"])).collect()
}

#[test]
fn an_intent_accepted_without_the_server_is_published_once_and_fulfilled_by_a_worker() {
    let mut world = MeshWorld::new();
    let key = world.main_key();
    let mut alice = publisher(&world, &key, None);
    world.kill_broker();
    alice.up();
    let publish = [
        "publish",
        GOAL,
        r#"{"to":"bob","size":1.50}"#,
        "--id",
        "order-1",
        "--required-capability",
        "smtp",
    ];
    let accepted = printed(&alice.daemon(&publish));
    assert_eq!(
        accepted,
        json!({"client_message_id": "order-1", "status": "queued"})
    );
    // A daemon that is killed forgets nothing that it has answered.
    alice.kill();
    alice.up();
    let again = printed(&alice.daemon(&publish));
    assert_eq!(again["client_message_id"], "order-1");
    world.start_broker();
    let done = wait_done(&alice, "order-1");
    assert_eq!(
        (&done["destination_kind"], &done["destination_ref"]),
        (&json!("intent"), &json!(GOAL))
    );
    let mut http = http(&world);
    assert_eq!(intents(&mut http), [word(&done["broker_message_id"])]);

    let capable = [("X-Worker-Capabilities", "smtp")];
    let claim = format!("/claim?goal={GOAL}");
    let reply = http.send("POST", &claim, &capable, None);
    let reply = reply.expect("the server answers");
    let claimed = reply.json();
    assert_eq!(claimed["id"], done["broker_message_id"], "{}", reply.text());
    assert!(reply.text().contains(r#"{"to":"bob","size":1.50}"#));
    let settled = json!({"claim_token": claimed["claim_token"], "result": {"sent": true}});
    let fulfil = format!("/fulfill/{}", word(&claimed["id"]));
    let reply = http.post(&fulfil, &settled).expect("the server answers");
    assert_eq!(reply.status, 200, "{}", reply.text());
    // A repeated request has the result of the first one.
    let repeated = printed(&alice.daemon(&publish));
    assert_eq!(
        (&repeated["duplicate"], &repeated["broker_message_id"]),
        (&json!(true), &done["broker_message_id"])
    );
    assert_eq!(intents(&mut http).len(), 1);
}

#[test]
fn a_daemon_that_is_killed_between_the_answer_of_the_server_and_its_own_commit_publishes_once() {
    let world = MeshWorld::new();
    let authority = world.server.as_ref().expect("the server runs").authority();
    let relay = Relay::start(authority);
    let mut alice = publisher(&world, &world.main_key(), Some(&relay.url));
    alice.up();
    printed(&alice.daemon(&["publish", GOAL, "1", "--id", "order-1"]));
    relay.wait_answered();
    let mut http = http(&world);
    let first = intents(&mut http);
    assert_eq!(first.len(), 1, "the server has it");
    assert_eq!(alice.outbox_status("order-1"), "inflight");
    alice.kill();
    relay.pass_on();
    alice.up();
    let done = wait_done(&alice, "order-1");
    assert_eq!(first, [word(&done["broker_message_id"])]);
    assert_eq!(intents(&mut http), first);
    assert_eq!(done["attempts"], 3, "the lost one and its recovery count");
}

#[test]
fn an_id_belongs_to_one_request() {
    let world = MeshWorld::new();
    let mut alice = publisher(&world, &world.main_key(), None);
    alice.up();
    printed(&alice.daemon(&["publish", GOAL, r#"{"a":1,"b":2}"#, "--id", "order-1"]));
    let done = wait_done(&alice, "order-1");
    for other in [
        &["publish", GOAL, r#"{"a":1,"b":3}"#, "--id", "order-1"][..],
        &["publish", "letter", r#"{"a":1,"b":2}"#, "--id", "order-1"],
        &["send", "*", "hello", "--id", "order-1"],
    ] {
        let (status, error) = failed(&alice.daemon(other));
        assert_eq!(status, 4, "{error}");
        assert!(
            error.contains("outbox_done_fingerprint_mismatch"),
            "{error}"
        );
    }
    // The order of members does not make it another request.
    let same = ["publish", GOAL, r#"{ "b": 2, "a": 1 }"#, "--id", "order-1"];
    let same = printed(&alice.daemon(&same));
    assert_eq!(same["broker_message_id"], done["broker_message_id"]);
    assert_eq!(intents(&mut http(&world)).len(), 1);
}

#[test]
fn a_wrong_key_is_a_failed_row_with_the_words_of_the_server_and_a_requeue_publishes_it() {
    let world = MeshWorld::new();
    let mut alice = publisher(&world, "no such key, and long enough to be one", None);
    alice.up();
    printed(&alice.daemon(&["publish", GOAL, "1", "--id", "order-1"]));
    wait_for("the row is dead", || {
        alice.outbox_status("order-1") == "dead"
    });
    let dead = printed(&alice.daemon(&["outbox", "--failed"]));
    let dead = &dead["items"][0];
    let error = word(&dead["last_error"]);
    assert!(error.contains("status 401"), "{error}");
    assert!(!error.contains("no such key"), "{error}");
    // The new key is used without a restart.
    alice.write_intents_key(&world.main_key());
    let row_id = word(&dead["id"]);
    let requeue = [
        "outbox",
        "requeue",
        &row_id,
        "--new-client-id",
        "order-2",
        "--patch-payload",
        r#"{"n":2}"#,
    ];
    printed(&alice.daemon(&requeue));
    wait_done(&alice, "order-2");
    assert_eq!(row(&alice, "order-1")["status"], "aborted");
    let mut http = http(&world);
    let claim = http.post(&format!("/claim?goal={GOAL}"), &json!({}));
    let claimed = claim.expect("the server answers").json();
    assert_eq!(claimed["payload"], json!({"n": 2}));
}

/// A relay to the server that holds back the first answer to a publish.
struct Relay {
    url: String,
    answered: Receiver<()>,
    go_on: Sender<()>,
}

impl Relay {
    fn start(authority: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let (tell, answered) = mpsc::channel();
        let (go_on, wait) = mpsc::channel();
        let authority = authority.to_owned();
        thread::spawn(move || {
            let mut held = Some((tell, wait));
            for stream in listener.incoming().map_while(Result::ok) {
                // A connection that breaks is the end of its requests alone.
                let _ = carry(stream, &authority, &mut held);
            }
        });
        Self {
            url: format!("http://127.0.0.1:{port}"),
            answered,
            go_on,
        }
    }

    /// Waits until the server has answered.
    fn wait_answered(&self) {
        self.answered
            .recv_timeout(super::PATIENCE)
            .expect("the daemon publishes");
    }

    fn pass_on(&self) {
        self.go_on.send(()).expect("the relay runs");
    }
}

/// Carries the requests of one connection, each with a connection of its own to the server.
fn carry(
    mut near: TcpStream,
    authority: &str,
    held: &mut Option<(Sender<()>, Receiver<()>)>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(near.try_clone()?);
    loop {
        let request = message(&mut reader)?;
        let mut far = TcpStream::connect(authority)?;
        far.write_all(&request)?;
        let answer = message(&mut BufReader::new(far))?;
        if request.starts_with(b"POST /intent ")
            && let Some((tell, wait)) = held.take()
        {
            let _ = tell.send(());
            let _ = wait.recv();
        }
        near.write_all(&answer)?;
    }
}

/// The bytes of one request or answer, whose length is in its head.
fn message(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut length = 0;
    loop {
        let start = bytes.len();
        if reader.read_until(b'\n', &mut bytes)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&bytes[start..]).to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let start = bytes.len();
    bytes.resize(start + length, 0);
    reader.read_exact(&mut bytes[start..])?;
    Ok(bytes)
}
