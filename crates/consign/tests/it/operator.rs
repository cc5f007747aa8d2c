//! What operators see of a running server: its status, its problems, its events, and the live view.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use consign_testkit::process;
use serde_json::Value;

use super::{PATIENCE, Place, binary, code, get, main_client, printed, published, text, word};

fn face<'a>(status: &'a Value, name: &str) -> &'a Value {
    let mut faces = status["faces"].as_array().expect("a list").iter();
    faces.find(|face| face["face"] == name).expect("the face")
}

/// The problems of a report, without that of the disk of the machine that tests.
fn problems(found: &Value) -> Vec<&Value> {
    let found = found.as_array().expect("a list").iter();
    found.filter(|problem| problem["id"] != "disk").collect()
}

/// Publishes an intent with one try, claims it and lets it fail.
fn let_one_die(place: &Place) -> String {
    let args = [
        "intent",
        "publish",
        "doomed",
        "{}",
        "--max-attempts",
        "1",
        "--json",
    ];
    let id = word(&printed(&place.consign(&args))["id"]);
    let claimed = printed(&place.consign(&["intent", "claim", "--goal", "doomed", "--json"]));
    let token = word(&claimed["claim_token"]);
    let args = [
        "intent", "fail", &id, "--token", &token, "--error", "no luck",
    ];
    assert_eq!(code(&place.consign(&args)), 0);
    id
}

#[test]
fn status_shows_the_whole_server_and_warns_of_dead_letters() {
    let place = Place::new();
    let mut server = place.start();
    let healthy = printed(&place.consign(&["status", "--json"]));
    assert_eq!(healthy["healthy"], true, "{healthy}");
    assert_eq!(problems(&healthy["problems"]), Vec::<&Value>::new());
    published(&mut main_client(&server), "wait");
    let_one_die(&place);
    let status = printed(&place.consign(&["status", "--json"]));
    assert_eq!(
        status["healthy"], true,
        "a dead letter is a warning: {status}"
    );
    let found = problems(&status["problems"]);
    assert_eq!(found[0]["id"], "dead_letters", "{status}");
    let intents = face(&status, "intent");
    for (figure, expected) in [("waiting", 1), ("held", 0), ("dead", 1)] {
        assert_eq!(intents[figure], expected, "{figure}: {status}");
    }
    assert!(intents["oldest_waiting_s"].is_number(), "{status}");
    let counters = &intents["counters"];
    for (kind, expected) in [("published", 2), ("claimed", 1), ("failed", 1), ("dead", 1)] {
        assert_eq!(counters[kind], expected, "{kind}: {status}");
    }
    let part = &status["parts"]["server"];
    assert!(part["disk_free_bytes"].as_u64() > Some(0), "{status}");
    assert!(part["schema"].as_u64() > Some(0), "{status}");
    assert_eq!(status["nodes"][0]["here"], true, "{status}");
    let shown = place.consign(&["status"]);
    let shown = text(&shown.stdout);
    for part in [
        "is healthy, with ",
        "FACE",
        "consign intent list --status dead",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    server.terminate(PATIENCE).expect("it stops");
    let gone = place.consign(&["status"]);
    assert_eq!(code(&gone), 5, "{}", text(&gone.stderr));
    assert!(text(&gone.stderr).contains("consign serve"), "what to do");
}

#[test]
fn the_status_is_for_operators_alone() {
    let place = Place::new();
    let server = place.start();
    for path in ["/admin/status", "/admin/events"] {
        assert_eq!(get(&mut main_client(&server), path).status, 401, "{path}");
        assert_eq!(get(&mut server.http(), path).status, 401, "{path}");
    }
    let wrong = place.consign(&["status", "--admin-token", "ca_wrong"]);
    assert_eq!(code(&wrong), 4, "{}", text(&wrong.stderr));
}

#[test]
fn doctor_finds_loose_modes_repairs_them_and_says_so() {
    let place = Place::new();
    let mut server = place.start();
    let keys = place.data().join("keys");
    let set = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&keys, permissions).expect("it is ours");
    };
    set(0o755);
    // Whether something needs attention, and the findings.
    let report = |args: &[&str]| -> (bool, Value) {
        let output = place.consign(&[&["doctor", "--json"], args].concat());
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let all = report["findings"].as_array().expect("a list");
        let fixed = all.iter().all(|finding| finding["fixed"] == true);
        assert_eq!(code(&output), i32::from(!fixed), "{report}");
        let found = problems(&report["findings"]);
        let needed = found.iter().any(|finding| finding["fixed"] == false);
        (needed, found.into_iter().cloned().collect())
    };
    let (needed, found) = report(&[]);
    assert!(needed, "{found}");
    let finding = &found[0];
    assert_eq!(
        (&finding["id"], &finding["fixed"]),
        (&"mode".into(), &false.into())
    );
    assert!(word(&finding["next"]).contains("chmod"), "{found}");
    let (needed, fixed) = report(&["--fix"]);
    assert!(!needed, "{fixed}");
    assert_eq!(fixed[0]["fixed"], true, "{fixed}");
    let (needed, sound) = report(&[]);
    assert_eq!((needed, sound), (false, serde_json::json!([])));
    let_one_die(&place);
    let (needed, dead) = report(&[]);
    assert!(needed, "{dead}");
    assert_eq!(dead[0]["id"], "dead_letters", "{dead}");
    server.terminate(PATIENCE).expect("it stops");
    let (needed, stopped) = report(&[]);
    assert!(needed, "{stopped}");
    assert_eq!(stopped[0]["id"], "server", "{stopped}");
}

#[test]
fn events_of_all_owners_and_faces_are_followed_and_continued() {
    let place = Place::new();
    let server = place.start();
    let made = printed(&place.consign(&["key", "create", "--owner", "ann", "--json"]));
    let mut ann = server.http().header("X-API-KEY", &word(&made["api_key"]));
    let of_ann = published(&mut ann, "one");
    let of_main = published(&mut main_client(&server), "two");
    let events = |args: &[&str]| -> Vec<Value> {
        let output = place.consign(&[&["events", "--json", "--after"], args].concat());
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let lines = text(&output.stdout);
        let parsed = lines.lines().map(serde_json::from_str::<Value>);
        parsed.map(|event| event.expect("a line of JSON")).collect()
    };
    let all = events(&["0", "--limit", "2"]);
    assert_eq!(
        (&all[0]["intent"], &all[1]["intent"]),
        (&of_ann.into(), &of_main.clone().into())
    );
    assert_ne!(all[0]["owner"], all[1]["owner"]);
    assert_eq!(all[0]["face"], "intent");
    let seq = all[0]["seq"].to_string();
    assert_eq!(events(&[&seq, "--limit", "1"])[0]["intent"], of_main);
    assert_eq!(
        events(&["0", "--goal", "two", "--limit", "1"])[0]["goal"],
        "two"
    );
    let unknown = place.consign(&["events", "--after", "999999999999"]);
    assert_eq!(code(&unknown), 4, "{}", text(&unknown.stderr));
    let human = place.consign(&["watch", "--after", "0", "--limit", "1"]);
    assert!(text(&human.stdout).contains("default/one"), "{human:?}");
}

#[test]
fn top_is_a_snapshot_without_a_terminal_and_a_live_view_with_one() {
    let place = Place::new();
    let server = place.start();
    published(&mut main_client(&server), "wait-here");
    let once = place.consign(&["top"]);
    assert_eq!(code(&once), 0, "{}", text(&once.stderr));
    assert!(text(&once.stdout).contains("FACE"), "{once:?}");
    let json = printed(&place.consign(&["top", "--json"]));
    assert_eq!(face(&json, "intent")["waiting"], 1);

    // `script` gives the command a terminal.
    let mut command = process::cleaned(std::path::Path::new("script"));
    let line = format!("{} top --interval 1", binary().display());
    let mut live = command
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .env("CONSIGN_DATA", place.data())
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is there");
    let (mut keys, mut screen) = (live.stdin.take().unwrap(), live.stdout.take().unwrap());
    let mut shown = String::new();
    let mut press = |key: &str, until: &str| {
        keys.write_all(key.as_bytes()).expect("it reads keys");
        keys.flush().expect("it reads keys");
        shown.clear();
        let mut buffer = [0; 4096];
        while !shown.contains(until) {
            let count = screen.read(&mut buffer).expect("it draws");
            assert_ne!(count, 0, "{until} was not shown: {shown}");
            shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    press("", "default/wait-here");
    press("?", "Keys:");
    press("?", "FACE");
    press("j", "FACE");
    press("\r", "what happens in automation");
    press("d", "dead letters of intents");
    press("q", "\u{1b}[?1049l");
    drop(keys);
    assert!(live.wait().expect("it ends").success());
}

/// Names that are prescribed or older; the linter of Prometheus would have them otherwise.
const NAMES_KEPT: [&str; 4] = [
    "intent_bus_intents_total",
    "intent_bus_dead_letters_total",
    "intent_bus_tester_keys_total",
    "cm_broker_atomicity_violation_found",
];

#[test]
fn metrics_and_alert_rules_pass_the_checks_of_prometheus() {
    let place = Place::new();
    let server = place.start();
    published(&mut main_client(&server), "wait");
    let_one_die(&place);
    let mut admin = server.admin_client().expect("the token can be read");
    let metrics = get(&mut admin, "/metrics");
    let metrics = text(&metrics.body);
    for line in [
        r#"consign_published_total{face="intent",namespace="default",goal="wait"} 1"#,
        r#"consign_dead_total{face="intent",namespace="default",goal="doomed"} 1"#,
        r#"consign_rows{face="intent",state="queued"} 1"#,
        r#"consign_claim_wait_seconds_count{face="intent"} 1"#,
        r#"consign_http_requests_total{route="/claim",status="2xx"} 1"#,
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line} in\n{metrics}"
        );
    }
    for name in [
        "process_open_fds",
        "consign_disk_free_bytes",
        "consign_oldest_waiting_seconds",
    ] {
        assert!(
            metrics.contains(&format!("\n{name}")),
            "{name} in\n{metrics}"
        );
    }
    let mut command = process::cleaned(std::path::Path::new("promtool"));
    let mut lint = command
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there; it is in the Debian package prometheus");
    let mut stdin = lint.stdin.take().expect("a pipe");
    stdin.write_all(metrics.as_bytes()).expect("it reads");
    drop(stdin);
    let said = lint.wait_with_output().expect("it ends");
    let said = format!("{}{}", text(&said.stdout), text(&said.stderr));
    let complaints = said
        .lines()
        .filter(|line| !NAMES_KEPT.iter().any(|kept| line.starts_with(kept)));
    assert_eq!(complaints.collect::<Vec<_>>(), Vec::<&str>::new());

    let dist = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    let rules = dist.join("prometheus/consign-alerts.yml");
    let mut command = process::cleaned(std::path::Path::new("promtool"));
    command.args(["check", "rules"]).arg(&rules);
    let checked = process::run(command, PATIENCE).expect("promtool is there");
    assert!(checked.status.success(), "{checked:?}");
    // Boards and rules name only metrics that exist.
    let board = std::fs::read_to_string(dist.join("grafana/consign.json")).expect("the board");
    let board: Value = serde_json::from_str(&board).expect("JSON");
    let rules = std::fs::read_to_string(rules).expect("the rules");
    let expressions = format!("{board} {rules}");
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let names = expressions.split(|letter| !is_name(letter));
    // Metrics of parts that this server does not run.
    let absent = ["consign_automation_", "consign_atp_"];
    for name in names.filter(|name| name.starts_with("consign_")) {
        let family = name.trim_end_matches("_bucket");
        let is_known = metrics.contains(&format!("# TYPE {family} "));
        let is_absent = absent.iter().any(|part| name.starts_with(part));
        assert!(is_known || is_absent, "{name} is no metric");
    }
}

#[test]
fn doctor_and_status_tell_that_a_configuration_differs_from_its_seal() {
    let place = Place::new();
    let dir = place.path("auto");
    let dir = dir.to_str().expect("a path");
    let made = place.consign(&["automation", "config", "init", dir]);
    assert_eq!(code(&made), 0, "{}", text(&made.stderr));
    let _server = super::start(&place.options().arg("--config").arg(dir));
    let findings = || -> Vec<Value> {
        let output = place.consign(&["doctor", "--config", dir, "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let findings = report["findings"].as_array().expect("a list");
        let of_seal = findings
            .iter()
            .filter(|one| one["id"] == "automation_config");
        of_seal.cloned().collect()
    };
    assert_eq!(findings(), Vec::<Value>::new());
    let file = place.path("auto/config.yaml");
    let config = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, format!("{config}\n# changed\n")).expect("it is ours");
    let found = findings();
    assert!(!found.is_empty());
    assert!(word(&found[0]["what"]).contains("seal"), "{found:?}");
    let status = printed(&place.consign(&["status", "--json"]));
    let part = &status["parts"]["automation"];
    assert_eq!(part["breakers"]["open"], 0, "{status}");
}
