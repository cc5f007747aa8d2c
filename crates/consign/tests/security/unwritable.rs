//! A ledger that cannot be written: health says so and which part it is, and recovers by itself.

use std::time::{Duration, Instant};

use consign_testkit::process::Server;
use consign_testkit::shim::{Fault, Shim};

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

/// Nobody has to lose a request before those who watch learn of it.
#[test]
fn s18_health_notices_by_itself_that_nothing_can_be_written() {
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let server = start(&shim.under(place.options(), "consign.db"));
    assert_eq!(status(&server, "/health"), 200);
    shim.set(Fault::Writes).expect("the shim listens");
    until("health is 503", || status(&server, "/health") == 503);
}
