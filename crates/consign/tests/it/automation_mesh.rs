//! Automations and a mesh in one real server: posts to topics and items of queues start pipelines.

use consign_testkit::process::Http;
use serde_json::{Value, json};

use super::automation_world::{World, until};
use super::mesh_world::{MESH, MeshWorld, wait_for};
use super::{printed, word};

const CONFIG: &str = "
service: {tick_interval: 100ms}
plugins: {keep: {}, after: {}}
mesh:
  receive:
    - {mesh: team, topic: general, event: posted}
    - {mesh: team, queue: builds, event: built}
pipelines:
  - {name: answer, on: posted, steps: [{uses: keep}, {uses: after}]}
  - {name: build, on: built, steps: [{uses: keep}]}
";
const WITHOUT: &str = "
service: {tick_interval: 100ms}
plugins: {keep: {}, after: {}}
";
/// Records the message, and fails if its body is `no` in base64, unless the file `yes` exists.
const TAKE: &str = r#"echo "$request" >> $here/got
[ -e "$here/yes" ] || case "$request" in *'"ciphertext":"bm8="'*) echo '{"status":"error","error":"refused it","retry":false}'; exit;; esac
while [ -e "$here/hold" ]; do sleep 0.05; done
echo '{"status":"ok","result":"taken","events":[{"type":"taken","payload":{}}]}'"#;
const AFTER: &str = r#"echo after >> $here/after; echo '{"status":"ok","result":"answered"}'"#;
/// The base64 of `fire`.
const FIRE: &str = "ZmlyZQ==";

/// A server with an automation that receives the topic `general`, and a member with an API key.
struct Site {
    automation: World,
    mesh: MeshWorld,
    api_key: String,
}

impl Site {
    fn new() -> Self {
        let automation = World::new();
        automation.plugin("keep", TAKE);
        automation.plugin("after", AFTER);
        automation.config(CONFIG);
        let config = automation.path("config.yaml");
        let config = config.to_str().expect("plain");
        let mesh = MeshWorld::serving(&[], |options| options.arg("--config").arg(config));
        let member = mesh.join("alice");
        let args = ["--member", &member.pubkey(), "--capability", "send"];
        let create = [&["mesh", "key", "create", MESH, "--json"][..], &args].concat();
        let created = printed(&mesh.place.consign(&create));
        let site = Self {
            automation,
            mesh,
            api_key: word(&created["key"]),
        };
        // The mesh and its topic are younger than the server.
        site.until_filled(&["automation:general"]);
        site
    }

    /// Waits until the topic fills these queues.
    fn until_filled(&self, expected: &[&str]) {
        wait_for("the topic fills its queues", || self.queues() == expected);
    }

    fn queues(&self) -> Vec<String> {
        let topics = printed(&self.mesh.place.consign(&["mesh", "topics", MESH, "--json"]));
        let topics = topics["topics"].as_array().expect("a list");
        let general = topics.iter().find(|topic| topic["name"] == "general");
        let queues = general.expect("every mesh has it")["queues"].as_array();
        let queues = queues.expect("a list").iter();
        queues.map(|queue| word(&queue["queue"])).collect()
    }

    /// Sends a message as the member, and returns the status.
    fn send(&self, body: &Value) -> (u16, Value) {
        let server = self.mesh.server.as_ref().expect("the server runs");
        let bearer = format!("Bearer {}", self.api_key);
        let mut http = Http::new(server.authority()).header("authorization", &bearer);
        let reply = http.post("/v1/messages", body).expect("the server answers");
        (reply.status, reply.json())
    }

    fn post(&self, id: &str, text: &str) -> u16 {
        let body = json!({"topic": "general", "body": text, "client_message_id": id});
        self.send(&body).0
    }

    /// The requests of the first step for the message with this id.
    fn runs_of(&self, id: &str) -> Vec<Value> {
        let got = self.automation.read("got");
        let requests = got
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a request"));
        let of_id = |request: &Value| request["event"]["payload"]["client_message_id"] == id;
        requests.filter(of_id).collect()
    }

    /// Waits until the pipelines of so many messages have ended, and returns how they ended.
    fn until_settled(&self, count: usize) -> Vec<String> {
        let settled = || -> Vec<String> {
            let sql = "SELECT state FROM intents WHERE profile = 9 ORDER BY id";
            let states = self.mesh.place.sql(sql);
            let is_over = |state: &String| ["5", "7"].contains(&state.as_str());
            states.into_iter().filter(is_over).collect()
        };
        until("the messages are settled", || settled().len() == count);
        let word = |state: String| match state.as_str() {
            "5" => "acked".to_owned(),
            _ => "dead".to_owned(),
        };
        settled().into_iter().map(word).collect()
    }

    fn kill(&mut self) {
        self.mesh.kill_broker();
    }

    fn start(&mut self) {
        self.mesh.start_broker();
    }
}

#[test]
fn a_post_of_a_daemon_runs_its_pipeline_once_and_a_repeated_id_runs_nothing() {
    let site = Site::new();
    let bob = site.mesh.member("bob");
    printed(&bob.daemon(&["topic", "post", "general", "fire", "--id", "p-1"]));
    assert_eq!(site.until_settled(1), ["acked"]);
    let runs = site.runs_of("p-1");
    let event = &runs[0]["event"];
    assert_eq!(event["type"], "posted", "{event}");
    let payload = &event["payload"];
    assert_eq!(payload["topic"], "general", "{payload}");
    assert_eq!(payload["mesh"], MESH, "{payload}");
    assert_eq!(payload["sender_name"], "bob", "{payload}");
    assert_eq!(payload["ciphertext"], FIRE, "{payload}");
    assert_eq!(site.automation.read("after"), "after\n");

    assert_eq!(site.post("p-2", "fire"), 201);
    assert_eq!(site.post("p-2", "fire"), 200, "the same post again");
    assert_eq!(site.post("p-2", "other"), 409);
    // A message to the other source of the configuration runs the other pipeline.
    let work = json!({
        "destination_kind": "queue", "destination_ref": "builds", "body": "fire", "client_message_id": "b-1",
    });
    assert_eq!(site.send(&work).0, 201);
    assert_eq!(site.until_settled(3), ["acked", "acked", "acked"]);
    for id in ["p-1", "p-2", "b-1"] {
        assert_eq!(site.runs_of(id).len(), 1, "{id}");
    }
    assert_eq!(site.runs_of("b-1")[0]["event"]["type"], "built");
    let jobs = site
        .automation
        .json(&["job", "list", "--plugin", "core.receive"]);
    assert_eq!(jobs["total"], 3, "{jobs}");
}

#[test]
fn a_post_that_was_accepted_before_a_kill_runs_its_pipeline_after_the_start() {
    let mut site = Site::new();
    // Without the automation, nothing takes the post before the kill.
    site.mesh.kill_broker();
    let with_automation = site.mesh.settings.clone();
    site.mesh.settings = site.mesh.place.options();
    site.start();
    assert_eq!(site.post("p-1", "fire"), 201);
    site.kill();
    site.mesh.settings = with_automation;
    site.start();
    assert_eq!(site.until_settled(1), ["acked"]);
    assert_eq!(site.runs_of("p-1").len(), 1);
    assert_eq!(site.post("p-1", "fire"), 200);
}

#[test]
fn a_kill_while_the_pipelines_run_starts_none_twice_and_loses_no_post() {
    let mut site = Site::new();
    std::fs::write(site.automation.path("hold"), "").expect("a file can be written");
    for id in ["p-1", "p-2", "p-3"] {
        assert_eq!(site.post(id, "fire"), 201);
    }
    until("a pipeline runs", || {
        !site.automation.read("got").is_empty()
    });
    site.kill();
    site.start();
    assert_eq!(site.post("p-4", "fire"), 201);
    std::fs::remove_file(site.automation.path("hold")).expect("it is there");
    assert_eq!(site.until_settled(4), ["acked"; 4]);
    for plugin in ["keep", "after"] {
        let jobs = site.automation.json(&["job", "list", "--plugin", plugin]);
        assert_eq!(jobs["total"], 4, "one run for each post: {jobs}");
    }
}

#[test]
fn a_post_whose_pipeline_fails_is_a_dead_letter() {
    let site = Site::new();
    assert_eq!(site.post("p-1", "no"), 201);
    assert_eq!(site.until_settled(1), ["dead"]);
    assert_eq!(site.runs_of("p-1").len(), 1);
    let dead = printed(&site.mesh.place.consign(&["mesh", "dead", MESH, "--json"]));
    let item = &dead["items"][0];
    assert_eq!(item["client_message_id"], "p-1", "{dead}");
    assert_eq!(item["topic"], "general", "{dead}");
    assert!(word(&item["reason"]).contains("refused it"), "{dead}");
    assert_eq!(site.post("p-2", "fire"), 201);
    assert_eq!(site.until_settled(2), ["dead", "acked"]);
    // What was requeued runs its pipelines again.
    std::fs::write(site.automation.path("yes"), "").expect("a file can be written");
    let requeue = ["mesh", "requeue", MESH, &word(&item["item_id"]), "--json"];
    assert_eq!(
        printed(&site.mesh.place.consign(&requeue))["requeued"],
        true
    );
    until("it runs again", || site.runs_of("p-1").len() == 2);
    assert_eq!(site.until_settled(2), ["acked", "acked"]);
}

#[test]
fn an_entry_that_leaves_the_configuration_ends_its_subscription() {
    let site = Site::new();
    let subscribe = ["mesh", "subscribe", MESH, "general", "audit"];
    let shown = site.mesh.place.consign(&subscribe);
    assert!(shown.status.success(), "{shown:?}");
    site.until_filled(&["automation:general", "audit"]);
    site.automation.config(WITHOUT);
    let reloaded = site.automation.ductile(&["system", "reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    site.until_filled(&["audit"]);
    assert_eq!(site.post("p-1", "fire"), 201);
    let items = site
        .mesh
        .place
        .sql("SELECT namespace FROM intents WHERE profile = 9");
    assert_eq!(items, ["mesh.audit"], "what an operator asked for stays");
    let unsubscribe = ["mesh", "unsubscribe", MESH, "general", "audit", "--json"];
    let ended = printed(&site.mesh.place.consign(&unsubscribe));
    assert_eq!(ended["queues"], json!([]));
    let again = site.mesh.place.consign(&unsubscribe);
    assert!(!again.status.success(), "{again:?}");
}
