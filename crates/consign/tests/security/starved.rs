//! A server without free file descriptors starts no process, and this uses up no attempts of intents.

use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::{Http, Server};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};

use crate::automation_world::{LONG, World};
use crate::place::{PATIENCE, Place, get, main_client, start, status_of, word};

const CONFIG: &str = "\
service: {tick_interval: 100ms}
plugins:
  resize: {retry: {max_attempts: 1}, serves: [{goal: resize}]}
  boxed: {sandbox: {best_effort: true}, retry: {max_attempts: 1}, serves: [{goal: box}]}
  broken: {retry: {max_attempts: 1}, serves: [{goal: break}]}
";
const OK: &str = r#"printf '{"status":"ok","result":"done"}'"#;
const TOLD: &str = "the system has no resources for another process";
/// Long enough for several failed attempts.
const STARVED: Duration = Duration::from_millis(1_500);

/// Open descriptors stay open, and no new one can be opened.
fn starve(server: &Server, is_starved: bool) {
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw);
    // The server has inherited the limit of this process.
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = if is_starved { Some(3) } else { current };
    let limit = Rlimit { current, maximum };
    prlimit(pid, Resource::Nofile, limit).expect("it can be set");
}

fn publish(http: &mut Http, goal: &str) -> String {
    let body = json!({"goal": goal, "payload": {}, "max_attempts": 1});
    let reply = http.post("/intent", &body).expect("the server answers");
    assert_eq!(reply.status, 201, "{}", reply.text());
    word(&reply.json()["id"])
}

fn until_told(server: &Server) {
    let began = Instant::now();
    while !server.stderr().contains(TOLD) {
        assert!(began.elapsed() < LONG, "{}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
}

fn until_fulfilled(server: &Server, http: &mut Http, id: &str) -> Value {
    let began = Instant::now();
    loop {
        let status = status_of(http, id);
        if status == "fulfilled" {
            return get(http, &format!("/result/{id}")).json()["result"].clone();
        }
        assert_ne!(status, "dead", "{}", server.stderr());
        assert!(began.elapsed() < LONG, "{status}: {}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
}

fn attempts_of(world: &World, told: &Value) -> Value {
    let job = word(&told["job_id"]);
    let shown = world.json(&["job", "show", &job]);
    assert_eq!(shown["status"], "succeeded", "{shown}");
    shown["attempt"].clone()
}

#[test]
fn s4_a_plugin_that_cannot_be_started_for_want_of_descriptors_uses_up_no_attempt() {
    let world = World::new();
    world.plugin("resize", OK);
    world.plugin("boxed", OK);
    world.plugin("broken", OK);
    world.config(CONFIG);
    let place = Place::new();
    let config = world.path("config.yaml");
    let config = config.to_str().expect("temporary folders have plain names");
    let options = place.options().arg("--config").arg(config);
    let mut server = start(&options);
    let mut http = main_client(&server);
    // After this, the ledger has opened the files of its first use.
    let first = publish(&mut http, "resize");
    until_fulfilled(&server, &mut http, &first);

    starve(&server, true);
    let ids = ["resize", "resize", "box"].map(|goal| publish(&mut http, goal));
    until_told(&server);
    thread::sleep(STARVED);
    for id in &ids {
        let status = status_of(&mut http, id);
        assert!(
            status == "open" || status == "claimed",
            "{status}: {}",
            server.stderr()
        );
    }
    let log = server.stderr();
    let told = log.matches(TOLD).count();
    assert!((1..=8).contains(&told), "once a pause: {log}");
    starve(&server, false);
    for id in &ids {
        let told = until_fulfilled(&server, &mut http, id);
        assert_eq!(attempts_of(&world, &told), 1, "{told}");
    }

    // A failure of the plugin still counts as an attempt.
    std::fs::remove_file(world.path("plugins/broken/run")).expect("it is there");
    let broken = publish(&mut http, "break");
    let began = Instant::now();
    while status_of(&mut http, &broken) != "dead" {
        assert!(began.elapsed() < LONG, "{}", server.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(server.terminate(PATIENCE).expect("it ends").success());
}

#[test]
fn s4_what_waits_for_descriptors_survives_a_restart_with_all_its_attempts() {
    let world = World::new();
    world.plugin("resize", OK);
    world.plugin("boxed", OK);
    world.plugin("broken", OK);
    world.config(CONFIG);
    let place = Place::new();
    let config = world.path("config.yaml");
    let config = config.to_str().expect("temporary folders have plain names");
    let options = place.options().arg("--config").arg(config);
    let mut server = start(&options);
    let mut http = main_client(&server);
    let first = publish(&mut http, "resize");
    until_fulfilled(&server, &mut http, &first);
    starve(&server, true);
    let id = publish(&mut http, "resize");
    until_told(&server);
    drop(http);
    assert!(server.terminate(LONG).expect("it ends").success());
    let server = start(&options);
    let mut http = main_client(&server);
    let told = until_fulfilled(&server, &mut http, &id);
    assert_eq!(attempts_of(&world, &told), 1, "{told}");
}
