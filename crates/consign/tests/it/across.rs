//! Work that passes from one face to another, through a real server: published over HTTP, done by a plugin in bash.

use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::{Http, Server};
use serde_json::{Value, json};

use super::automation_world::{LONG, World, until};
use super::{Place, get, main_client, published, start, status_of, word};

const CONFIG: &str = "service: {tick_interval: 100ms}\nplugins: {greet: {parallelism: 1, serves: [{goal: greet}]}}\n";
/// Greets; whoever is called slow is kept waiting the first time.
const GREET: &str = r#"name=${request#*'"name":"'}; name=${name%%'"'*}
if [ "$name" = slow ] && [ ! -e "$here/began" ]; then touch "$here/began"; exec sleep 8; fi
printf '{"status":"ok","result":"hello %s"}' "$name""#;

fn publish(http: &mut Http, name: &str) -> String {
    let body = json!({"goal": "greet", "payload": {"name": name}, "backoff_base": 1});
    let reply = http.post("/intent", &body).expect("the server answers");
    assert_eq!(reply.status, 201, "{}", reply.text());
    word(&reply.json()["id"])
}

/// Waits until it is fulfilled, and gives the result.
fn result(server: &Server, http: &mut Http, id: &str) -> Value {
    let began = Instant::now();
    while status_of(http, id) != "fulfilled" {
        assert!(began.elapsed() < LONG, "{}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    get(http, &format!("/result/{id}")).json()["result"].clone()
}

#[test]
fn an_intent_published_over_http_is_fulfilled_by_a_plugin_and_survives_a_kill() {
    let world = World::new();
    world.plugin("greet", GREET);
    world.config(CONFIG);
    let place = Place::new();
    let config = world.path("config.yaml");
    let config = config.to_str().expect("temporary folders have plain names");
    let options = place.options().arg("--config").arg(config);
    let options = options.arg("--node-name").arg("here");
    let mut server = start(&options);
    let mut http = main_client(&server);
    let id = publish(&mut http, "Ada");
    let told = result(&server, &mut http, &id);
    assert_eq!(told["result"], "hello Ada", "{told}");
    let shown = world.json(&["job", "show", &word(&told["job_id"])]);
    assert_eq!(shown["intent_id"], id.as_str(), "{shown}");
    assert_eq!(shown["submitted_by"], "intent", "{shown}");

    let slow = publish(&mut http, "slow");
    until("the plugin runs", || world.path("began").exists());
    server.kill9().expect("it can be killed");
    let server = start(&options);
    let mut http = main_client(&server);
    let told = result(&server, &mut http, &slow);
    assert_eq!(told["result"], "hello slow", "{told}");
    let other = published(&mut http, "nobody serves this");
    assert_eq!(status_of(&mut http, &other), "open");
}
