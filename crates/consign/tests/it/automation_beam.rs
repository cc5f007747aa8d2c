//! Automations and Beam in one real server: pipelines send messages to agents and receive those of agents.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use consign_beam::keys::BeamPrivateKey;
use consign_testkit::process::{Http, Options, Server};
use serde_json::{Value, json};

use super::automation_world::{OK, World, until};
use super::only_postgres_nodes::copy_keys;
use super::{Place, get, start, word};

pub(crate) const ALICE: &str = "alice@acme.beam.directory";
pub(crate) const BOB: &str = "bob@acme.beam.directory";

/// An agent that is called over HTTP.
struct Endpoint {
    address: String,
    nonces: Arc<Mutex<Vec<String>>>,
    answers: Arc<AtomicBool>,
}

impl Endpoint {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let (nonces, answers) = (Arc::default(), Arc::new(AtomicBool::new(true)));
        let endpoint = Self {
            address,
            nonces: Arc::clone(&nonces),
            answers: Arc::clone(&answers),
        };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (nonces, answers) = (Arc::clone(&nonces), Arc::clone(&answers));
                thread::spawn(move || answer(stream, &nonces, &answers));
            }
        });
        endpoint
    }

    fn nonces(&self) -> Vec<String> {
        self.nonces.lock().expect("no test panicked").clone()
    }
}

/// Answers one request with success, or never.
fn answer(stream: std::net::TcpStream, nonces: &Mutex<Vec<String>>, answers: &AtomicBool) {
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some((name, value)) = line.split_once(": ")
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().expect("a number");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body is complete");
    let body: Value = serde_json::from_slice(&body).expect("it is JSON");
    let nonce = word(&body["nonce"]);
    nonces.lock().expect("no test panicked").push(nonce);
    while !answers.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(10));
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    let _ = reader.get_mut().write_all(head.as_bytes());
}

fn key(beam_id: &str) -> BeamPrivateKey {
    BeamPrivateKey::from_seed(&seed(beam_id))
}

fn seed(beam_id: &str) -> [u8; 32] {
    [beam_id.as_bytes()[0]; 32]
}

/// A server with these identities on its bus and an automation.
pub(crate) struct Site {
    pub(crate) world: World,
    place: Rc<Place>,
    options: Options,
    server: Server,
}

impl Site {
    fn new(identities: &[&str], allowed: &str, config: &str, plugins: &[(&str, &str)]) -> Self {
        let place = Rc::new(Place::new());
        Self::at(place, "data", (identities, allowed), config, plugins)
    }

    /// The data directory has this name in the place.
    fn at(
        place: Rc<Place>,
        data: &str,
        (identities, allowed): (&[&str], &str),
        config: &str,
        plugins: &[(&str, &str)],
    ) -> Self {
        let world = World::new();
        for (name, body) in plugins {
            world.plugin(name, body);
        }
        world.config(config);
        let bundle: serde_json::Map<String, Value> = identities
            .iter()
            .map(|beam_id| {
                let identity = json!({
                    "beamId": beam_id,
                    "publicKeyBase64": key(beam_id).public_key().to_string(),
                    "privateKeyBase64": BeamPrivateKey::text_of_seed(&seed(beam_id)).as_str(),
                });
                ((*beam_id).to_owned(), identity)
            })
            .collect();
        let file: PathBuf = world.path("identities.json");
        std::fs::write(&file, Value::Object(bundle).to_string()).expect("a file can be written");
        let plain = |path: &PathBuf| path.to_str().expect("plain").to_owned();
        let options = (place.options_with(place.path(data)))
            .arg("--config")
            .arg(&plain(&world.path("config.yaml")))
            .env("BEAM_BUS_IDENTITY_PATH", &plain(&file))
            .env("BEAM_BUS_RETRY_INTERVAL_MS", "100")
            .env("BEAM_BUS_RETRY_TIME_SCALE", "0.01")
            .env("BEAM_ALLOW_TARGETS", allowed);
        let server = start(&options);
        Self {
            world,
            place,
            options,
            server,
        }
    }

    fn http(&self) -> Http {
        Http::new(self.server.authority())
    }

    fn register(&self, beam_id: &str, endpoint: Option<&Endpoint>) {
        let mut body = json!({
            "beamId": beam_id, "displayName": beam_id, "capabilities": [], "org": "acme",
            "publicKey": key(beam_id).public_key().to_string(),
        });
        if let Some(endpoint) = endpoint {
            body["httpEndpoint"] = format!("http://{}/", endpoint.address).into();
        }
        let reply = self.http().post("/agents/register", &body);
        let reply = reply.expect("the server answers");
        assert_eq!(reply.status, 201, "{}", reply.text());
    }

    fn allow(&self, target: &str, intent: &str, from: &str) {
        let rule = json!({"targetBeamId": target, "intentType": intent, "allowedFrom": from});
        let reply = self.http().post("/acl", &rule).expect("the server answers");
        assert!(reply.status < 300, "{}", reply.text());
    }

    /// All messages of the bus, newest first.
    fn history(&self) -> Vec<Value> {
        let listed = get(&mut self.http(), "/v1/beam/history?limit=100").json();
        listed["messages"].as_array().expect("a list").clone()
    }

    fn acknowledge(&self, message: &str, response: &Value) {
        let body = json!({"message_id": message, "status": "acked", "response": response});
        let reply = self.http().post("/v1/beam/ack", &body);
        let reply = reply.expect("the server answers");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// Waits until the pipeline step has ended, and returns it.
    fn ended(&self, plugin: &str) -> Value {
        let list = ["job", "list", "--plugin", plugin];
        let jobs = || self.world.json(&list)["jobs"].clone();
        until("the step has ended", || {
            let status = word(&jobs()[0]["status"]);
            ["succeeded", "failed", "timed_out", "dead"].contains(&status.as_str())
        });
        self.world
            .json(&["job", "show", &word(&jobs()[0]["job_id"])])
    }

    /// Lets the scheduled plugin emit its event.
    fn has_news(&self) {
        std::fs::write(self.world.path("news"), "").expect("a file can be written");
    }

    fn kill9_and_start(&mut self) {
        self.server.kill9().expect("it can be killed");
        self.server = start(&self.options);
    }
}

/// Emits one event as soon as the file `news` exists.
const POLL: &str = r#"if [ ! -e "$here/news" ] || [ -e "$here/polled" ]; then echo '{"status":"ok","result":"nothing"}'; exit; fi
touch "$here/polled"
echo '{"status":"ok","result":"new","events":[{"type":"news","payload":{"message":"hello"}}]}'"#;
const KEEP: &str = "printf '%s' \"$request\" >> $here/got";
const SEND: &str = "
service: {tick_interval: 100ms}
plugins: {watch: {schedules: [{every: 1s}]}, keep: {}}
pipelines:
  - name: tell
    on: news
    steps:
      - {uses: core.send, with: {from: alice@acme.beam.directory, to: bob@acme.beam.directory, intent: conversation.message, until: acked}}
      - {uses: keep}
";

#[test]
fn a_schedule_sends_a_message_and_the_pipeline_goes_on_with_its_acknowledgement() {
    let endpoint = Endpoint::new();
    let keep = format!("{KEEP}; {OK}");
    let plugins = [("watch", POLL), ("keep", keep.as_str())];
    let site = Site::new(&[ALICE], &endpoint.address, SEND, &plugins);
    site.register(ALICE, None);
    site.register(BOB, Some(&endpoint));
    site.allow(BOB, "conversation.message", ALICE);
    site.has_news();
    let poll = format!("/v1/beam/poll?agent={BOB}&wait=20");
    let polled = get(&mut site.http(), &poll).json();
    let message = &polled["messages"][0];
    assert_eq!(message["payload"]["message"], "hello", "{polled}");
    assert_eq!(message["sender"], ALICE, "{polled}");
    let id = word(&message["id"]);
    site.acknowledge(&id, &json!({"seen": true}));
    let step = site.ended("core.send");
    assert_eq!(step["status"], "succeeded", "{step}");
    assert_eq!(endpoint.nonces(), [word(&step["job_id"])]);
    assert_eq!(step["result"]["outcome"], "acked", "{step}");
    assert_eq!(step["result"]["message_id"], id.as_str(), "{step}");
    site.ended("keep");
    let got: Value = serde_json::from_str(&site.world.read("got")).expect("one request");
    assert_eq!(got["event"]["type"], "message.acked", "{got}");
    assert_eq!(got["event"]["payload"]["response"], json!({"seen": true}));
    assert_eq!(site.history().len(), 1);
    let healthy = site.world.json(&["system", "doctor"]);
    assert_eq!(healthy["healthy"], true, "{healthy}");
}

#[test]
fn a_step_that_is_killed_while_its_message_is_delivered_sends_no_second_one() {
    let endpoint = Endpoint::new();
    endpoint.answers.store(false, Ordering::Relaxed);
    let keep = format!("{KEEP}; {OK}");
    let plugins = [("watch", POLL), ("keep", keep.as_str())];
    let config = SEND.replace("until: acked", "until: delivered");
    let mut site = Site::new(&[ALICE], &endpoint.address, &config, &plugins);
    site.register(ALICE, None);
    site.register(BOB, Some(&endpoint));
    site.allow(BOB, "conversation.message", ALICE);
    site.has_news();
    until("the agent is called", || !endpoint.nonces().is_empty());
    site.kill9_and_start();
    endpoint.answers.store(true, Ordering::Relaxed);
    let step = site.ended("core.send");
    assert_eq!(step["status"], "succeeded", "{step}");
    assert_eq!(step["result"]["outcome"], "delivered", "{step}");
    assert!(
        step["attempt"].as_u64() > Some(1),
        "it was recovered: {step}"
    );
    let history = site.history();
    assert_eq!(history.len(), 1, "{history:?}");
    assert_eq!(history[0]["nonce"], step["job_id"]);
    let same = |nonce: &String| *nonce == word(&step["job_id"]);
    assert!(
        endpoint.nonces().iter().all(same),
        "{:?}",
        endpoint.nonces()
    );
}

#[test]
fn a_sender_without_an_identity_is_reported_and_fails_its_step() {
    let keep = format!("{KEEP}; {OK}");
    let plugins = [("watch", POLL), ("keep", keep.as_str())];
    let site = Site::new(&[BOB], "127.0.0.1:1", SEND, &plugins);
    site.has_news();
    let step = site.ended("core.send");
    assert_eq!(step["status"], "failed", "{step}");
    let error = word(&step["last_error"]);
    assert!(
        error.contains("no key of `alice@acme.beam.directory`"),
        "{error}"
    );
    assert_eq!(site.history(), Vec::<Value>::new(), "nothing was sent");
    let checks = site.world.json(&["system", "doctor"]);
    assert_eq!(checks["healthy"], false, "{checks}");
    assert!(
        checks.to_string().contains("BEAM_BUS_IDENTITY_PATH"),
        "{checks}"
    );
}

#[test]
fn a_refused_message_fails_its_step_with_the_reason() {
    let keep = format!("{KEEP}; {OK}");
    let plugins = [("watch", POLL), ("keep", keep.as_str())];
    let site = Site::new(&[ALICE], "127.0.0.1:1", SEND, &plugins);
    // Neither agent is registered.
    site.has_news();
    let step = site.ended("core.send");
    assert_eq!(step["status"], "failed", "{step}");
    assert!(
        word(&step["last_error"]).contains("is dead_letter: "),
        "{step}"
    );
    assert_eq!(site.history().len(), 1);
    assert_eq!(site.world.read("got"), "", "the next step does not run");
}

const RECEIVE: &str = "
service: {tick_interval: 100ms}
plugins: {keep: {}, after: {}}
beam:
  receive:
    - {agent: bob@acme.beam.directory, intent: conversation.message, event: asked}
pipelines:
  - {name: answer, on: asked, steps: [{uses: keep}, {uses: after}]}
";
/// Records the message, and fails if its text is `no`, unless the file `yes` exists.
const TAKE: &str = r#"echo "$request" >> $here/got
[ -e "$here/yes" ] || case "$request" in *'"message":"no"'*) echo '{"status":"error","error":"refused it","retry":false}'; exit;; esac
while [ -e "$here/hold" ]; do sleep 0.05; done
echo '{"status":"ok","result":"taken","events":[{"type":"taken","payload":{}}]}'"#;
const AFTER: &str = r#"echo after >> $here/after; echo '{"status":"ok","result":"answered"}'"#;

impl Site {
    /// A server whose automation receives the messages of Bob, who has no connection.
    pub(crate) fn receiving() -> Self {
        let site = Self::receiving_at(Rc::new(Place::new()), "data");
        site.register(ALICE, None);
        site.register(BOB, None);
        site.allow(BOB, "conversation.message", ALICE);
        site
    }

    /// Another server on the same ledger that does the same.
    pub(crate) fn beside(&self) -> Self {
        copy_keys(&self.place.data(), &self.place.path("other"));
        Self::receiving_at(Rc::clone(&self.place), "other")
    }

    fn receiving_at(place: Rc<Place>, data: &str) -> Self {
        let plugins = [("keep", TAKE), ("after", AFTER)];
        Self::at(place, data, (&[ALICE], "127.0.0.1:1"), RECEIVE, &plugins)
    }

    pub(crate) fn tell_bob(&self, text: &str) -> String {
        let body = json!({
            "from": ALICE, "to": BOB, "intent": "conversation.message", "payload": {"message": text},
        });
        let reply = self.http().post("/v1/beam/send", &body);
        let reply = reply.expect("the server answers");
        assert_eq!(reply.status, 201, "{}", reply.text());
        word(&reply.json()["message_id"])
    }

    pub(crate) fn message(&self, id: &str) -> Value {
        let history = self.history();
        let found = history.iter().find(|message| message["id"] == id);
        found.cloned().unwrap_or_default()
    }

    pub(crate) fn until_status(&self, id: &str, status: &str) {
        until(status, || self.message(id)["status"] == status);
    }

    /// How often the first step ran for a message.
    pub(crate) fn runs_of(&self, id: &str) -> usize {
        let wanted = format!("\"message_id\":\"{id}\"");
        let got = self.world.read("got");
        got.lines().filter(|line| line.contains(&wanted)).count()
    }
}

#[test]
fn a_message_for_an_agent_without_a_connection_runs_a_pipeline_and_is_acknowledged() {
    let site = Site::receiving();
    let id = site.tell_bob("hello");
    site.until_status(&id, "acked");
    let message = site.message(&id);
    assert_eq!(message["response"]["result"], "answered", "{message}");
    let job = word(&message["response"]["job_id"]);
    let job = site.world.json(&["job", "show", &job]);
    assert_eq!(job["submitted_by"], "message", "{job}");
    assert_eq!(job["intent_id"], id.as_str(), "{job}");
    let got: Value = serde_json::from_str(&site.world.read("got")).expect("one request");
    let event = &got["event"];
    assert_eq!(event["type"], "asked", "{got}");
    assert_eq!(event["payload"]["from"], ALICE, "{got}");
    assert_eq!(event["payload"]["payload"], json!({"message": "hello"}));
    assert_eq!(site.world.read("after"), "after\n");

    let refused = site.tell_bob("no");
    site.until_status(&refused, "failed");
    let error = word(&site.message(&refused)["error"]);
    assert!(error.contains("refused it"), "{error}");
    assert_eq!(site.runs_of(&refused), 1);

    // A requeued message runs its pipelines again.
    std::fs::write(site.world.path("yes"), "").expect("a file can be written");
    let requeue = format!("/v1/beam/dead-letter/{refused}/requeue");
    let reply = site.http().post(&requeue, &json!({}));
    assert_eq!(reply.expect("the server answers").status, 200);
    site.until_status(&refused, "acked");
    assert_eq!(site.runs_of(&refused), 2);
}

#[test]
fn a_kill_while_pipelines_run_starts_none_twice_and_loses_no_message() {
    let mut site = Site::receiving();
    std::fs::write(site.world.path("hold"), "").expect("a file can be written");
    let ids: Vec<String> = ["one", "two", "three"]
        .iter()
        .map(|text| site.tell_bob(text))
        .collect();
    until("a pipeline runs", || !site.world.read("got").is_empty());
    site.kill9_and_start();
    let later = site.tell_bob("four");
    std::fs::remove_file(site.world.path("hold")).expect("it is there");
    for id in ids.iter().chain([&later]) {
        site.until_status(id, "acked");
    }
    let jobs = site.world.json(&["job", "list", "--plugin", "after"]);
    assert_eq!(jobs["total"], 4, "one run for each message: {jobs}");
    let jobs = site.world.json(&["job", "list", "--plugin", "keep"]);
    assert_eq!(jobs["total"], 4, "{jobs}");
    assert_eq!(site.history().len(), 4);
}
