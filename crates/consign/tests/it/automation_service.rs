//! The automation service as a process: its start, refused starts, reloads, stop and logs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

use consign_testkit::postgres;
use consign_testkit::process::{Options, Server};
use serde_json::Value;

use super::automation_world::{LONG, OK, World, rounds, until};
use super::{code, mode, text, word};

fn world() -> World {
    let world = World::new();
    world.plugin("echo", OK);
    world.config("plugins: {echo: {}}\n");
    world
}

#[test]
fn a_second_service_is_refused_and_a_crash_frees_the_lock_du_115() {
    let world = world();
    let mut service = world.start();
    assert_eq!(
        world.read("state/ductile.lock").trim(),
        service.pid().to_string()
    );
    let refused = world.refused();
    assert_eq!(code(&refused), 1, "{refused:?}");
    let said = text(&refused.stderr);
    assert!(
        said.contains(&format!("in use by another server (pid {})", service.pid())),
        "{said}"
    );
    assert!(said.contains("hint: "), "{said}");
    service.kill9();
    let mut again = world.start();
    again.signal("TERM");
    assert!(again.wait().success());
}

#[test]
fn what_the_service_keeps_is_for_its_user_alone() {
    let world = world();
    let _service = world.start();
    for (name, expected) in [
        ("state", 0o700),
        ("state/keys", 0o700),
        ("state/ductile.db", 0o600),
        ("state/ductile.lock", 0o600),
        ("state/ductile.sock", 0o600),
        ("state/keys/seal_key", 0o600),
    ] {
        assert_eq!(mode(&world.path(name)), expected, "{name}");
    }
}

#[test]
fn a_configuration_that_does_not_hold_ends_with_78_and_says_where_and_how_to_mend_it_du_113() {
    let world = world();
    world.config("plugins: {echo: {}}\nservice:\n  log_level: loud\n");
    let refused = world.refused();
    assert_eq!(code(&refused), 78, "{refused:?}");
    let said = text(&refused.stderr);
    assert!(said.contains("config.yaml:5: "), "{said}");
    assert!(!world.path("state").exists(), "nothing was made");
    let refused = world.json(&["system", "start"]);
    assert_eq!(refused["code"], "config_refused");
    assert_eq!(refused["context"]["problems"][0]["line"], 5);
}

#[test]
fn a_seal_that_is_broken_ends_with_78() {
    let world = world();
    assert_eq!(code(&world.ductile(&["config", "lock"])), 0);
    world.config("plugins: {echo: {}}\nservice: {strict_mode: true}\n");
    let refused = world.refused();
    let strict = text(&refused.stderr);
    assert_eq!(code(&refused), 78, "{strict}");
    assert!(strict.contains("config lock"), "{strict}");
}

#[test]
fn a_changed_file_of_tokens_is_refused_at_start_and_by_a_reload_du_018_du_117() {
    let world = world();
    let tokens = |key: &str| {
        let text = format!("tokens: [{{name: a, key: {key}}}]\n");
        std::fs::write(world.path("tokens.yaml"), text).expect("a file can be written");
    };
    world.config("include: [tokens.yaml]\nplugins: {echo: {}}\n");
    tokens("sealed-key");
    assert_eq!(code(&world.refused()), 78, "there is no seal yet");
    assert_eq!(code(&world.ductile(&["config", "lock"])), 0);
    let mut service = world.start();
    tokens("other-key");
    service.signal("HUP");
    service.until_logged("the configuration was not reloaded; the old one stays active");
    service.signal("TERM");
    assert!(service.wait().success());
    let refused = world.refused();
    assert_eq!(code(&refused), 78, "{refused:?}");
    let said = text(&refused.stderr);
    assert!(
        said.contains("tokens.yaml") && said.contains("config lock"),
        "{said}"
    );
    assert!(!said.contains("other-key"), "{said}");
    tokens("sealed-key");
    service = world.start();
    service.signal("TERM");
    assert!(service.wait().success());
}

#[test]
fn sighup_reloads_and_a_bad_configuration_keeps_the_old_one_du_117() {
    let world = world();
    let service = world.start();
    world.plugin("second", OK);
    world.config("plugins: {echo: {}, second: {}}\n");
    service.signal("HUP");
    service.until_logged("the configuration was reloaded");
    let names = |world: &World| -> Vec<String> {
        let listed = world.json(&["plugin", "list"]);
        let plugins = listed["plugins"].as_array().expect("a list").iter();
        plugins.map(|plugin| word(&plugin["name"])).collect()
    };
    assert_eq!(names(&world), ["echo", "second"]);
    world.config("plugins: {echo: {}, second: {}, third: {}}\n");
    service.signal("HUP");
    service.until_logged("the configuration was not reloaded; the old one stays active");
    world.config("plugins: {echo: {}, second: {}}\n");
    assert_eq!(names(&world), ["echo", "second"]);
    assert_eq!(code(&world.ductile(&["run", "second", "--wait"])), 0);
}

#[test]
fn reloads_by_signal_api_and_socket_at_once_all_end_with_the_last_configuration_du_117() {
    let world = World::new();
    world.plugin("echo", OK);
    world.plugin("second", OK);
    let config = |plugins: &str| {
        world.config(&format!(
            "plugins: {{{plugins}}}\n\
             api: {{enabled: true, listen: '127.0.0.1:0', auth: {{tokens: [{{token: token-of-the-test, scopes: ['*']}}]}}}}\n"
        ));
    };
    let (few, all) = ("echo: {}, second: {enabled: false}", "echo: {}, second: {}");
    config(few);
    let service = world.start();
    let log = service.log();
    let api = log.iter().find_map(|line| line["api"].as_str());
    let api = api.expect("it tells its address");
    for round in 0..5 {
        config(if round % 2 == 0 { all } else { few });
        thread::scope(|threads| {
            threads.spawn(|| service.signal("HUP"));
            for _ in 0..3 {
                threads.spawn(|| {
                    let answer = post(api, "/system/reload", "token-of-the-test");
                    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                });
                threads.spawn(|| {
                    let told = world.json(&["system", "reload"]);
                    assert_eq!(told["status"], "ok", "{told}");
                });
            }
            threads.spawn(|| {
                let ran = world.json(&["run", "echo", "--wait"]);
                assert_eq!(ran["status"], "succeeded", "{ran}");
            });
        });
    }
    // All signals have been handled, and the last configuration is in effect.
    until("the last configuration holds", || {
        let listed = world.json(&["plugin", "list"]);
        listed["plugins"]
            .as_array()
            .is_some_and(|plugins| plugins.len() == 2)
    });
    assert_eq!(code(&world.ductile(&["run", "second", "--wait"])), 0);
    let refused = |line: &&Value| word(&line["message"]).contains("was not reloaded");
    assert_eq!(service.log().iter().filter(refused).count(), 0);
}

/// Sends a request without a body and returns the raw response.
fn post(address: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer {token}\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    answer
}

#[test]
fn sigterm_lets_running_jobs_end_du_119() {
    let world = World::new();
    world.plugin(
        "slow",
        &format!("touch $here/began; sleep 1.5; touch $here/ended; {OK}"),
    );
    world.config("plugins: {slow: {}}\n");
    let mut service = world.start();
    let queued = world.json(&["run", "slow"]);
    let id = word(&queued["job_id"]);
    until("it runs", || world.path("began").exists());
    service.signal("TERM");
    assert!(service.wait().success());
    assert!(world.path("ended").exists(), "the job was cut off");
    assert!(!world.path("state/ductile.sock").exists());
    let job = world.json(&["job", "show", &id]);
    assert_eq!(job["status"], "succeeded", "{job}");
}

#[test]
fn log_lines_have_their_fields_and_no_secret_du_120() {
    let world = World::new();
    world.plugin("loud", &format!("echo careful >&2; {OK}"));
    world.config("plugins: {loud: {config: {password: hunter2}}}\n");
    let mut service = world.start();
    assert_eq!(code(&world.ductile(&["run", "loud", "--wait"])), 0);
    service.signal("TERM");
    service.wait();
    let log = service.log();
    for line in &log {
        for key in ["timestamp", "level", "component", "message"] {
            assert!(line[key].is_string(), "{key} in {line}");
        }
        let level = word(&line["level"]);
        assert_eq!(level, level.to_uppercase());
        let at: jiff::Timestamp = word(&line["timestamp"]).parse().expect("an instant");
        assert!(jiff::Timestamp::now().duration_since(at).as_secs() < 60);
        assert!(!line.to_string().contains("hunter2"), "{line}");
    }
    let stderr: Vec<&Value> = log
        .iter()
        .filter(|line| line["stderr"].is_string())
        .collect();
    assert_eq!(stderr.len(), 1);
    assert_eq!(stderr[0]["level"], "WARN");
    assert_eq!(stderr[0]["plugin"], "loud");
    assert_eq!(word(&stderr[0]["job_id"]).len(), 36);
}

#[test]
fn no_secret_of_the_configuration_or_of_a_caller_is_logged_at_any_level_du_120() {
    let world = World::new();
    world.plugin("echo", OK);
    let secrets = [
        "ada-token-0123456789",
        "hook-secret-0123456789",
        "plugin-pass",
        "wrong-token",
        "body-word",
    ];
    let [token, hook, pass, wrong, body] = secrets;
    world.config(&format!(
        "service: {{log_level: debug}}\n\
         plugins: {{echo: {{config: {{password: {pass}}}}}}}\n\
         tokens: [{{name: hook, key: {hook}}}]\n\
         api: {{enabled: true, listen: '127.0.0.1:0', auth: {{tokens: [{{token: {token}, scopes: ['*']}}]}}}}\n\
         webhooks: {{listen: '127.0.0.1:0', endpoints: [{{path: /hook, plugin: echo, secret_ref: hook, signature_header: X-Signature}}]}}\n",
    ));
    let mut service = world.start_with(&[("CONSIGN_ACCESS_LOG", "true")]);
    let log = service.log();
    let started = log
        .iter()
        .find(|line| line["message"] == "the automation is running");
    let started = started.expect("it says so");
    let (api, hooks) = (word(&started["api"]), word(&started["webhooks"]));
    for (address, head) in [
        (
            &api,
            format!("GET /jobs HTTP/1.1\r\nauthorization: Bearer {token}"),
        ),
        (
            &api,
            format!("GET /jobs HTTP/1.1\r\nauthorization: Bearer {wrong}"),
        ),
        (&api, format!("GET /jobs?token={token} HTTP/1.1")),
        (&api, format!("GET /events?token={wrong} HTTP/1.1")),
        (
            &api,
            format!("GET /\u{1}{wrong} HTTP/1.1\r\nauthorization: Bearer {wrong}"),
        ),
        (
            &hooks,
            format!("POST /hook HTTP/1.1\r\nx-signature: {hook}"),
        ),
        (
            &hooks,
            "POST /hook HTTP/1.1\r\nx-signature: sha256=00".to_owned(),
        ),
    ] {
        let mut stream = TcpStream::connect(address).expect("somebody listens");
        let length = body.len();
        let request = format!(
            "{head}\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it is taken");
        let mut answer = String::new();
        // Only the existence of a response matters here.
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 "), "{head}: {answer}");
    }
    service.signal("HUP");
    service.until_logged("the configuration was reloaded");
    world.config(&format!("tokens: [{{name: hook, key: {hook}, scopes: {token}}}]\nplugins: {{nobody: {{config: {{password: {pass}}}}}}}\n"));
    service.signal("HUP");
    service.until_logged("the old one stays");
    service.signal("TERM");
    service.wait();
    for line in service.lines() {
        for secret in secrets {
            assert!(!line.contains(secret), "{secret} in {line}");
        }
    }
}

#[test]
fn what_is_odd_dropped_or_leads_nowhere_is_told_at_its_level_du_040_du_053_du_083() {
    let world = World::new();
    let event = r#"{"status":"ok","result":"done","events":[{"type":"known","payload":{},"dedupe_key":"k"},{"type":"unknown","payload":{}}]}"#;
    world.plugin("source", &format!("echo '{event}'; exit 3"));
    world.plugin("sink", OK);
    world.config("service: {log_level: debug}\nplugins: {source: {}, sink: {}}\nroutes: [{from: source, event_type: known, to: sink}]\n");
    let mut service = world.start();
    for _ in 0..2 {
        let ran = world.json(&["run", "source", "--wait"]);
        assert_eq!(ran["status"], "succeeded", "{ran}");
        until("the sink has run", || {
            world.json(&["queue"])["jobs"]
                .as_array()
                .is_some_and(Vec::is_empty)
        });
    }
    let jobs = world.json(&["job", "list", "--plugin", "sink"]);
    let jobs = jobs["jobs"].as_array().expect("a list").clone();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    service.signal("TERM");
    service.wait();
    let log = service.log();
    let told = |wanted: &dyn Fn(&Value) -> bool| -> Vec<Value> {
        log.iter().filter(|line| wanted(line)).cloned().collect()
    };
    let dropped = told(&|line| line["dedupe_key"] == "k");
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    assert_eq!(dropped[0]["level"], "INFO");
    assert_eq!(dropped[0]["existing_job_id"], jobs[0]["job_id"]);
    let nowhere = told(&|line| line["event_type"] == "unknown");
    assert_eq!(nowhere.len(), 2, "{nowhere:?}");
    assert_eq!(nowhere[0]["level"], "DEBUG");
    let exits = told(&|line| word(&line["message"]).contains("exited with code 3"));
    assert_eq!(exits.len(), 2, "{exits:?}");
    assert_eq!(
        (&exits[0]["level"], &exits[0]["plugin"]),
        (&"WARN".into(), &"source".into())
    );
}

#[test]
fn a_supervisor_hears_of_every_turn() {
    let world = world();
    let address = world.path("notify");
    let supervisor = UnixDatagram::bind(&address).expect("a socket can be made");
    supervisor
        .set_read_timeout(Some(LONG))
        .expect("a limit can be set");
    let mut service = world.start_with(&[
        ("NOTIFY_SOCKET", address.to_str().expect("plain")),
        ("WATCHDOG_USEC", "400000"),
    ]);
    let hear = |wanted: &str| {
        let mut buffer = [0; 256];
        loop {
            let length = supervisor.recv(&mut buffer).expect("it is told in time");
            if String::from_utf8_lossy(&buffer[..length]).contains(wanted) {
                return;
            }
        }
    };
    hear("READY=1");
    hear("WATCHDOG=1");
    hear("WATCHDOG=1");
    service.signal("HUP");
    hear("RELOADING=1");
    hear("READY=1");
    service.signal("TERM");
    hear("STOPPING=1");
    assert!(service.wait().success());
}

#[test]
fn a_reload_that_takes_long_holds_up_neither_the_watchdog_nor_the_end_du_117() {
    let world = world();
    let address = world.path("notify");
    let supervisor = UnixDatagram::bind(&address).expect("a socket can be made");
    supervisor
        .set_read_timeout(Some(LONG))
        .expect("a limit can be set");
    let mut service = world.start_with(&[
        ("NOTIFY_SOCKET", address.to_str().expect("plain")),
        ("WATCHDOG_USEC", "400000"),
    ]);
    // The notifications to the supervisor, up to this one.
    let told_until = |wanted: &str| {
        let (mut buffer, mut told) = ([0; 256], Vec::new());
        loop {
            let length = supervisor.recv(&mut buffer).expect("it is told in time");
            told.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            if told.last().is_some_and(|last| last.contains(wanted)) {
                return told;
            }
        }
    };
    // A program so large that its comparison takes a while.
    world.plugin("large", OK);
    let manifest = world.path("plugins/large/manifest.yaml");
    let known = world.read("plugins/large/manifest.yaml");
    fs::write(manifest, format!("{known}  init: {{type: write}}\n")).expect("it can be written");
    let program = fs::OpenOptions::new()
        .write(true)
        .open(world.path("plugins/large/run"));
    let program = program.expect("it can be opened");
    program.set_len(4 << 30).expect("holes need no room");
    service.signal("HUP");
    told_until("RELOADING=1");
    for _ in 0..3 {
        let told = told_until("WATCHDOG=1");
        assert_eq!(told.len(), 1, "the reload is still under way: {told:?}");
    }
    service.signal("TERM");
    told_until("STOPPING=1");
    assert!(service.wait().success());
}

#[test]
fn level_and_form_of_the_log_follow_a_reload_du_117_du_120() {
    let world = world();
    world.config("service: {log_level: error}\nplugins: {echo: {}}\n");
    let mut service = world.start_quietly();
    assert_eq!(service.lines(), [""; 0]);
    world.config("service: {log_level: debug, log_format: text}\nplugins: {echo: {}}\n");
    service.signal("HUP");
    service.until_logged("the configuration was reloaded");
    let lines = service.lines();
    assert!(!lines[0].starts_with('{'), "{lines:?}");
    world.config("service: {log_level: info}\nplugins: {echo: {}}\n");
    let seen = lines.len();
    service.signal("HUP");
    until("lines of JSON", || {
        let lines = service.lines();
        lines[seen..].iter().any(|line| line.starts_with('{'))
    });
    service.signal("TERM");
    assert!(service.wait().success());
}

#[test]
fn a_confined_plugin_is_started_by_the_binary_itself() {
    let world = World::new();
    world.plugin("small", &format!("ulimit -n > $here/limit; {OK}"));
    world.config("plugins: {small: {limits: {open_files: 50}}}\n");
    let ran = world.ductile(&["run", "small"]);
    assert_eq!(code(&ran), 0, "{ran:?}");
    assert_eq!(world.read("limit").trim(), "50");
}

#[test]
fn on_postgresql_a_new_start_takes_back_at_once_what_the_killed_one_ran_du_116() {
    let world = World::new();
    world.plugin(
        "slow",
        &format!("echo run >> $here/ran; [ -e $here/quick ] || sleep 60; {OK}"),
    );
    world.config("plugins: {slow: {}}\n");
    let cluster = postgres::shared().expect("PostgreSQL runs");
    let database = cluster.database("consign_nothing", |_| {});
    let database = database.expect("a database can be made");
    let options = Options::new(super::binary(), world.path("data"))
        .arg("--store")
        .arg(&database.url())
        .arg("--config")
        .arg(world.path("config.yaml").to_str().expect("plain"));
    let mut killed = Server::start(&options).expect("the server starts");
    until("the socket is there", || {
        world.path("state/ductile.sock").exists()
    });
    let id = word(&world.json(&["run", "slow"])["job_id"]);
    until("it runs", || world.read("ran").lines().count() == 1);
    killed.kill9().expect("it can be killed");
    fs::write(world.path("quick"), "").expect("a file can be written");
    let _server = Server::start(&options).expect("the server starts");
    // Faster than the expiry of the lease of the killed server.
    until("it is done", || {
        world.json(&["job", "show", &id])["status"] == "succeeded"
    });
    assert_eq!(world.read("ran").lines().count(), 2);
}

#[test]
fn kill_9_in_the_middle_of_a_pipeline_loses_no_step_and_repeats_none_that_was_recorded_du_116() {
    let world = World::new();
    for step in ["one", "two", "three"] {
        let event = r#"{"status":"ok","result":"done","events":[{"type":"next","payload":{}}]}"#;
        world.plugin(
            step,
            &format!("echo {step} >> $here/ran; sleep 0.15; echo '{event}'"),
        );
    }
    world.config(
        "plugins: {one: {}, two: {}, three: {}}\n\
         pipelines:\n  - name: walk\n    on: walk.start\n    steps:\n      - {id: a, uses: one}\n      - {id: b, uses: two}\n      - {id: c, uses: three}\n",
    );
    let mut recoveries = 0;
    for round in 0..rounds() {
        let _ = std::fs::remove_file(world.path("ran"));
        let mut service = world.start();
        let queued = world.json(&["pipeline", "run", "walk"]);
        let id = word(&queued["job_id"]);
        assert!(!id.is_empty(), "{queued}");
        // Another moment in every round, spread over the duration of the pipeline.
        std::thread::sleep(Duration::from_millis(u64::from(round * 97 % 600)));
        service.kill9();
        let recorded: Vec<String> = succeeded(&world, &id);
        let before = world.read("ran");
        let mut service = world.start();
        until("the pipeline ends", || succeeded(&world, &id).len() == 3);
        recoveries += service
            .log()
            .iter()
            .filter(|line| line["component"] == "recovery" && line["level"] == "WARN")
            .count();
        service.signal("TERM");
        assert!(service.wait().success());
        let after = world.read("ran");
        let again = after.strip_prefix(&before).expect("the file only grows");
        for step in ["one", "two", "three"] {
            assert!(
                after.contains(step),
                "round {round}: {step} is lost: {after}"
            );
        }
        for step in &recorded {
            assert!(
                !again.contains(step.as_str()),
                "round {round}: {step} ran again: {again}"
            );
        }
    }
    assert!(recoveries > 0, "no round hit a running job");
}

/// The plugins of the jobs below this one that have succeeded according to the ledger.
fn succeeded(world: &World, id: &str) -> Vec<String> {
    let tree = world.json(&["job", "tree", id]);
    let jobs = tree.as_array().into_iter().flatten();
    let done = jobs.filter(|job| job["status"] == "succeeded");
    done.map(|job| word(&job["plugin"])).collect()
}
