//! The server recovers from a full disk by itself, and exits if a sync fails. In neither case is a lost write acknowledged.

use std::path::Path;
use std::time::{Duration, Instant};

use consign_testkit::shim::{Fault, Shim};
use serde_json::json;

use super::{PATIENCE, Place, get, main_client, publish, published, start, status_of};

#[test]
fn ip_162_a_full_disk_refuses_writes_and_heals() {
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let server = start(&shim.under(place.options(), "consign.db"));
    let mut http = main_client(&server);
    let before = published(&mut http, "before");

    shim.set(Fault::Writes).expect("the shim listens");
    for number in 0..5 {
        let refused = publish(&mut http, &format!("during-{number}"));
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (503, "database_busy"),
            "{}",
            refused.text()
        );
        assert!(refused.header("retry-after").is_some());
        assert_eq!(status_of(&mut http, &before), "open");
    }
    assert!(shim.failed().expect("the shim counts") >= 5);
    shim.set(Fault::None).expect("the shim listens");

    let after = published(&mut http, "after");
    drop(server);
    let server = place.start();
    let mut http = main_client(&server);
    let listed = get(&mut http, "/intents").json();
    let listed = listed["intents"].as_array().expect("a list of intents");
    let ids: Vec<&str> = listed
        .iter()
        .filter_map(|intent| intent["id"].as_str())
        .collect();
    assert_eq!(ids, [after.as_str(), before.as_str()]);
    drop(server);
    let checked = place.consign(&["store", "check"]);
    assert!(checked.status.success(), "{checked:?}");
}

/// After a failed sync, the next one may succeed although data was lost, so the server cannot continue.
#[test]
fn ip_162_a_failing_sync_acknowledges_nothing_and_ends_the_server() {
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let mut server = start(&shim.under(place.options(), "consign.db"));
    let mut http = main_client(&server);
    let before = published(&mut http, "before");

    shim.set(Fault::Syncs).expect("the shim listens");
    let refused = publish(&mut http, "during");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (503, "database_busy"),
        "{}",
        refused.text()
    );
    let ended = server.wait(Duration::from_secs(10));
    assert_eq!(ended.expect("it ends by itself").code(), Some(1));
    shim.set(Fault::None).expect("the shim listens");

    let server = place.start();
    let mut http = main_client(&server);
    assert_eq!(status_of(&mut http, &before), "open");
    published(&mut http, "after");
    drop(server);
    let checked = place.consign(&["store", "check"]);
    assert!(checked.status.success(), "{checked:?}");
}

/// The first commit after a complete merge begins the log anew, and SQLite syncs the new header itself.
#[test]
fn ip_162_a_failing_sync_of_a_log_that_begins_anew_ends_the_server() {
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let mut server = start(&shim.under(place.options(), "consign.db"));
    let mut http = main_client(&server);
    let long = json!({"goal": "long", "payload": {"text": "x".repeat(7_000)}});
    let index = place.data().join("consign.db-shm");
    let deadline = Instant::now() + PATIENCE;
    // A log is merged some time after it has enough pages.
    while !soon(|| is_merged(&index)) {
        assert!(Instant::now() < deadline, "the log was never merged");
        for _ in 0..300 {
            assert_eq!(http.post("/intent", &long).expect("it answers").status, 201);
        }
    }

    shim.set(Fault::Syncs).expect("the shim listens");
    let refused = publish(&mut http, "during");
    assert_eq!(refused.status, 503, "{}", refused.text());
    let ended = server.wait(Duration::from_secs(10));
    assert_eq!(ended.expect("it ends by itself").code(), Some(1));
    shim.set(Fault::None).expect("the shim listens");
    let server = place.start();
    published(&mut main_client(&server), "after");
}

fn soon(mut so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_millis(400);
    while !so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Reads the index of SQLite's log: whether as many pages are merged as there are.
fn is_merged(index: &Path) -> bool {
    let bytes = std::fs::read(index).expect("the index exists");
    let number = |at: usize| bytes.get(at..at + 4);
    let (pages, merged) = (number(16), number(96));
    pages == merged && pages.is_some_and(|pages| pages != [0; 4])
}
