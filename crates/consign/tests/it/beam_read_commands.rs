//! The commands that show intents, figures, errors and the statistics of the bus.

use std::process::Output;

use serde_json::{Value, json};

use super::beam_commands::done;
use super::beam_world::{
    INTENT, OPERATOR, alice_and_bob, beam_error, beam_options, relay_once, send,
};
use super::{Place, code, printed, start, text};

fn by_operator(place: &Place, args: &[&str]) -> Output {
    place.consign(&[&["message"], args, &["--email", OPERATOR]].concat())
}

/// A line that begins with the first words and contains the second text after them. Words may be apart by several spaces.
#[track_caller]
fn has_words(shown: &str, begins: &str, contains: &str) {
    let is_it = |line: &str| {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        words
            .strip_prefix(begins)
            .is_some_and(|rest| rest.contains(contains))
    };
    assert!(shown.lines().any(is_it), "{begins} … {contains}:\n{shown}");
}

#[test]
fn intents_figures_and_errors_are_shown_by_command() {
    let place = Place::new();
    let server = start(&beam_options(&place));
    let (alice, bob) = alice_and_bob(&server);
    let none = by_operator(&place, &["list"]);
    assert_eq!(
        (done(&none).as_str(), text(&none.stderr).as_str()),
        ("", "no intents\n")
    );
    relay_once(&server, (&alice, &bob), "n-1");
    for nonce in ["n-2", "n-3"] {
        let offline = send(&mut server.http(), &alice.message(&bob, nonce));
        assert_eq!(beam_error(&offline), (503, "OFFLINE".to_owned()));
    }

    let listed = done(&by_operator(&place, &["list"]));
    has_words(&listed, "n-1 acked", INTENT);
    has_words(&listed, "n-2 failed", "OFFLINE");
    let found = |filter: &[&str]| -> Vec<String> {
        let args = [&["list", "--json"], filter].concat();
        let found = printed(&by_operator(&place, &args));
        let intents = found["intents"].as_array().unwrap().iter();
        intents
            .map(|intent| super::word(&intent["nonce"]))
            .collect()
    };
    for (filter, nonces) in [
        (&["--status", "acked"][..], &["n-1"][..]),
        (&["--status", "error"], &["n-3", "n-2"]),
        (
            &["--error-code", "OFFLINE", "--hours", "1"],
            &["n-3", "n-2"],
        ),
        (&["--query", "N-3"], &["n-3"]),
        (&["--sender", &bob.beam_id], &[]),
        (
            &[
                "--sender",
                &alice.beam_id,
                "--recipient",
                &bob.beam_id,
                "--intent",
                INTENT,
            ],
            &["n-3", "n-2", "n-1"],
        ),
        (&["--intent", "agent.ping"], &[]),
    ] {
        assert_eq!(found(filter), nonces, "{filter:?}");
    }
    let one = by_operator(&place, &["list", "--limit", "1"]);
    has_words(&done(&one), "n-3 failed", "OFFLINE");
    assert_eq!(text(&one.stderr), "1 of 3 intents; more with --limit\n");

    let overview = done(&by_operator(&place, &["overview"]));
    for (name, value) in [
        ("intents", "3"),
        ("success", "1"),
        ("error", "2"),
        ("agents", "2"),
    ] {
        has_words(&overview, name, value);
    }
    has_words(&overview, &format!("{INTENT} 3 2"), "");
    has_words(&overview, "OFFLINE 2", "Z");
    let overview = printed(&by_operator(
        &place,
        &["overview", "--hours", "2", "--json"],
    ));
    assert_eq!(
        (
            &overview["windowHours"],
            &overview["summary"]["totalIntents"]
        ),
        (&json!(2), &json!(3))
    );
    let errors = done(&by_operator(&place, &["errors"]));
    has_words(&errors, "errors", "2");
    has_words(&errors, "offline", "2");
    has_words(&errors, "OFFLINE 2", "1 1");
    has_words(&errors, &alice.beam_id, &format!("{} 2", bob.beam_id));
    let errors = printed(&by_operator(&place, &["errors", "--json"]));
    assert_eq!(errors["summary"]["offlineCount"], 2);

    for command in ["list", "overview", "errors"] {
        let refused = place.consign(&["message", command]);
        assert_eq!(code(&refused), 4, "{command}");
        let told = text(&refused.stderr);
        assert!(
            told.contains("UNAUTHORIZED") && told.contains("--email"),
            "{told}"
        );
        let args = [command, "--hours", "2161"];
        assert_eq!(code(&by_operator(&place, &args)), 2, "{command}");
    }
}

#[test]
fn messages_of_the_bus_are_counted_by_command() {
    let place = Place::new();
    let server = start(&beam_options(&place));
    let (alice, bob) = alice_and_bob(&server);
    let message = json!({
        "from": alice.beam_id, "to": bob.beam_id, "intent": INTENT, "payload": {"message": "hello"},
    });
    for _ in 0..2 {
        let dead = server.http().post("/v1/beam/send", &message).unwrap();
        assert_eq!(dead.json()["status"], "dead_letter", "{}", dead.text());
    }
    let shown = done(&place.consign(&["message", "stats"]));
    for (begins, contains) in [
        ("messages", "2"),
        ("dead letters", "2"),
        ("delivered", "0"),
        ("last 24 hours", "2"),
    ] {
        has_words(&shown, begins, contains);
    }
    has_words(&shown, &format!("{} 2 0", alice.beam_id), "");
    has_words(&shown, &format!("{} 0 2", bob.beam_id), "");
    let stats: Value = printed(&place.consign(&["message", "stats", "--json"]));
    assert_eq!(
        (&stats["total"], &stats["dead_letter"]),
        (&json!(2), &json!(2))
    );
}
