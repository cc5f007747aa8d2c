//! The wall clock of a running server jumps: no lease ends, no delay is skipped, no intent is lost.

use std::time::Duration;

use consign_testkit::process::{Http, Server};
use consign_testkit::shim::Shim;
use serde_json::{Value, json};

use super::{Place, get, main_client, published, start, status_of};

pub(super) const DAY_S: i32 = 86_400;

pub(super) fn claimed(http: &mut Http) -> Option<Value> {
    let reply = http.post("/claim", &json!({})).expect("the server answers");
    (reply.status == 200).then(|| reply.json())
}

pub(super) fn fulfilled(http: &mut Http, job: &Value) -> u16 {
    let id = job["id"].as_str().expect("a job has an id");
    let body = json!({"claim_token": job["claim_token"]});
    let reply = http.post(&format!("/fulfill/{id}"), &body);
    reply.expect("the server answers").status
}

fn wall_s(server: &Server) -> f64 {
    let health = get(&mut server.http(), "/health").json();
    health["ts"].as_f64().expect("health tells the time")
}

#[test]
fn a_day_s_jump_of_the_wall_clock_ends_no_lease_and_loses_nothing() {
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let server = start(&shim.under(place.options(), "consign.db"));
    let mut http = main_client(&server);
    let true_s = wall_s(&server);
    for jump_s in [DAY_S, -DAY_S] {
        let held = published(&mut http, "held");
        let job = claimed(&mut http).expect("there is one to claim");
        shim.move_clock(jump_s.into()).expect("the shim listens");
        let moved_s = wall_s(&server) - true_s;
        assert!(
            (moved_s - f64::from(jump_s)).abs() < 60.0,
            "the clock moved by {moved_s}"
        );
        // Long enough for one tick of the timekeeper.
        std::thread::sleep(Duration::from_millis(1_300));
        assert_eq!(status_of(&mut http, &held), "claimed");
        assert!(claimed(&mut http).is_none(), "a lease ended by the jump");
        let waiting = published(&mut http, "waiting");
        assert_eq!(fulfilled(&mut http, &job), 200, "its holder lost it");
        let next = claimed(&mut http).expect("work goes on");
        assert_eq!(next["id"], waiting.as_str());
        assert_eq!(fulfilled(&mut http, &next), 200);
    }
}
