//! Work that crosses faces in a real server: published over HTTP, executed by a plugin in bash.

use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::postgres;
use consign_testkit::process::{Http, Options, Server};
use serde_json::{Value, json};

use super::automation_world::{LONG, OK, World, rounds, until};
use super::{Place, binary, get, main_client, published, start, status_of, word};

const CONFIG: &str = "service: {tick_interval: 100ms}\nplugins: {greet: {parallelism: 1, serves: [{goal: greet}]}}\n";
/// Greets. The first run for the name `slow` hangs.
const GREET: &str = r#"name=${request#*'"name":"'}; name=${name%%'"'*}
if [ "$name" = slow ] && [ ! -e "$here/began" ]; then touch "$here/began"; exec sleep 8; fi
printf '{"status":"ok","result":"hello %s"}' "$name""#;

fn publish(http: &mut Http, name: &str) -> String {
    let body = json!({"goal": "greet", "payload": {"name": name}, "backoff_base": 1});
    let reply = http.post("/intent", &body).expect("the server answers");
    assert_eq!(reply.status, 201, "{}", reply.text());
    word(&reply.json()["id"])
}

/// Waits until the intent is fulfilled and returns the result.
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

/// Records the id of its intent, takes some time, and emits the id in an event.
const SERVE: &str = r#"id=${request#*'"event_id":"'}; id=${id%%'"'*}
echo "serve $id" >> $here/ran; sleep 0.15
printf '{"status":"ok","result":"done","events":[{"type":"served","payload":{"intent":"%s"}}]}' "$id""#;
const AFTER: &str = r#"id=${request#*'"intent":"'}; id=${id%%'"'*}
echo "after $id" >> $here/ran; sleep 0.05"#;
const AT_ONCE: usize = 4;

#[test]
fn kill_9_while_intents_are_served_loses_no_step_and_answers_each_once_du_116() {
    let world = World::new();
    let place = Place::new();
    killed_while_serving(&world, place.options());
}

#[test]
fn kill_9_while_intents_are_served_does_the_same_on_postgresql_du_116() {
    let world = World::new();
    let cluster = postgres::shared().expect("PostgreSQL runs");
    let database = cluster.database("consign_nothing", |_| {});
    let database = database.expect("a database can be made");
    let options = Options::new(binary(), world.path("data")).arg("--store");
    killed_while_serving(&world, options.arg(&database.url()));
}

fn killed_while_serving(world: &World, options: Options) {
    world.plugin("serve", SERVE);
    world.plugin("after", &format!("{AFTER}; {OK}"));
    world.config(
        "service: {tick_interval: 100ms, max_workers: 4}\n\
         plugins: {serve: {parallelism: 2, serves: [{goal: serve}]}, after: {}}\n\
         routes: [{from: serve, event_type: served, to: after}]\n",
    );
    let config = world.path("config.yaml");
    let options = options.arg("--config").arg(config.to_str().expect("plain"));
    let options = options.arg("--node-name").arg("here");
    let mut server = start(&options);
    let mut ids: Vec<String> = Vec::new();
    for round in 0..rounds() {
        let mut http = main_client(&server);
        ids.extend((0..AT_ONCE).map(|_| publish_goal(&mut http, "serve")));
        // Another moment in every round, spread over the whole execution.
        thread::sleep(Duration::from_millis(u64::from(round * 97 % 500)));
        let recorded = succeeded_for(world);
        server.kill9().expect("it can be killed");
        let before = world.read("ran");
        server = start(&options);
        let mut http = main_client(&server);
        for id in &ids {
            result(&server, &mut http, id);
        }
        until("all steps are done", || {
            let queue = world.json(&["queue"]);
            queue["jobs"].as_array().is_some_and(Vec::is_empty)
        });
        let after = world.read("ran");
        let again = after.strip_prefix(&before).expect("the file only grows");
        for id in &ids {
            for step in ["serve", "after"] {
                let line = format!("{step} {id}\n");
                assert!(after.contains(&line), "round {round}: {line} is lost");
            }
        }
        for line in &recorded {
            assert!(!again.contains(line), "round {round}: {line} ran again");
        }
    }
    let mut http = main_client(&server);
    for id in &ids {
        let told = get(&mut http, &format!("/intents/{id}/timeline")).json();
        let facts = told["facts"].as_array().expect("a list").iter();
        let fulfilled = facts.filter(|fact| fact["to"] == "fulfilled");
        assert_eq!(fulfilled.count(), 1, "{told}");
    }
    for plugin in ["serve", "after"] {
        let wanted = ["job", "list", "--plugin", plugin, "--status", "succeeded"];
        let jobs = world.json(&[&wanted[..], &["--limit", "1000"]].concat());
        assert_eq!(jobs["total"], ids.len(), "{plugin}: {jobs}");
    }
}

#[test]
fn a_drained_node_runs_no_scheduled_job_until_it_is_resumed() {
    let place = Place::new();
    drained_beside_schedules(&place, place.options());
}

#[test]
fn a_drained_node_does_the_same_on_postgresql() {
    let place = Place::new();
    let cluster = postgres::shared().expect("PostgreSQL runs");
    let database = cluster.database("consign_nothing", |_| {});
    let database = database.expect("a database can be made");
    let options = place.options().arg("--store").arg(&database.url());
    drained_beside_schedules(&place, options);
}

fn drained_beside_schedules(place: &Place, options: Options) {
    let world = World::new();
    world.plugin("tick", &format!("echo ran >> $here/ran; {OK}"));
    world.config("service: {tick_interval: 100ms}\nplugins: {tick: {schedules: [{every: 1s}]}}\n");
    let config = world.path("config.yaml");
    let options = options.arg("--config").arg(config.to_str().expect("plain"));
    let _server = start(&options.arg("--node-name").arg("only"));
    let ran = || world.read("ran").lines().count();
    until("the schedule runs", || ran() > 0);
    let drained = place.consign(&["node", "drain", "only", "--wait"]);
    assert!(drained.status.success(), "{drained:?}");
    let before = ran();
    // The duration of three scheduled runs.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(ran(), before, "a drained node runs a job");
    let resumed = place.consign(&["node", "resume", "only"]);
    assert!(resumed.status.success(), "{resumed:?}");
    until("the schedule runs again", || ran() > before);
}

fn publish_goal(http: &mut Http, goal: &str) -> String {
    let body = json!({"goal": goal, "payload": {}, "backoff_base": 1});
    let reply = http.post("/intent", &body).expect("the server answers");
    assert_eq!(reply.status, 201, "{}", reply.text());
    word(&reply.json()["id"])
}

/// The lines that the plugins wrote for the jobs that have succeeded according to the ledger.
fn succeeded_for(world: &World) -> Vec<String> {
    let listed = world.json(&["logs", "--status", "succeeded", "--limit", "200"]);
    let logs = listed["logs"].as_array().expect("a list").iter();
    let serving = logs.filter(|log| log["plugin"] == "serve");
    let lines = serving.map(|log| {
        let job = world.json(&["job", "show", &word(&log["job_id"])]);
        format!("serve {}\n", word(&job["intent_id"]))
    });
    lines.collect()
}
