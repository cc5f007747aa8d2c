//! Two real nodes on one PostgreSQL: listing, draining, expiry, and nodes that are refused.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::postgres::{self, Database};
use consign_testkit::process::{self, Http, Options, Server};
use serde_json::{Value, json};

use super::{
    PATIENCE, Place, code, main_client, printed, published, refusal, start, status_of, text, word,
};

/// Three heartbeats, and a margin for a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// An empty database.
pub(crate) fn database() -> Database {
    let cluster = postgres::shared().expect("PostgreSQL runs");
    let database = cluster.database("consign_nothing", |_| {});
    database.expect("a database can be made")
}

/// The options of a node with this name and a data directory of the same name.
pub(crate) fn node(place: &Place, database: &Database, name: &str) -> Options {
    Options::new(super::binary(), place.path(name))
        .arg("--store")
        .arg(&database.url())
        .arg("--node-name")
        .arg(name)
}

pub(crate) fn copy_keys(from: &Path, to: &Path) {
    let copied = std::process::Command::new("sh")
        .arg("-c")
        .arg("mkdir -m 700 \"$1\" && cp -rp \"$0/keys\" \"$1/keys\"")
        .args([from, to])
        .status();
    assert!(copied.expect("there is a shell").success());
}

fn two_nodes(place: &Place, database: &Database) -> (Server, Server) {
    let one = start(&node(place, database, "one"));
    copy_keys(&place.path("one"), &place.path("two"));
    let two = start(&node(place, database, "two"));
    (one, two)
}

#[test]
fn a_node_has_no_more_connections_than_one_should_plan_with() {
    let place = Place::new();
    let database = database();
    let server = start(&node(&place, &database, "one"));
    // Each reader has its own thread, so that all read connections are in use at once.
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                let mut http = main_client(&server);
                for _ in 0..20 {
                    published(&mut http, "counted");
                    let listed = http.get("/intents").expect("the node answers");
                    assert_eq!(listed.status, 200);
                }
            });
        }
    });
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'consign'";
    let count = database.sql(sql).expect("it can be asked");
    let count: u32 = count.trim().parse().expect("a number");
    assert!((1..=13).contains(&count), "{count}");
}

/// Makes the database fail instead of returning the time. The new schema invalidates cached plans, so existing connections call
/// the function, too.
const NO_TIME: &str = "CREATE FUNCTION consign.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS \
    $$ BEGIN RAISE EXCEPTION 'nobody knows'; END $$; CREATE SCHEMA new_plans";

#[test]
fn a_node_that_cannot_compare_its_clock_gives_out_no_work_until_it_can() {
    let place = Place::new();
    let database = database();
    let server = start(&node(&place, &database, "one"));
    let mut http = main_client(&server);
    database.sql(NO_TIME).expect("it can be told");
    until(SOON, "it gives out no work", || {
        claim(&mut http).status == 503
    });
    let refused = claim(&mut http);
    assert_eq!(refused.code(), "node_draining");
    assert!(refused.text().contains("clock"), "{}", refused.text());
    // All requests except claims succeed there.
    let id = published(&mut http, "kept");
    let time = "DROP FUNCTION consign.clock_timestamp()";
    database.sql(time).expect("it can be told");
    until(SOON, "it gives out work again", || {
        claim(&mut http).status == 200
    });
    assert_eq!(status_of(&mut http, &id), "claimed");
}

/// Runs a command against the node with this data directory.
fn consign(place: &Place, asked: &str, args: &[&str]) -> std::process::Output {
    let mut command = process::cleaned(&super::binary());
    command
        .args(args)
        .env("CONSIGN_DATA", place.path(asked))
        .stdin(std::process::Stdio::null());
    process::run(command, Duration::from_secs(30)).expect("the command ends in time")
}

fn listed(place: &Place, asked: &str) -> Vec<Value> {
    let nodes = printed(&consign(place, asked, &["node", "list", "--json"]));
    nodes.as_array().cloned().unwrap_or_default()
}

/// The state and the leases of a node, as reported by another node.
fn seen(place: &Place, asked: &str, name: &str) -> Option<(String, u64)> {
    let nodes = listed(place, asked);
    let found = nodes.iter().find(|node| node["name"] == name)?;
    Some((word(&found["state"]), found["leases"].as_u64()?))
}

fn until(limit: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn claim(http: &mut Http) -> process::Reply {
    let reply = http.send("POST", "/claim", &[], None);
    reply.expect("the server answers")
}

fn fulfil(http: &mut Http, claimed: &Value) -> u16 {
    let body = json!({"claim_token": claimed["claim_token"]});
    let path = format!("/fulfill/{}", word(&claimed["id"]));
    http.post(&path, &body).expect("the server answers").status
}

#[test]
fn one_of_two_nodes_is_drained_while_the_other_gives_out_work() {
    let (place, database) = (Place::new(), database());
    let (mut one, two) = two_nodes(&place, &database);
    let nodes = listed(&place, "two");
    let names: Vec<String> = nodes.iter().map(|node| word(&node["name"])).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(nodes[0]["address"], one.base_url());
    assert_eq!(nodes[0]["state"], "serving");
    assert_eq!(nodes[0]["here"], false);

    let (mut at_one, mut at_two) = (main_client(&one), main_client(&two));
    for _ in 0..3 {
        published(&mut at_one, "g");
    }
    let held = claim(&mut at_one).json();
    assert_eq!(seen(&place, "two", "one"), Some(("serving".to_owned(), 1)));
    let mut waiting = main_client(&one);
    let poll =
        thread::spawn(move || waiting.send("POST", "/claim?namespace=empty&wait=30", &[], None));

    // A dry run changes nothing. Then the drain is requested through another node.
    let dry = consign(&place, "two", &["node", "drain", "one", "--dry-run"]);
    assert_eq!(code(&dry), 0, "{dry:?}");
    assert_eq!(seen(&place, "two", "one"), Some(("serving".to_owned(), 1)));
    let drained = consign(&place, "two", &["node", "drain", "one"]);
    assert_eq!(code(&drained), 0, "{drained:?}");
    let ended = poll.join().unwrap().expect("the wait ends");
    assert_eq!(
        (ended.status, ended.code().as_str()),
        (503, "node_draining")
    );
    let refused = claim(&mut at_one);
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (503, "node_draining")
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    let health = one.http().get("/health").unwrap();
    assert_eq!(
        (health.status, &health.json()["draining"]),
        (200, &json!(true))
    );
    assert_eq!(claim(&mut at_two).status, 200, "the other one serves");
    published(&mut at_one, "g");
    assert_eq!(seen(&place, "two", "one"), Some(("draining".to_owned(), 1)));

    // Its worker settles, and the waiting command ends.
    let waiter = place.path("two");
    let waits = thread::spawn(move || {
        let mut command = process::cleaned(&super::binary());
        command.args(["node", "drain", "one", "--wait", "--json"]);
        command.env("CONSIGN_DATA", waiter);
        process::run(command, SOON)
    });
    thread::sleep(Duration::from_millis(300));
    assert_eq!(fulfil(&mut at_one, &held), 200);
    let waited = printed(&waits.join().unwrap().expect("it is drained"));
    assert_eq!(
        (&waited["state"], &waited["leases"]),
        (&json!("drained"), &json!(0))
    );

    let resumed = consign(&place, "one", &["node", "resume", "one"]);
    assert_eq!(code(&resumed), 0, "{resumed:?}");
    until(SOON, "node one gives out work again", || {
        claim(&mut at_one).status == 200
    });

    // A node that stops regularly is removed at once.
    assert!(one.terminate(PATIENCE).unwrap().success());
    assert_eq!(seen(&place, "two", "one"), None);
    let unknown = consign(&place, "two", &["node", "drain", "one"]);
    assert_eq!(code(&unknown), 3, "{unknown:?}");
}

#[test]
fn a_killed_node_is_silent_then_gone_and_its_leases_can_be_settled_elsewhere() {
    let (place, database) = (Place::new(), database());
    let (mut one, two) = two_nodes(&place, &database);
    let mut at_two = main_client(&two);
    published(&mut at_two, "g");
    let held = claim(&mut main_client(&one)).json();
    one.kill9().unwrap();
    let killed = Instant::now();
    until(SOON, "it is silent", || {
        seen(&place, "two", "one") == Some(("silent".to_owned(), 1))
    });
    assert!(
        killed.elapsed() >= Duration::from_secs(4),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!(fulfil(&mut at_two, &held), 200);
    until(Duration::from_secs(40), "it is gone", || {
        seen(&place, "two", "one").is_none()
    });
    assert_eq!(seen(&place, "two", "two"), Some(("serving".to_owned(), 0)));
}

#[test]
fn a_node_on_a_file_drains_through_a_pause_and_a_restarted_one_is_new_and_serves() {
    let place = Place::new();
    let mut server = start(
        &Options::new(super::binary(), place.data())
            .arg("--node-name")
            .arg("only"),
    );
    let first = printed(&place.consign(&["node", "list", "--json"]))[0].clone();
    assert_eq!(
        (&first["name"], &first["state"]),
        (&json!("only"), &json!("serving"))
    );
    let id = first["id"].to_string();
    let drained = place.consign(&["node", "drain", &id]);
    assert_eq!(code(&drained), 0, "{drained:?}");
    let warned = "no other node of this ledger hands out work";
    assert!(text(&drained.stderr).contains(warned), "{drained:?}");
    let mut http = main_client(&server);
    until(SOON, "claims are refused", || {
        claim(&mut http).status == 503
    });
    let shown = place.consign(&["node", "list"]);
    assert!(text(&shown.stdout).contains(" drain"), "{shown:?}");
    server.signal("STOP").unwrap();
    thread::sleep(Duration::from_millis(2_500));
    server.signal("CONT").unwrap();
    assert_eq!(claim(&mut http).status, 503, "it was not told to serve");
    assert!(server.terminate(PATIENCE).unwrap().success());

    let mut server = start(
        &Options::new(super::binary(), place.data())
            .arg("--node-name")
            .arg("only"),
    );
    server.kill9().unwrap();
    let _server = start(
        &Options::new(super::binary(), place.data())
            .arg("--node-name")
            .arg("only"),
    );
    let nodes = printed(&place.consign(&["node", "list", "--json"]));
    assert_eq!(nodes.as_array().map(Vec::len), Some(1));
    assert_ne!(nodes[0]["id"], first["id"]);
    assert_eq!(nodes[0]["state"], "serving");
}

#[test]
fn a_node_with_other_secrets_may_not_join_until_they_are_changed_on_purpose() {
    let (place, database) = (Place::new(), database());
    let (mut one, mut two) = two_nodes(&place, &database);
    assert!(two.terminate(PATIENCE).unwrap().success());
    let options = node(&place, &database, "two");
    for (name, content) in [
        ("bus_secret", "ck_another_one_0123"),
        ("seal_key", &"ab".repeat(32)),
        ("receipt_seed", &"cd".repeat(32)),
    ] {
        let file = place.path("two").join("keys").join(name);
        let right = std::fs::read(&file).unwrap();
        std::fs::write(&file, content).unwrap();
        let (exit, said) = refusal(&options);
        assert_eq!(exit, 1, "{said}");
        assert!(
            said.contains(&format!("use a different {name} than")),
            "{said}"
        );
        assert!(said.contains("hint: copy seal_key"), "{said}");
        assert!(!said.contains(content), "a secret is told");
        std::fs::write(&file, right).unwrap();
    }
    drop(start(&options));
    let (exit, said) = refusal(&node(&place, &database, "three"));
    assert!(
        exit == 1 && said.contains("hint: copy seal_key, receipt_seed and bus_secret"),
        "{said}"
    );

    // A new main key for all nodes.
    let file = place.path("two").join("keys").join("bus_secret");
    std::fs::write(&file, "ck_the_new_one_0123").unwrap();
    let changed = options.clone().arg("--new-secrets");
    let (exit, said) = refusal(&changed);
    assert!(
        exit == 1 && said.contains("one is running on this database"),
        "{said}"
    );
    assert!(one.terminate(PATIENCE).unwrap().success());
    assert_eq!(refusal(&options).0, 1, "not by accident");
    // The node that was killed above is silent by now, or soon.
    until(SOON, "the change is taken", || {
        Server::start(&changed).is_ok_and(|mut server| server.terminate(PATIENCE).is_ok())
    });
    drop(start(&options));
    let (exit, said) = refusal(&node(&place, &database, "one"));
    assert!(
        exit == 1 && said.contains("a different bus_secret"),
        "{said}"
    );
}

#[test]
fn a_server_that_slept_while_the_secrets_were_replaced_ends_when_it_wakes_up() {
    let (place, database) = (Place::new(), database());
    let (mut one, mut two) = two_nodes(&place, &database);
    assert!(one.terminate(PATIENCE).unwrap().success());
    two.signal("STOP").unwrap();
    for (name, content) in [
        ("bus_secret", "ck_the_new_one_0123"),
        ("seal_key", &"ab".repeat(32)),
    ] {
        std::fs::write(place.path("one").join("keys").join(name), content).unwrap();
    }
    let changed = node(&place, &database, "one").arg("--new-secrets");
    let deadline = Instant::now() + SOON;
    let one = loop {
        match Server::start(&changed) {
            Ok(server) => break server,
            Err(error) => assert!(Instant::now() < deadline, "two is not silent: {error}"),
        }
    };
    two.signal("CONT").unwrap();
    let ended = two.wait(SOON).expect("it ends by itself");
    assert_eq!(ended.code(), Some(1));
    let said = two.stderr();
    assert!(said.contains("a different seal_key than"), "{said}");
    published(&mut main_client(&one), "goes on");
}
