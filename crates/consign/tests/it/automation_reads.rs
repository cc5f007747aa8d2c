//! Commands that inspect and maintain a service: inspect, reload, a remote service by its URL, checks, backups, skills.

use std::process::Command;

use serde_json::{Value, json};

use super::automation_world::{OK, Service, World, until};
use super::{code, text, word};

const EMITS: &str =
    r#"echo '{"status":"ok","result":"done","events":[{"type":"next","payload":{"name":"ada"}}]}'"#;
const PLUGINS: &str = "plugins: {echo: {}, second: {}}\n";
const PIPELINE: &str = "pipelines:\n  - name: line\n    on: line.start\n    steps:\n      \
    - {id: a, uses: echo, baggage: {origin.name: payload.name}}\n      - {id: b, uses: second}\n";
const TOKEN: &str = "token-of-the-operator";
const API: &str = "api: {enabled: true, listen: '127.0.0.1:0', auth: {tokens: [{token: token-of-the-operator, scopes: ['*']}]}}\n";

fn world(config: &str) -> World {
    let world = World::new();
    world.plugin("echo", EMITS);
    world.plugin("second", OK);
    world.config(config);
    world
}

/// The error of a command, in the common `--json` format.
fn refused(world: &World, args: &[&str], said: &str) -> Value {
    let output = world.ductile(args);
    assert_eq!(code(&output), 1, "{args:?}: {output:?}");
    assert!(text(&output.stderr).contains(said), "{args:?}: {output:?}");
    let error = world.json(args);
    assert!(word(&error["error"]).contains(said), "{args:?}: {error}");
    assert_eq!(error["code"], "failed", "{args:?}");
    assert!(error["context"].is_object(), "{args:?}: {error}");
    error
}

fn said(world: &World, args: &[&str]) -> String {
    let output = world.ductile(args);
    assert_eq!(code(&output), 0, "{args:?}: {output:?}");
    text(&output.stdout)
}

/// The URL of the API of the service, which requires a token.
fn api_of(service: &Service) -> String {
    let log = service.log();
    let mut addresses = log.iter().filter_map(|line| line["api"].as_str());
    format!("http://{}", addresses.next().expect("it tells its address"))
}

#[test]
fn a_job_is_inspected_with_its_lineage_its_baggage_and_its_moves_du_113() {
    let world = world(&format!("{PLUGINS}{PIPELINE}"));
    let payload = r#"{"name": "ada"}"#;
    let ran = world.json(&["pipeline", "run", "line", "--payload", payload]);
    let (root, last) = (word(&ran["job_id"]), word(&ran["tree"][1]["job_id"]));
    let whole = world.json(&["job", "inspect", &last]);
    let ids = whole["lineage"].as_array().expect("a list").iter();
    let ids: Vec<String> = ids.map(|job| word(&job["job_id"])).collect();
    assert_eq!(ids, [root.clone(), last.clone()]);
    assert_eq!(whole["contexts"][1]["baggage"]["origin"]["name"], "ada");
    assert_eq!(whole["transitions"][2]["to"], "succeeded", "{whole}");
    assert_eq!(whole["attempts"][0]["result"]["result"], "done");
    let shown = said(&world, &["job", "inspect", &last]);
    for part in [
        "LINEAGE",
        "CONTEXTS",
        "TRANSITIONS",
        "ATTEMPTS",
        &root,
        r#"{"name":"ada"}"#,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    refused(&world, &["job", "inspect", "nothing"], "no job has this id");
}

#[test]
fn a_run_is_shown_step_by_step_with_and_without_a_service_du_085() {
    let world = world(&format!("{PLUGINS}{PIPELINE}"));
    let payload = r#"{"name": "ada"}"#;
    let ran = world.json(&["pipeline", "run", "line", "--payload", payload]);
    let (root, last) = (word(&ran["job_id"]), word(&ran["tree"][1]["job_id"]));
    let run = world.json(&["pipeline", "show", "--run", &last]);
    let id = word(&run["instance_id"]);
    let mut service = world.start();
    for name in [&id, &root, &last] {
        assert_eq!(world.json(&["pipeline", "show", "--run", name]), run);
    }
    service.signal("TERM");
    service.wait();
    assert_eq!(world.json(&["pipeline", "show", "--run", &id]), run);
    let steps = run["steps"].as_array().expect("a list").iter();
    let states: Vec<String> = steps.map(|step| word(&step["status"])).collect();
    assert_eq!(states, ["succeeded", "succeeded"], "{run}");
    let shown = said(&world, &["pipeline", "show", "--run", &id]);
    for part in ["line, run ", ": succeeded", "STATUS", &root, &last] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let nobody = "018bcfe5-6800-7000-8000-080e072a033d";
    let args = ["pipeline", "show", "--run", nobody];
    refused(&world, &args, "no pipeline run has this id");
    let both = world.ductile(&["pipeline", "show", "line", "--run", &id]);
    assert_eq!(code(&both), 1, "{both:?}");
}

#[test]
fn plugins_say_how_they_are_when_they_are_asked_and_show_what_they_keep_du_124() {
    let world = World::new();
    let keeps = r#"{"n":7,"api_token":"very-secret"}"#;
    let well = format!(
        "case \"$request\" in\n  *'\"work\"'*) echo '{{\"status\":\"ok\",\"result\":\"kept\",\"state_updates\":{keeps}}}' ;;\n  \
         *) echo '{{\"status\":\"ok\",\"result\":\"all is well\"}}' ;;\nesac"
    );
    world.plugin("well", &well);
    world.plugin("ill", r#"echo '{"status":"error","error":"no disk left"}'"#);
    world.plugin("other", OK);
    for name in ["well", "ill"] {
        let manifest = format!("plugins/{name}/manifest.yaml");
        let with_health = format!("{}  health: {{type: read}}\n", world.read(&manifest));
        std::fs::write(world.path(&manifest), with_health).expect("a file can be written");
    }
    world.config("plugins: {ill: {}, other: {}, well: {}}\n");
    let _service = world.start();
    world.json(&["plugin", "run", "well", "--command", "work", "--wait"]);
    let calm = world.json(&["status"]);
    assert_eq!(calm["healthy"], true, "{calm}");
    let jobs = world.json(&["job", "list"]);
    assert_eq!(jobs["total"], 1, "a look runs nothing: {jobs}");
    let kept = json!({"n": 7, "api_token": "[redacted]"});
    assert_eq!(calm["plugins"][2]["state"], kept, "{calm}");

    let asked = world.json(&["status", "--health"]);
    assert_eq!(asked["healthy"], false, "{asked}");
    let plugins = &asked["plugins"];
    assert_eq!(plugins[2]["health"]["ok"], true, "{asked}");
    assert_eq!(plugins[2]["health"]["result"], "all is well", "{asked}");
    assert_eq!(plugins[0]["health"]["ok"], false, "{asked}");
    let detail = word(&plugins[0]["health"]["detail"]);
    assert!(detail.contains("no disk left"), "{asked}");
    assert!(plugins[1].get("health").is_none(), "it has no such command");
    let queue = world.json(&["queue"]);
    assert_eq!(queue["jobs"], json!([]), "nothing is left behind");
    let output = world.ductile(&["status", "--health"]);
    assert_eq!(code(&output), 1, "{output:?}");
    let shown = text(&output.stdout);
    for part in ["all is well", "no disk left", "state of well", r#""n":7"#] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("very-secret"), "{shown}");
}

#[test]
fn logs_are_asked_for_by_the_id_of_a_job_or_the_name_of_a_plugin_du_124() {
    let world = world(PLUGINS);
    let ran = world.json(&["plugin", "run", "echo"]);
    world.json(&["plugin", "run", "echo"]);
    let id = word(&ran["job_id"]);
    for args in [
        &["job", "logs", &id][..],
        &["logs", &id],
        &["logs", &id.replace('-', "")],
    ] {
        let logs = world.json(args);
        assert_eq!(logs["total"], 1, "{args:?}: {logs}");
        assert_eq!(word(&logs["logs"][0]["job_id"]), id);
    }
    assert_eq!(world.json(&["logs", "echo"])["total"], 2);
    let nobody = "018bcfe5-6800-7000-8000-080e072a033d";
    refused(&world, &["job", "logs", nobody], "no job has this id");
    refused(&world, &["job", "logs", "nobody"], "nobody");
}

#[test]
fn a_reload_says_what_came_of_it_and_falls_back_to_a_signal_du_117() {
    let world = world("plugins: {echo: {}}\n");
    refused(&world, &["system", "reload"], "no service runs");
    let service = world.start();
    world.plugin("third", OK);
    let would = world.json(&["system", "reload", "--dry-run"]);
    assert_eq!(would["dry_run"], true, "{would}");
    assert_eq!(
        said(&world, &["system", "reload"]),
        "reloaded; added: third\n"
    );
    let reloaded = world.json(&["system", "reload"]);
    assert_eq!(reloaded["status"], "ok", "{reloaded}");
    assert!(reloaded["reloaded_at"].is_string());
    world.config(&format!("{PLUGINS}webhooks: {{listen: '127.0.0.1:1'}}\n"));
    let error = refused(&world, &["system", "reload"], "webhooks");
    assert_eq!(error["context"]["status"], 409);
    world.config("plugins: [\n");
    assert_eq!(code(&world.ductile(&["system", "reload"])), 78);

    world.config("plugins: {echo: {}}\n");
    std::fs::remove_file(world.path("state/ductile.sock")).expect("it is there");
    let reloads = || {
        let lines = service.lines();
        let reloads = lines
            .iter()
            .filter(|line| line.contains("the configuration was reloaded"));
        reloads.count()
    };
    let before = reloads();
    let told = world.json(&["system", "reload"]);
    assert_eq!(told["pid"], service.pid(), "{told}");
    until("the signal is heard", || reloads() > before);
}

#[test]
fn a_service_is_asked_at_its_url_by_whoever_has_a_token_du_113() {
    let world = world(&format!("{PLUGINS}{PIPELINE}{API}"));
    let service = world.start();
    let url = api_of(&service);
    let asked = |args: &[&str]| {
        // Without a local configuration: the URL and the token are sufficient.
        let mut command = Command::new(world.path("ductile"));
        command.args(args).args(["--api-url", &url, "--json"]);
        let output = command
            .env("DUCTILE_API_KEY", TOKEN)
            .env("HOME", "/nowhere")
            .output();
        let output = output.expect("it runs");
        let answer = serde_json::from_slice(&output.stdout);
        let answer: Value = answer.unwrap_or_else(|_| panic!("{args:?}: {output:?}"));
        answer
    };
    assert_eq!(asked(&["plugin", "list"])["plugins"][0]["name"], "echo");
    let ran = asked(&["run", "echo", "--wait"]);
    assert_eq!(ran["status"], "succeeded", "{ran}");
    let id = word(&ran["job_id"]);
    assert_eq!(asked(&["job", "show", &id])["submitted_by"], "api");
    assert_eq!(asked(&["job", "inspect", &id])["job"]["plugin"], "echo");
    assert_eq!(asked(&["status"])["healthy"], true);
    assert_eq!(asked(&["system", "reload"])["status"], "ok");
    assert_eq!(asked(&["system", "reload", "--dry-run"])["dry_run"], true);
    assert_eq!(asked(&["run", "echo", "--dry-run"])["dry_run"], true);
    let missing = asked(&["run", "nobody", "--dry-run"]);
    assert_eq!(missing["context"]["status"], 404, "{missing}");
    let odd = asked(&["run", "echo", "--command", "dance", "--dry-run"]);
    assert!(word(&odd["error"]).contains("no command `dance`"), "{odd}");

    let args = ["plugin", "list", "--api-url", &url];
    let error = refused(&world, &args, "token");
    assert_eq!(error["context"]["status"], 401);
    assert!(word(&error["context"]["hint"]).contains("DUCTILE_API_KEY"));
    let with_key = world.json(&[&args[..], &["--api-key", TOKEN]].concat());
    assert_eq!(with_key["plugins"][1]["name"], "second", "{with_key}");
    let nowhere = ["queue", "--api-url", "http://127.0.0.1:1"];
    refused(&world, &nowhere, "cannot reach http://127.0.0.1:1");
    refused(&world, &["queue", "--api-url", "elsewhere"], "no scheme");
}

#[test]
fn any_request_can_be_sent_as_it_is_du_113() {
    let world = world(PLUGINS);
    world.json(&["run", "echo"]);
    let alone: Value = serde_json::from_str(&said(&world, &["api", "/jobs"])).expect("JSON");
    assert_eq!(alone["total"], 1);
    refused(
        &world,
        &["api", "/plugin/echo/poll", "-X", "post"],
        "no service runs",
    );
    let _service = world.start();
    let queued = said(
        &world,
        &["api", "plugin/echo/poll", "-b", r#"{"payload": {"a": 1}}"#],
    );
    let queued: Value = serde_json::from_str(&queued).expect("JSON");
    assert_eq!(queued["status"], "queued", "{queued}");
    let error = refused(
        &world,
        &["api", "/no/such/path"],
        "this path does not exist",
    );
    assert_eq!(
        error["context"],
        json!({"status": 404, "path": "/no/such/path"})
    );
    refused(&world, &["api", "/jobs", "-X", "DELETE"], "method");
}

#[test]
fn checks_of_ledger_and_service_end_with_their_verdict_du_113() {
    let world = world(PLUGINS);
    refused(&world, &["system", "selfcheck"], "nothing has run yet");
    world.json(&["run", "echo"]);
    let checked = world.json(&["system", "selfcheck"]);
    assert_eq!(checked["healthy"], true, "{checked}");
    let names = checked["checks"].as_array().expect("a list").iter();
    let names: Vec<String> = names.map(|check| word(&check["name"])).collect();
    let expected = [
        "integrity",
        "schema",
        "seal_key",
        "readable_jobs",
        "ended_jobs",
    ];
    assert_eq!(names, expected);
    let shown = said(&world, &["system", "selfcheck"]);
    assert!(shown.starts_with("ok      integrity\n"), "{shown}");
    {
        let service = world.start();
        let error = refused(&world, &["system", "selfcheck"], "uses this ledger");
        assert_eq!(error["context"]["active_pid"], service.pid());
        let doctor = world.json(&["system", "doctor"]);
        assert_eq!(doctor["healthy"], true, "{doctor}");
        world.config("plugins: {nobody: {}}\n");
        let doctor = said_with(&world, &["api", "/system/doctor"]);
        assert_eq!(doctor["healthy"], false, "{doctor}");
        world.config(PLUGINS);
    }
    let ledger = rusqlite::Connection::open(world.path("state/ductile.db")).expect("it opens");
    let broken = ledger.execute("UPDATE intents SET settled_at = NULL", []);
    assert_eq!(broken.expect("it is changed"), 1);
    drop(ledger);
    let output = world.ductile(&["system", "selfcheck"]);
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(text(&output.stdout).contains("NOT OK"), "{output:?}");
}

#[test]
fn a_plugin_that_was_left_out_is_named_with_the_reason() {
    let world = world("plugins: {echo: {}, second: {}}\n");
    let manifest = world.path("plugins/second/manifest.yaml");
    let needy = format!(
        "{}config_keys: {{required: [url]}}\n",
        world.read("plugins/second/manifest.yaml")
    );
    std::fs::write(manifest, needy).expect("a file can be written");
    std::fs::create_dir(world.path("plugins/broken")).expect("a folder can be made");
    std::fs::write(world.path("plugins/broken/manifest.yaml"), "name: [").expect("written");
    let _service = world.start();
    for args in [["system", "status"], ["system", "doctor"]] {
        let told = world.json(&args);
        assert_eq!(told["healthy"], false, "{told}");
        let check = |name: &str| {
            let mut checks = told["checks"].as_array().expect("a list").iter();
            let found = checks.find(|check| check["name"] == name);
            word(&found.unwrap_or_else(|| panic!("no {name}: {told}"))["detail"])
        };
        assert!(check("plugin second").contains("lacks `url`"), "{told}");
        assert!(check("plugin broken").contains("manifest.yaml"), "{told}");
    }
    world.config("plugins: {echo: {}, second: {enabled: false}, broken: {enabled: false}}\n");
    assert_eq!(code(&world.ductile(&["system", "reload"])), 0);
    let told = world.json(&["status"]);
    assert_eq!(told["healthy"], true, "nobody misses them: {told}");
}

#[test]
fn a_plugin_whose_setup_failed_is_named_with_the_reason() {
    let world = world(PLUGINS);
    let refuses = r#"echo '{"status": "error", "error": "no database"}'"#;
    world.plugin("second", refuses);
    let manifest = world.read("plugins/second/manifest.yaml");
    let with_setup = format!("{manifest}  init: {{type: write}}\n");
    std::fs::write(world.path("plugins/second/manifest.yaml"), with_setup).expect("written");
    let _service = world.start();
    for args in [["system", "status"], ["system", "doctor"]] {
        until("the setup has failed and is told", || {
            let told = world.json(&args);
            let mut checks = told["checks"].as_array().expect("a list").iter();
            let named = checks
                .any(|check| check["name"] == "plugin second" && check["detail"] == "no database");
            named && told["healthy"] == false
        });
    }
}

fn said_with(world: &World, args: &[&str]) -> Value {
    serde_json::from_str(&said(world, args)).expect("JSON")
}

#[test]
fn a_backup_holds_ledger_configuration_and_plugins_and_overwrites_nothing_du_113() {
    let world = world(PLUGINS);
    let to = world.path("all.tar.gz");
    let to = to.to_str().expect("plain");
    refused(
        &world,
        &["system", "backup", "--to", to, "--scope", "db"],
        "no ledger exists",
    );
    assert!(!world.path("all.tar.gz").exists());
    world.json(&["run", "echo"]);
    let planned = world.json(&["system", "backup", "--to", to, "--dry-run"]);
    assert_eq!(planned["files"][0], "state/ductile.db", "{planned}");
    assert!(!world.path("all.tar.gz").exists());
    let _service = world.start();
    said(&world, &["system", "backup", "--to", to]);
    assert_eq!(super::mode(&world.path("all.tar.gz")), 0o600);
    assert!(!world.path("all.tar.gz.db").exists());
    refused(&world, &["system", "backup", "--to", to], "exists already");

    std::fs::create_dir(world.path("unpacked")).expect("a folder can be made");
    let unpacked = Command::new("tar")
        .args(["xzf", to, "-C"])
        .arg(world.path("unpacked"))
        .status();
    assert!(unpacked.expect("tar runs").success());
    assert_eq!(
        world.read("unpacked/config/config.yaml"),
        world.read("config.yaml")
    );
    let plugin = "plugins/echo/run";
    assert_eq!(
        world.read(&format!("unpacked/{plugin}")),
        world.read(plugin)
    );
    assert_eq!(super::mode(&world.path("unpacked/plugins/echo/run")), 0o755);
    let ledger = rusqlite::Connection::open(world.path("unpacked/state/ductile.db"));
    let ledger = ledger.expect("it opens");
    let jobs = ledger.query_row("SELECT count(*) FROM intents", [], |row| {
        row.get::<_, i64>(0)
    });
    assert_eq!(jobs.expect("it is a ledger"), 1);
}

#[test]
fn skills_are_told_with_and_without_a_service_and_words_read_as_words() {
    let schedules = "plugins: {echo: {schedules: [{every: 1h}]}, second: {}}\n";
    let world = world(&format!("{schedules}{PIPELINE}"));
    let alone = said(&world, &["skills"]);
    assert!(alone.contains("- **plugin.echo.poll** (READ)"), "{alone}");
    assert!(alone.contains("- **pipeline.line** (WRITE)"), "{alone}");
    let listed = said(&world, &["plugin", "list"]);
    assert!(listed.contains("poll, handle, work"), "{listed}");
    assert!(!world.path("state").exists(), "a look makes nothing");

    world.plugin(
        "echo",
        "while [ ! -e $here/go ]; do sleep 0.02; done; echo '{\"status\":\"ok\",\"result\":\"x\"}'",
    );
    let _service = world.start();
    assert_eq!(said(&world, &["system", "skills"]), alone);
    until("the clock has begun it", || {
        let jobs = world.json(&["system", "scheduler"]);
        jobs["jobs"][0]["in_flight"][0].is_string()
    });
    let shown = said(&world, &["system", "scheduler"]);
    assert!(shown.contains("IN FLIGHT"), "{shown}");
    std::fs::write(world.path("go"), "").expect("a file can be written");
    for verb in ["pause", "resume", "run"] {
        let fine = world.json(&["schedule", verb, "echo", "--dry-run"]);
        assert_eq!(fine["dry_run"], true, "{fine}");
        let missing = ["schedule", verb, "echo", "other", "--dry-run"];
        refused(&world, &missing, "has no schedule `other`");
    }
}
