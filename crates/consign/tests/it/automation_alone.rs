//! Commands without a running service, or with a service whose environment differs from that of the shell: ownership of the
//! ledger, commands that need no secret, and single runs.

use consign_testkit::process::{Options, Server};
use serde_json::{Value, json};

use super::automation_world::{OK, World, until};
use super::{PATIENCE, binary, code, mode, text};

fn check<'a>(status: &'a Value, name: &str) -> &'a Value {
    let checks = status["checks"].as_array().expect("a list");
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not checked: {status}"))
}

#[test]
fn jobs_in_the_store_of_a_server_are_not_looked_for_at_the_state_path() {
    let world = World::new();
    world.plugin("echo", OK);
    world.config("plugins: {echo: {}}\n");
    let config = world.path("config.yaml");
    let options = Options::new(binary(), world.path("data"))
        .arg("--config")
        .arg(config.to_str().expect("plain"));
    let mut server = Server::start(&options).expect("the server starts");
    until("the socket is there", || {
        world.path("state/ductile.sock").exists()
    });
    assert_eq!(
        world.json(&["run", "echo", "--wait"])["status"],
        "succeeded"
    );
    let store = world.path("data/consign.db");
    let store = store.to_str().expect("plain");
    let status = world.json(&["status"]);
    let ledger = check(&status, "state_db");
    assert_eq!(
        (&ledger["ok"], &ledger["path"]),
        (&json!(true), &json!(store))
    );
    // Stopping the server would not help here.
    let refused = world.consign(&["system", "selfcheck"]);
    let said = text(&refused.stderr);
    assert!(!said.contains("stop it first"), "{said}");
    for command in ["`consign api /system/selfcheck`", "`consign store check`"] {
        assert!(said.contains(command), "{said}");
    }
    assert_eq!(mode(&world.path("state/ledger_elsewhere")), 0o600);
    assert!(server.terminate(PATIENCE).expect("it stops").success());

    let to = world.path("saved.tar.gz");
    let to = to.to_str().expect("plain");
    let refused: [&[&str]; 9] = [
        &["job", "list"],
        &["queue"],
        &["logs"],
        &["plugin", "run", "echo"],
        &["schedule", "list"],
        &["api", "/jobs"],
        &["system", "selfcheck"],
        &["system", "backup", "--to", to],
        &["system", "backup", "--to", to, "--scope", "db"],
    ];
    for args in refused {
        let output = world.ductile(args);
        assert_eq!(code(&output), 1, "{args:?}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(store), "{args:?}: {said}");
        assert!(said.contains("consign store backup"), "{args:?}: {said}");
    }
    let status = world.json(&["status"]);
    assert_eq!(check(&status, "state_db")["path"], store, "{status}");
    assert_eq!(status["healthy"], false, "{status}");
    assert!(!world.path("state/ductile.db").exists(), "no second ledger");
    assert!(!world.path("saved.tar.gz").exists(), "nothing was saved");
    let rest = world.ductile(&["system", "backup", "--to", to, "--scope", "config"]);
    assert_eq!(code(&rest), 0, "{rest:?}");

    let service = world.start();
    let warned = service
        .log()
        .into_iter()
        .find(|line| line["place"] == store);
    assert_eq!(warned.expect("it is told")["level"], "WARN");
    assert!(!world.path("state/ledger_elsewhere").exists());
    assert_eq!(world.json(&["job", "list"])["jobs"], json!([]));
    let status = world.json(&["status"]);
    let ledger = world.path("state/ductile.db");
    assert_eq!(check(&status, "state_db")["path"], json!(ledger));
    assert!(ledger.is_file());
}

#[test]
fn a_run_without_a_service_has_one_attempt_and_says_what_it_waits_for_du_124() {
    let world = World::new();
    world.plugin(
        "unlucky",
        r#"echo run >> $here/ran; sleep 2.5; echo '{"status": "error", "error": "no luck today", "retry": true}'"#,
    );
    world.config("plugins: {unlucky: {retry: {backoff_base: 1h}}}\n");
    let ran = world.ductile(&["plugin", "run", "unlucky"]);
    assert_eq!(code(&ran), 1, "{ran:?}");
    assert!(text(&ran.stdout).contains("no luck today"), "{ran:?}");
    let waited = text(&ran.stderr);
    assert!(waited.contains("waiting for unlucky poll, job "), "{ran:?}");
    assert_eq!(world.read("ran").lines().count(), 1);
    let queue = world.json(&["queue"]);
    assert_eq!(queue["jobs"], json!([]), "nothing waits");
}

#[test]
fn a_run_without_a_service_leaves_jobs_that_wait_to_the_service() {
    let world = World::new();
    world.plugin("gate", "touch $here/began; sleep 60");
    let event =
        r#"{"status": "ok", "result": "done", "events": [{"type": "next", "payload": {}}]}"#;
    world.plugin("echo", &format!("echo x >> $here/ran; echo '{event}'"));
    world.plugin("after", &format!("echo x >> $here/followed; {OK}"));
    world.config(
        "service: {max_workers: 1}\nplugins: {gate: {retry: {max_attempts: 1}}, echo: {}, after: {}}\n\
         routes: [{from: echo, event_type: next, to: after}]\n",
    );
    let mut service = world.start();
    world.json(&["run", "gate"]);
    until("the only worker is busy", || world.path("began").exists());
    for _ in 0..3 {
        world.json(&["run", "echo"]);
    }
    service.kill9();
    let ran = world.json(&["run", "echo"]);
    assert_eq!(ran["status"], "succeeded", "{ran}");
    assert_eq!(ran["tree"].as_array().map(Vec::len), Some(2), "{ran}");
    assert_eq!(world.read("ran").lines().count(), 1);
    assert_eq!(world.read("followed").lines().count(), 1);
    let queue = world.json(&["queue"]);
    let waiting = queue["jobs"].as_array().expect("a list").iter();
    let waiting: Vec<&Value> = waiting.map(|job| &job["plugin"]).collect();
    assert_eq!(waiting, ["echo", "echo", "echo"], "{queue}");
    let _service = world.start();
    until("the service runs what waited", || {
        world.read("followed").lines().count() == 4
    });
}

#[test]
fn whoever_operates_a_service_needs_none_of_its_secrets_du_113() {
    let world = World::new();
    world.plugin("echo", OK);
    let config = "plugins: {echo: {config: {password: '${ECHO_PASSWORD}'}, schedules: [{cron: '0 12 * * *'}]}}\n\
                  tokens: [{name: hook, key: '${HOOK_SECRET}'}]\n";
    world.config(config);
    let fine = |args: &[&str]| {
        let output = world.ductile(args);
        assert_eq!(code(&output), 0, "{args:?}: {output:?}");
    };
    let refused = |args: &[&str], said: &str| {
        let output = world.ductile(args);
        assert_eq!(code(&output), 78, "{args:?}: {output:?}");
        assert!(text(&output.stderr).contains(said), "{args:?}: {output:?}");
    };
    let variables = [("ECHO_PASSWORD", "secret"), ("HOOK_SECRET", "secret")];
    let mut service = world.start_with(&variables);
    fine(&["status"]);
    fine(&["run", "echo", "--wait"]);
    fine(&["system", "reload", "--dry-run"]);
    fine(&["system", "reload"]);
    world.config("plugins: {nobody: {}}\n");
    refused(&["system", "reload", "--dry-run"], "nobody");
    refused(&["system", "reload"], "nobody");
    assert_eq!(world.json(&["status"])["healthy"], false);
    world.config(config);
    service.signal("TERM");
    assert!(service.wait().success());

    fine(&["job", "list"]);
    fine(&["queue"]);
    fine(&["logs"]);
    fine(&["plugin", "list"]);
    fine(&["skills"]);
    fine(&["schedule", "next"]);
    fine(&["system", "selfcheck"]);
    // Commands that run a plugin need the variables.
    refused(&["plugin", "run", "echo"], "ECHO_PASSWORD");
    let status = world.json(&["status"]);
    let loads = check(&status, "config_load");
    assert!(loads.to_string().contains("ECHO_PASSWORD"), "{status}");
    // Without quotes this is not valid YAML before the substitution.
    world.config("plugins: {echo: {}}\ntokens: [{name: hook, key: ${HOOK_SECRET}}]\n");
    fine(&["job", "list"]);
    world.config("plugins: {nobody: {}}\n");
    refused(&["plugin", "list"], "nobody");
    let elsewhere = "plugin_roots: [plugins]\nstate: {path: '${STATE}/ductile.db'}\n";
    std::fs::write(world.path("config.yaml"), elsewhere).expect("a file can be written");
    refused(&["job", "list"], "state.path");
}
