//! The metrics of Beam after traffic of each kind.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use consign_testkit::process::Server;
use serde_json::json;

use super::beam_world::{
    BeamAgent, INTENT, alice_and_bob, beam_error, beam_options, relay_once, send,
};
use super::{Place, start};

/// A sample of `/metrics`. Its labels are in the order in which they are printed.
#[track_caller]
fn sample(server: &Server, series: &str) -> f64 {
    let metrics = server
        .admin_client()
        .unwrap()
        .get("/metrics")
        .unwrap()
        .text();
    let mut lines = metrics.lines();
    let found = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let found = found.unwrap_or_else(|| panic!("{series}:\n{metrics}"));
    found.parse().unwrap()
}

#[track_caller]
fn assert_samples(server: &Server, expected: &[(&str, f64)]) {
    for (series, number) in expected {
        let found = sample(server, series);
        assert!((found - number).abs() < f64::EPSILON, "{series} {found}");
    }
}

#[test]
fn metrics_count_relays_attempts_of_the_bus_and_calls_to_endpoints() {
    let place = Place::new();
    // Nothing listens on port 1.
    let options = beam_options(&place).env("BEAM_ALLOW_TARGETS", "127.0.0.1:1");
    let mut server = start(&options);
    let (alice, bob) = alice_and_bob(&server);
    let none = [
        (
            r#"consign_beam_relayed_total{path="http",outcome="success"}"#,
            0.0,
        ),
        ("consign_beam_relay_seconds_count", 0.0),
        (
            r#"consign_beam_bus_attempts_total{outcome="dead_letter"}"#,
            0.0,
        ),
        (
            r#"consign_beam_endpoint_calls_total{outcome="unreachable"}"#,
            0.0,
        ),
    ];
    assert_samples(&server, &none);

    relay_once(&server, (&alice, &bob), "n-1");
    let mut http = server.http();
    let repeated = send(&mut http, &alice.message(&bob, "n-1"));
    assert_eq!(repeated.status, 200, "{}", repeated.text());
    let offline = send(&mut http, &alice.message(&bob, "n-2"));
    assert_eq!(beam_error(&offline), (503, "OFFLINE".to_owned()));
    let refused = send(&mut http, &bob.message(&alice, "n-3"));
    assert_eq!(beam_error(&refused), (403, "FORBIDDEN".to_owned()));
    let mut socket = alice.connect(&server);
    let frame = alice.message(&bob, "n-4");
    socket
        .send_json(&json!({"type": "intent", "frame": frame}))
        .unwrap();
    assert_eq!(socket.next_json().unwrap()["errorCode"], "OFFLINE");
    // The bus has no key of Alice, so the directory refuses the message for good.
    let message = json!({
        "from": alice.beam_id, "to": bob.beam_id, "intent": INTENT, "payload": {"message": "hello"},
    });
    let dead = http.post("/v1/beam/send", &message).unwrap();
    assert_eq!(dead.json()["status"], "dead_letter", "{}", dead.text());
    let carol = BeamAgent::new("carol", 3);
    let mut registration = carol.registration();
    registration["httpEndpoint"] = json!("http://127.0.0.1:1/intents");
    let registered = http.post("/agents/register", &registration).unwrap();
    assert_eq!(registered.status, 201, "{}", registered.text());
    carol.accept_from(&mut http, &alice.beam_id);
    let unreached = send(&mut http, &alice.message(&carol, "n-5"));
    assert_eq!(beam_error(&unreached), (503, "OFFLINE".to_owned()));

    assert_samples(
        &server,
        &[
            (
                r#"consign_beam_relayed_total{path="http",outcome="success"}"#,
                1.0,
            ),
            (
                r#"consign_beam_relayed_total{path="http",outcome="repeated"}"#,
                1.0,
            ),
            (
                r#"consign_beam_relayed_total{path="http",outcome="offline"}"#,
                2.0,
            ),
            (
                r#"consign_beam_relayed_total{path="http",outcome="refused"}"#,
                1.0,
            ),
            (
                r#"consign_beam_relayed_total{path="websocket",outcome="offline"}"#,
                1.0,
            ),
            (
                r#"consign_beam_relayed_total{path="bus",outcome="refused"}"#,
                1.0,
            ),
            (
                r#"consign_beam_relayed_total{path="federation",outcome="success"}"#,
                0.0,
            ),
            (
                r#"consign_beam_bus_attempts_total{outcome="dead_letter"}"#,
                1.0,
            ),
            (
                r#"consign_beam_bus_attempts_total{outcome="delivered"}"#,
                0.0,
            ),
            (
                r#"consign_beam_endpoint_calls_total{outcome="unreachable"}"#,
                1.0,
            ),
            // One success and three that were offline; refusals and repetitions have no time.
            ("consign_beam_relay_seconds_count", 4.0),
            (r#"consign_beam_relay_seconds_bucket{le="+Inf"}"#, 4.0),
        ],
    );
    let sum = sample(&server, "consign_beam_relay_seconds_sum");
    assert!(sum > 0.0 && sum < 60.0, "{sum}");

    // The counters are those of one start.
    server.kill9().unwrap();
    assert_samples(&start(&options), &none);
}
