//! A ledger that cannot be written: health reports it with the affected part, and recovers by itself.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::{Duration, Instant};

use consign_testkit::process::Server;
use consign_testkit::shim::{Fault, Shim};
use consign_testkit::space::Space;

use super::place::{Place, get, main_client, publish, start};

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(12), "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn status(server: &Server, path: &str) -> u16 {
    get(&mut server.http(), path).status
}

#[test]
fn s18_health_is_503_with_the_part_and_a_reason_while_nothing_can_be_written() {
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let options = place.options().env("ATP_SITE", "https://shop.example");
    let server = start(&shim.under(options, "consign.db"));
    let mut http = main_client(&server);
    assert_eq!(status(&server, "/health"), 200);

    shim.set(Fault::Writes).expect("the shim listens");
    assert_eq!(publish(&mut http, "refused").status, 503);
    until("health is 503", || status(&server, "/health") == 503);
    let unwell = get(&mut server.http(), "/health");
    let body = unwell.json();
    assert_eq!(body["ok"], false, "{body}");
    assert_eq!(body["ledger"], "unwritable", "{body}");
    assert!(
        body["reason"]
            .as_str()
            .is_some_and(|why| why.contains("disk"))
    );
    assert_eq!(unwell.code(), "database_busy");
    assert!(unwell.header("retry-after").is_some());
    let site = get(&mut server.http(), "/api/atp/health");
    assert_eq!(site.status, 503);
    assert_eq!(site.json()["writer"], false);
    assert_eq!(site.json()["ledger"], "unwritable");

    shim.set(Fault::None).expect("the shim listens");
    until("health is 200 without a request of a client", || {
        status(&server, "/health") == 200
    });
    assert_eq!(status(&server, "/api/atp/health"), 200);
    assert_eq!(publish(&mut http, "taken").status, 201);
}

/// Monitoring detects the failure before a request is lost.
#[test]
fn s18_health_notices_by_itself_that_nothing_can_be_written() {
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let server = start(&shim.under(place.options(), "consign.db"));
    assert_eq!(status(&server, "/health"), 200);
    shim.set(Fault::Writes).expect("the shim listens");
    until("health is 503", || status(&server, "/health") == 503);
}

/// The disk is completely full when the server stops, and again when it is purged.
#[test]
fn s18_an_operator_starts_and_purges_on_a_full_disk() {
    let place = Place::new();
    std::fs::create_dir(place.data()).expect("the folder is ours");
    let space = Space::limited(&place.data(), 24 << 20);
    if !matches!(space, Space::Mounted { .. }) {
        // Without mounts the disk cannot be filled. The unit tests of the reserve still cover it.
        return;
    }
    let fill = || {
        let ballast = place.data().join("ballast");
        let mut ballast = OpenOptions::new()
            .create(true)
            .append(true)
            .open(ballast)
            .expect("the folder is ours");
        let mut chunk = vec![1; 64 << 10];
        while !chunk.is_empty() {
            if ballast.write_all(&chunk).is_err() {
                chunk.truncate(chunk.len() / 2);
            }
        }
    };
    let mut server = start(&place.options());
    let mut http = main_client(&server);
    for number in 0..50 {
        assert_eq!(publish(&mut http, &format!("g{number}")).status, 201);
    }
    let reserve = place.data().join("consign.db.reserve");
    until("the reserve is kept", || reserve.exists());
    fill();
    let stopped = server.terminate(Duration::from_secs(10));
    stopped.expect("it ends");
    fill();
    let server = start(&place.options());
    fill();
    let mut http = main_client(&server);
    until("the disk is full", || {
        publish(&mut main_client(&server), "more").status == 503
    });
    let mut admin = server.admin_client().expect("the server made its token");
    let purged = admin.post("/admin/purge", &serde_json::json!({"confirm": true}));
    let purged = purged.expect("the server answers");
    assert_eq!(purged.status, 200, "{}", purged.text());
    let listed = get(&mut http, "/intents").json();
    assert_eq!(listed["intents"].as_array().map(Vec::len), Some(0));
}
