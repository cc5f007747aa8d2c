//! What the server and its commands say when something is wrong: the cause, and the next step.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use consign_testkit::process::{Options, Server};
use consign_testkit::shim::{Fault, Shim};
use serde_json::json;

use super::automation_world::{OK, World, until};
use super::{PATIENCE, Place, binary, code, main_client, publish, published, refusal, start, text};

#[test]
fn a_port_in_use_names_its_process_and_the_flag() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = taken.local_addr().expect("it has an address").to_string();
    let (code, said) = refusal(&place.options().listen(&addr));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("cannot listen on {addr}")), "{said}");
    let process = format!("process {} (", std::process::id());
    assert!(said.contains(&process), "{said}");
    assert!(said.contains("--listen 127.0.0.1:0"), "{said}");
}

#[test]
fn a_credential_of_another_kind_is_named_by_its_prefix() {
    let place = Place::new();
    let server = place.start();
    let url = server.base_url();
    let [key, token] =
        ["bus_secret", "admin_secret"].map(|name| server.secret(name).expect("made"));
    let swapped = place.consign(&["intent", "list", "--server", url, "--key", &token]);
    let said = text(&swapped.stderr);
    assert_eq!(code(&swapped), 4, "{said}");
    assert!(said.contains("looks like an admin token"), "{said}");
    let swapped = place.consign(&["key", "list", "--server", url, "--admin-token", &key]);
    let said = text(&swapped.stderr);
    assert_eq!(code(&swapped), 4, "{said}");
    assert!(said.contains("looks like an API key"), "{said}");
    let wrong = format!("ck_{}", "0".repeat(40));
    let wrong = place.consign(&["intent", "list", "--server", url, "--key", &wrong]);
    let said = text(&wrong.stderr);
    assert!(said.contains("Invalid API key. (unauthorized"), "{said}");
}

#[test]
fn each_way_not_to_reach_a_server_has_its_own_hint() {
    let place = Place::new();
    let server = place.start();
    let list = |url: &str| {
        let output = place.consign(&["intent", "list", "--server", url, "--key", "ck_none"]);
        assert_eq!(code(&output), 5, "{output:?}");
        text(&output.stderr)
    };
    let said = list(&server.base_url().replace("http://", "https://"));
    assert!(said.contains("use an http:// address"), "{said}");
    let said = list("http://no-such-host.invalid:7070");
    assert!(
        said.contains("no-such-host.invalid has no address"),
        "{said}"
    );
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = free.local_addr().expect("it has an address");
    drop(free);
    let said = list(&format!("http://{addr}"));
    assert!(said.contains("start it with: consign serve"), "{said}");
}

#[test]
fn a_damaged_ledger_is_named_with_the_backups_beside_it() {
    let place = Place::new();
    let mut server = place.start();
    for number in 0..50 {
        published(&mut main_client(&server), &format!("intent-{number}"));
    }
    assert!(server.terminate(PATIENCE).expect("it ends").success());
    let backup = place.path("saved.db");
    let saved = place.consign(&["store", "backup", &backup.to_string_lossy()]);
    assert_eq!(code(&saved), 0, "{saved:?}");
    let ledger = place.data().join("consign.db");
    let whole = fs::read(&ledger).expect("it can be read");
    let mut torn = whole.clone();
    // The page of the schema; the header before it stays.
    torn[100..4096].fill(0xA5);
    let mut headless = whole;
    headless[..100].fill(0xA5);
    for bytes in [torn, headless] {
        fs::write(&ledger, bytes).expect("it can be written");
        let checked = place.consign(&["store", "check"]);
        let (refused, said) = refusal(&place.options());
        assert_eq!((code(&checked), refused), (1, 1), "{said}");
        for said in [text(&checked.stderr), said] {
            let shown = ledger.display().to_string();
            assert!(said.contains(&format!("{shown} is damaged")), "{said}");
            assert!(said.contains(&backup.display().to_string()), "{said}");
            assert!(said.contains("copy the backup to"), "{said}");
            assert!(!said.contains("run `consign store check`"), "{said}");
        }
    }
    fs::copy(&backup, &ledger).expect("it can be copied");
    for ending in ["-wal", "-shm"] {
        let _ = fs::remove_file(place.data().join(format!("consign.db{ending}")));
    }
    published(&mut main_client(&place.start()), "the hint works");
}

#[test]
fn a_full_disk_is_named_to_client_log_and_at_the_start() {
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let options = shim.under(place.options(), "consign.db");
    let server = start(&options);
    let mut http = main_client(&server);
    published(&mut http, "before");
    shim.set(Fault::Writes).expect("the shim listens");
    let refused = publish(&mut http, "during");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(
        refused.text().contains("disk is full"),
        "{}",
        refused.text()
    );
    let said = text(&place.consign(&["intent", "publish", "g", "{}"]).stderr);
    assert!(said.contains("free space"), "{said}");
    let log = server.stderr();
    let ledger = place.data().join("consign.db").display().to_string();
    let line = log.lines().find(|line| line.contains("the disk is full"));
    assert!(line.is_some_and(|line| line.contains(&ledger)), "{log}");
    drop(server);
    let (code, said) = refusal(&options);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("the disk is full"), "{said}");
    assert!(
        said.contains(&ledger) && said.contains("free space"),
        "{said}"
    );
}

#[test]
fn status_without_an_automation_is_that_of_the_server() {
    let place = Place::new();
    let home = place.path("home").to_string_lossy().into_owned();
    let status = |more: &[&str]| {
        let args = [&["status"], more].concat();
        place.consign_with(&args, &[("HOME", &home)])
    };
    let nothing = status(&[]);
    assert_eq!(code(&nothing), 5, "{nothing:?}");
    let mut server = place.start();
    let shown = status(&[]);
    let said = text(&shown.stdout);
    assert_eq!(code(&shown), 0, "{said}");
    assert!(said.contains(server.base_url()), "{said}");
    assert!(said.contains("is healthy"), "{said}");
    assert_eq!(super::printed(&status(&["--json"]))["healthy"], true);
    // The command about automations says so of a server as well.
    let args = ["system", "status", "--json"];
    let whole = super::printed(&place.consign_with(&args, &[("HOME", &home)]));
    assert_eq!(
        (&whole["healthy"], &whole["checks"][0]["name"]),
        (&json!(true), &json!("server"))
    );
    let jobs = place.consign_with(&["job", "list"], &[("HOME", &home)]);
    assert!(
        text(&jobs.stderr).contains("about an automation"),
        "{jobs:?}"
    );
    assert!(server.terminate(PATIENCE).expect("it ends").success());
    assert_eq!(code(&status(&[])), 5);
}

const HOOK: &str = "plugins: {echo: {}}\ntokens: [{name: s, key: a-secret-of-some-length}]\nwebhooks:\n  endpoints:\n    \
    - {path: /a, plugin: echo, secret_ref: s, signature_header: X}\n";

#[test]
fn webhooks_that_no_address_serves_are_reported() {
    let world = World::new();
    world.plugin("echo", OK);
    world.config("plugins: {echo: {}}\ntokens: [{name: s, key: a-secret-of-some-length}]\n");
    let added = world.ductile(&[
        "config",
        "webhook",
        "add",
        "--path",
        "/a",
        "--plugin",
        "echo",
        "--secret-ref",
        "s",
        "--signature-header",
        "X",
        "--apply",
    ]);
    assert!(
        text(&added.stderr).contains("nothing receives deliveries yet"),
        "{added:?}"
    );
    let checked = world.json(&["config", "check"]);
    assert_eq!(checked["valid"], true, "{checked}");
    assert!(
        checked["warnings"].to_string().contains("no `listen`"),
        "{checked}"
    );
    world.config(HOOK);
    let service = world.start();
    let doctor = world.ductile(&["system", "doctor"]);
    let said = text(&doctor.stdout);
    assert_eq!(code(&doctor), 1, "{said}");
    assert!(said.contains("NOT OK  webhooks"), "{said}");
    drop(service);
    world.config(&HOOK.replace("  endpoints", "  listen: 127.0.0.1:0\n  endpoints"));
    let checked = world.json(&["config", "check"]);
    assert!(
        !checked["warnings"].to_string().contains("listen"),
        "{checked}"
    );
    let _service = world.start();
    assert_eq!(code(&world.ductile(&["system", "doctor"])), 0);
}

#[test]
fn a_secret_of_a_webhook_needs_no_scopes_and_a_missing_variable_is_one_error() {
    let world = World::new();
    world.plugin("echo", OK);
    world.config("plugins: {echo: {}}\n");
    let made = world.json(&["config", "token", "create", "--name", "hook", "--secret"]);
    assert_eq!(made["created"], true, "{made}");
    let variable = made["variable"].as_str().expect("a name").to_owned();
    let listed = world.json(&["config", "token", "list"]);
    assert_eq!(
        (&listed[0]["name"], &listed[0]["scopes"]),
        (&json!("hook"), &json!([]))
    );
    assert_eq!(listed[0]["scopes_file"], json!(null));
    let text_of = world.read("config.yaml");
    let hook = "webhooks:\n  listen: 127.0.0.1:0\n  endpoints:\n    \
        - {path: /a, plugin: echo, secret_ref: hook, signature_header: X}\n    \
        - {path: /b, plugin: echo, secret_ref: hook, signature_header: X}\n";
    fs::write(world.path("config.yaml"), format!("{text_of}{hook}")).expect("it can be written");
    let checked = world.json(&["config", "check"]);
    assert_eq!(
        checked["errors"].as_array().map(Vec::len),
        Some(1),
        "{checked}"
    );
    assert!(
        checked["errors"].to_string().contains(&variable),
        "{checked}"
    );
    let set = world.ductile_with(
        &["config", "check"],
        &[(&variable, "a-secret-of-some-length")],
    );
    assert_eq!(code(&set), 0, "{set:?}");
}

/// Fails until the file `mended` exists, with an error of several lines.
const FAILS: &str = r#"if [ -e "$here/mended" ]; then echo '{"status": "ok", "result": "done"}'; exit 0; fi
printf 'Traceback (most recent call last):\n  File "run"\nValueError: no paper\n' >&2; exit 1"#;

const RETRIED: &str = "plugins: {bad: {retry: {max_attempts: 3, backoff_base: 1s}}}\n";

#[test]
fn a_run_that_waits_reports_each_failed_attempt_and_shows_the_error_as_lines() {
    let world = World::new();
    world.plugin("bad", FAILS);
    world.config(RETRIED);
    let _service = world.start();
    let output = world.ductile(&["plugin", "run", "bad", "--wait"]);
    let (said, told) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(code(&output), 1, "{said}");
    for attempt in 1..=2 {
        let note = format!("attempt {attempt}");
        assert!(said.contains(&note) && said.contains("failed: "), "{said}");
    }
    assert!(!said.contains("attempt 3"), "the last one ends it: {said}");
    assert!(told.contains("\n    ValueError: no paper\n"), "{told}");
    let listed = text(&world.ductile(&["job", "list"]).stdout);
    assert!(listed.contains("  ValueError: no paper\n"), "{listed}");
    let logs = text(&world.ductile(&["logs"]).stdout);
    assert!(!logs.contains("\\u{a}"), "{logs}");
    assert_eq!(
        logs.matches("ValueError").count(),
        3,
        "once for each attempt: {logs}"
    );
}

#[test]
fn jobs_that_system_start_leaves_behind_are_reported_by_serve() {
    let world = World::new();
    world.plugin("bad", FAILS);
    world.config("plugins: {bad: {retry: {max_attempts: 3, backoff_base: 1h}}}\n");
    let mut service = world.start();
    let started = world.ductile(&["plugin", "run", "bad"]);
    assert_eq!(code(&started), 0, "{started:?}");
    until("its first attempt has failed", || {
        let listed = world.json(&["job", "list"]);
        !listed["jobs"][0]["last_error"].is_null()
    });
    service.signal("TERM");
    assert!(service.wait().success());
    let serve = || {
        let options = Options::new(binary(), world.path("data"))
            .arg("--config")
            .arg(world.path("config.yaml").to_str().expect("plain"));
        let _ = fs::remove_file(options.stderr_file());
        let mut server = Server::start(&options).expect("the server starts");
        assert!(
            server
                .terminate(Duration::from_secs(30))
                .expect("it ends")
                .success()
        );
        server.stderr()
    };
    let log = serve();
    let line = log.lines().find(|line| line.contains("not available here"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("\"jobs\":1"), "{line}");
    assert!(line.contains("state/ductile.db"), "{line}");
    assert!(!serve().contains("not available here"), "once is enough");
}
