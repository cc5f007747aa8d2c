//! The load generator, against its own server and against a running one.

use std::time::Duration;

use consign_testkit::process;
use serde_json::Value;

use super::{Place, code, printed, start, text};

/// Short, because only the format of the report is checked.
const SHORT: [&str; 4] = ["bench", "--seconds=0.3", "--warmup=0.1", "--clients=4"];

fn bench(place: &Place, more: &[&str]) -> std::process::Output {
    place.consign(&[&SHORT[..], more].concat())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array()
        .expect("a list")
        .iter()
        .map(number)
        .collect()
}

fn operation<'a>(report: &'a Value, name: &str) -> &'a Value {
    let operations = report["operations"].as_array().expect("a list");
    let found = operations.iter().find(|found| found["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {report}"))
}

#[test]
fn a_run_against_a_server_of_its_own_measures_whole_cycles_and_leaves_nothing() {
    let place = Place::new();
    let dir = place.path("disk");
    std::fs::create_dir(&dir).unwrap();
    let (out, svg) = (place.path("out.json"), place.path("out.svg"));
    let report = printed(&bench(
        &place,
        &[
            "--json",
            "--rounds=2",
            "--finished=150",
            "--backlog=120",
            "--backlog-mix",
            "--signed",
            "--nonces=130",
            &format!("--dir={}", dir.display()),
            &format!("--out={}", out.display()),
            &format!("--svg={}", svg.display()),
        ],
    ));
    assert_eq!(
        (&report["clean"], &report["errors"]),
        (&true.into(), &Value::Array(vec![]))
    );
    for name in ["publish", "claim", "fulfil", "cycle"] {
        let operation = operation(&report, name);
        assert!(number(&operation["p50_us"]) > 0.0, "{operation}");
        assert!(
            number(&operation["max_us"]) >= number(&operation["p999_us"]),
            "{operation}"
        );
    }
    assert_eq!(report["rounds"].as_array().map(Vec::len), Some(2));
    for name in ["publish", "claim", "fulfil"] {
        let operation = operation(&report, name);
        let of_rounds: Vec<f64> = numbers(&operation["p99_rounds_us"]);
        assert_eq!(of_rounds.len(), 2, "{operation}");
        let median = f64::midpoint(of_rounds[0], of_rounds[1]);
        let told = number(&operation["p99_median_us"]);
        assert!((told - median).abs() < 1e-6, "{operation}");
    }
    let server = &report["server"];
    let (start, most) = (&server["rss_start_bytes"], &server["rss_max_bytes"]);
    assert!(
        number(start) > 0.0 && number(start) <= number(most),
        "{server}"
    );
    let (requests, cycles) = (&report["requests_per_s"], &report["cycles_per_s"]);
    assert!(
        number(&requests["median"]) > 2.0 * number(&cycles["median"]),
        "{report}"
    );
    assert!(number(&cycles["min"]) > 0.0, "{report}");
    assert!(number(&report["usage"]["commits"]) > 0.0, "{report}");
    assert!(number(&report["server"]["disk_bytes"]) > 0.0, "{report}");
    let kept: Value = serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap();
    assert_eq!(kept["operations"], report["operations"]);
    assert!(std::fs::read_to_string(svg).unwrap().ends_with("</svg>\n"));
    let left = std::fs::read_dir(&dir).unwrap().count();
    assert_eq!(left, 0, "the server's directory is removed");
}

#[test]
fn every_kind_of_work_runs_clean() {
    let place = Place::new();
    let kinds: [&[&str]; 7] = [
        &["--work=pairs", "--wait=1"],
        &["--work=publish", "--rate=200"],
        &["--work=drain", "--backlog=5000"],
        &["--work=next"],
        &["--work=batch", "--batch=10"],
        &["--work=empty"],
        &["--work=handoff", "--rate=100"],
    ];
    for kind in kinds {
        let report = printed(&bench(&place, &[kind, &["--json"]].concat()));
        assert_eq!(report["clean"], true, "{kind:?}: {report}");
    }
}

#[test]
fn a_refused_request_is_an_error_and_never_a_success() {
    let place = Place::new();
    let server = start(&place.options());
    let url = format!("--url={}", server.base_url());
    let refused = bench(&place, &[&url, "--key=ck_wrong", "--json"]);
    assert_eq!(code(&refused), 1, "{}", text(&refused.stderr));
    assert!(
        text(&refused.stderr).contains("requests failed"),
        "{}",
        text(&refused.stderr)
    );
    let report: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(
        (&report["clean"], &report["errors"][0]["what"]),
        (&false.into(), &"401".into())
    );
    assert_eq!(report["operations"], Value::Array(vec![]));

    let key = format!("--key={}", server.secret("bus_secret").unwrap());
    let table = bench(&place, &[&url, &key]);
    assert_eq!(code(&table), 0, "{}", text(&table.stderr));
    assert!(
        text(&table.stdout).contains("cycles/s"),
        "{}",
        text(&table.stdout)
    );
}

#[test]
fn a_flag_that_the_work_does_nothing_with_is_refused_by_name() {
    let place = Place::new();
    let cases: [(&[&str], &str); 10] = [
        (&["--batch=10"], "it is for --work batch"),
        (
            &["--work=next", "--batch=10"],
            "--work next does not use --batch",
        ),
        (
            &["--work=cycle", "--wait=1"],
            "it is for --work pairs, handoff",
        ),
        (
            &["--work=restart", "--backlog=10"],
            "--work restart does not use --clients",
        ),
        (
            &["--work=transact", "--svg=picture"],
            "--work transact does not use --svg",
        ),
        (
            &["--work=transact", "--rounds=900"],
            "transact runs for at most",
        ),
        (
            &["--work=relay-socket", "--rounds=900"],
            "relay-socket runs for at most",
        ),
        (
            &["--work=idle-sockets"],
            "--work idle-sockets does not use --clients",
        ),
        (&["--key-file=key"], "--url"),
        (&["--nonces=10"], "--signed"),
    ];
    for (flags, said) in cases {
        let refused = bench(&place, flags);
        assert_eq!(code(&refused), 2, "{flags:?}");
        let stderr = text(&refused.stderr);
        assert!(stderr.contains(said), "{flags:?}: {stderr}");
    }
}

#[test]
fn a_killed_server_is_timed_until_it_hands_out_what_was_published_before() {
    let place = Place::new();
    let restart = ["bench", "--work=restart", "--backlog=300", "--rounds=3"];
    let report = printed(&place.consign(&[&restart[..], &["--json"]].concat()));
    let times = numbers(&report["first_claim_ms"]);
    assert_eq!(times.len(), 3, "{report}");
    assert!(times.iter().all(|time| *time > 0.0), "{report}");
    let most = times.iter().copied().fold(0.0, f64::max);
    assert!((number(&report["max_ms"]) - most).abs() < 1e-9, "{report}");
    assert!(number(&report["p50_ms"]) <= most, "{report}");
    for bytes in ["rss_start_bytes", "rss_bytes", "disk_bytes"] {
        assert!(number(&report["server"][bytes]) > 0.0, "{report}");
    }
    let table = place.consign(&restart);
    assert!(
        text(&table.stdout).contains("first claim"),
        "{}",
        text(&table.stdout)
    );
}

#[test]
fn transactions_are_held_against_the_cycles_of_the_same_run() {
    let place = Place::new();
    let report = printed(&bench(&place, &["--work=transact", "--json"]));
    for side in ["transactions", "cycles"] {
        assert_eq!(report[side]["clean"], true, "{report}");
    }
    let made = &report["transactions"];
    for name in ["authorize", "execute", "cycle"] {
        assert!(number(&operation(made, name)["p50_us"]) > 0.0, "{made}");
    }
    let per_s = |side: &str| number(&report[side]["cycles_per_s"]["median"]);
    let ratio = per_s("transactions") / per_s("cycles");
    assert!((number(&report["ratio"]) - ratio).abs() < 1e-9, "{report}");
    let receipt = &report["receipt"];
    for what in ["bytes", "read_us", "verify_us", "read_and_verify_us"] {
        assert!(number(&receipt[what]) > 0.0, "{receipt}");
    }
    let table = bench(&place, &["--work=transact"]);
    let table = text(&table.stdout);
    assert!(table.contains("transactions a cycle"), "{table}");
}

#[test]
fn relayed_intents_are_held_against_the_cycles_of_the_same_run() {
    let place = Place::new();
    for work in ["relay", "relay-socket"] {
        let flag = format!("--work={work}");
        let report = printed(&bench(&place, &[&flag, "--json"]));
        assert_eq!(report["work"], work, "{report}");
        for side in ["intents", "cycles"] {
            assert_eq!(report[side]["clean"], true, "{report}");
        }
        let relay = operation(&report["intents"], "relay");
        let times = number(&relay["p99_us"]) / number(&relay["p50_us"]);
        assert!((number(&report["p99_per_p50"]) - times).abs() < 1e-9);
        let per_s = |side: &str| number(&report[side]["cycles_per_s"]["median"]);
        let ratio = per_s("intents") / per_s("cycles");
        assert!((number(&report["ratio"]) - ratio).abs() < 1e-9, "{report}");
    }
    let table = bench(&place, &["--work=relay"]);
    let table = text(&table.stdout);
    assert!(table.contains("intents a cycle"), "{table}");
}

#[test]
fn a_server_that_limits_senders_is_named_as_the_cause() {
    let place = Place::new();
    let server = start(&place.options());
    let url = format!("--url={}", server.base_url());
    let key = format!("--key={}", server.secret("bus_secret").unwrap());
    for work in ["--work=relay", "--work=relay-socket"] {
        let one = ["bench", "--seconds=2", "--warmup=0", "--clients=1", work];
        let limited = place.consign(&[&one[..], &[&url, &key]].concat());
        assert_eq!(code(&limited), 1);
        let table = text(&limited.stdout);
        assert!(table.contains("raise BEAM_RATE_LIMIT_PER_MIN"), "{table}");
    }
}

#[test]
fn the_memory_of_idle_sockets_is_measured_for_each() {
    let place = Place::new();
    // It registers 1,000 agents first.
    let command = place.command(&["bench", "--work=idle-sockets", "--json"], &[]);
    let output = process::run(command, Duration::from_secs(40)).expect("the command ends in time");
    let report = printed(&output);
    let rss = |when: &str| number(&report[when]);
    let grown = rss("rss_after_bytes") - rss("rss_before_bytes");
    assert!(grown > 0.0, "{report}");
    assert!((rss("bytes_per_socket") - grown / 2_000.0).abs() < 1e-6);
}

#[test]
fn nonces_are_stored_before_anything_is_measured() {
    let place = Place::new();
    let server = start(&place.options());
    let url = format!("--url={}", server.base_url());
    let key = format!("--key={}", server.secret("bus_secret").unwrap());
    let quiet = ["--work=handoff", "--rate=20", "--wait=1"];
    let few = ["--signed", "--nonces=500", "--json", &url, &key];
    let report = printed(&bench(&place, &[&quiet[..], &few].concat()));
    assert_eq!(report["settings"]["nonces"], 500, "{report}");
    let database = rusqlite::Connection::open(place.data().join("consign.db")).unwrap();
    let count = "SELECT count(*) FROM nonces";
    let stored: i64 = database.query_row(count, [], |row| row.get(0)).unwrap();
    assert!((500..600).contains(&stored), "{stored}");
}
