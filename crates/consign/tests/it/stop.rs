//! The end of a process: regular and forced.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{PATIENCE, Place, main_client, published, status_of, word};

#[test]
fn ip_006_sigterm_drains_lets_long_polls_go_and_keeps_everything() {
    let place = Place::new();
    let mut server = place.start();
    let mut http = main_client(&server);
    let ids: Vec<String> = (0..20)
        .map(|n| published(&mut http, &format!("g{n}")))
        .collect();
    let mut waiting = main_client(&server);
    let poll =
        thread::spawn(move || waiting.send("POST", "/claim?namespace=empty&wait=30", &[], None));
    thread::sleep(Duration::from_millis(300));
    let asked = Instant::now();
    assert!(server.terminate(PATIENCE).unwrap().success());
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(poll.join().unwrap().unwrap().status, 204);
    let server = place.start();
    let mut http = main_client(&server);
    for id in &ids {
        assert_eq!(status_of(&mut http, id), "open");
    }
}

#[test]
fn sigterm_does_not_wait_for_a_client_that_sends_nothing() {
    let place = Place::new();
    let mut server = place.start();
    let _idle = server.http().connect().unwrap();
    let asked = Instant::now();
    assert!(server.terminate(PATIENCE).unwrap().success());
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
}

#[test]
fn ip_006_what_was_acknowledged_survives_kill_9() {
    let place = Place::new();
    let mut server = place.start();
    let mut http = main_client(&server);
    let ids: Vec<String> = (0..20)
        .map(|n| published(&mut http, &format!("g{n}")))
        .collect();
    let claimed = http.send("POST", "/claim", &[], None).unwrap().json();
    let (id, token) = (word(&claimed["id"]), word(&claimed["claim_token"]));
    server.kill9().unwrap();
    let server = place.start();
    let mut http = main_client(&server);
    for known in &ids {
        let expected = if *known == id { "claimed" } else { "open" };
        assert_eq!(status_of(&mut http, known), expected);
    }
    let body = json!({"claim_token": token, "result": "after the restart"});
    let settled = http.post(&format!("/fulfill/{id}"), &body).unwrap();
    assert_eq!(settled.status, 200, "{}", settled.text());
    assert_eq!(status_of(&mut http, &id), "fulfilled");
}
