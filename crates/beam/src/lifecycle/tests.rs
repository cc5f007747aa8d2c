//! States, pairs, buckets, filters and legacy words, against tables written out here.

use std::collections::BTreeSet;

use State::{Acked, DeadLetter, Delivered, Dispatched, Failed, Queued, Received, Validated};
use serde_json::{Map, Value, json};

use super::legacy::{TraceMigration, migrate_trace, normalise_status, status_of_row};
use super::*;

const WORDS: [(&str, State); 8] = [
    ("received", Received),
    ("validated", Validated),
    ("queued", Queued),
    ("dispatched", Dispatched),
    ("delivered", Delivered),
    ("acked", Acked),
    ("failed", Failed),
    ("dead_letter", DeadLetter),
];

/// A row per earlier state, a column per next state in the order of [`WORDS`]. `b` is legal on the bus only.
const PAIRS: [(Option<State>, &str); 9] = [
    (None, "y-------"),
    (Some(Received), "yyyb--yy"),
    (Some(Validated), "-yyy--yy"),
    (Some(Queued), "--yy--yy"),
    (Some(Dispatched), "--yyy-yy"),
    (Some(Delivered), "--y-yyyy"),
    (Some(Acked), "-----y--"),
    (Some(Failed), "--y---y-"),
    (Some(DeadLetter), "--y----y"),
];

fn pairs() -> impl Iterator<Item = (Option<State>, State, char)> {
    PAIRS.into_iter().flat_map(|(from, row)| {
        assert_eq!(row.len(), WORDS.len());
        row.chars()
            .zip(WORDS)
            .map(move |(mark, (_, to))| (from, to, mark))
    })
}

fn legal_pairs(profile: ProfileId) -> Vec<(Option<State>, State)> {
    pairs()
        .map(|(from, to, _)| (from, to))
        .filter(|(from, to)| profile.profile().joins(*from, *to))
        .collect()
}

#[test]
fn be_001_there_are_exactly_eight_state_words() {
    let words: Vec<&str> = State::ALL.iter().map(|state| state_word(*state)).collect();
    assert_eq!(words, WORDS.map(|(word, _)| word));
    for (word, state) in WORDS {
        assert_eq!(parse_state(word), Some(state));
        let bus = ProfileId::BeamBus.profile();
        assert_eq!(bus.word(state, Cause::None), Some(word));
    }
    for word in [
        "",
        "Received",
        "ACKED",
        "dead-letter",
        "deadletter",
        "pending",
    ] {
        assert_eq!(parse_state(word), None, "{word}");
    }
}

#[test]
fn be_002_every_pair_of_states_is_legal_or_not_as_the_table_says() {
    assert_eq!(pairs().count(), 72);
    for (from, to, mark) in pairs() {
        let found = ProfileId::BeamDirectory.profile().joins(from, to);
        assert_eq!(found, mark == 'y', "{from:?} to {to:?}");
        let checked = check_transition(TransitionContext::Intent, from, to);
        assert_eq!(checked.is_ok(), mark == 'y', "{from:?} to {to:?}");
    }
    assert_eq!(legal_pairs(ProfileId::BeamDirectory).len(), 30);
}

#[test]
fn be_003_the_bus_adds_only_received_to_dispatched() {
    let of_directory: BTreeSet<_> = legal_pairs(ProfileId::BeamDirectory).into_iter().collect();
    let of_bus: BTreeSet<_> = legal_pairs(ProfileId::BeamBus).into_iter().collect();
    assert_eq!(of_bus.len(), 31);
    assert!(of_bus.is_superset(&of_directory));
    let added: Vec<_> = of_bus.difference(&of_directory).collect();
    assert_eq!(added, [&(Some(Received), Dispatched)]);
    for context in [
        TransitionContext::Message,
        TransitionContext::StoredMessage { id: "1".into() },
    ] {
        check_transition(context, Some(Received), Dispatched).unwrap();
    }
}

#[test]
fn be_004_the_error_names_context_and_states() {
    let nonce = || "n-1".to_owned();
    for (context, from, to, expected) in [
        (
            TransitionContext::Intent,
            None,
            Validated,
            "Invalid intent lifecycle transition from start to validated",
        ),
        (
            TransitionContext::IntentLog { nonce: nonce() },
            Some(Received),
            Dispatched,
            "Invalid intent n-1 transition from received to dispatched",
        ),
        (
            TransitionContext::Trace { nonce: nonce() },
            Some(Failed),
            Received,
            "Invalid trace n-1 transition from failed to received",
        ),
        (
            TransitionContext::Message,
            None,
            Queued,
            "Invalid beam message lifecycle transition from start to queued",
        ),
        (
            TransitionContext::StoredMessage {
                id: "8c2d6738".into(),
            },
            Some(DeadLetter),
            Acked,
            "Invalid message 8c2d6738 lifecycle transition from dead_letter to acked",
        ),
    ] {
        let error = check_transition(context, from, to).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn be_005_each_state_is_in_one_bucket() {
    for (bucket, states) in [
        (OutcomeBucket::Success, &[Acked][..]),
        (OutcomeBucket::Error, &[Failed, DeadLetter]),
        (
            OutcomeBucket::InFlight,
            &[Received, Validated, Queued, Dispatched, Delivered],
        ),
    ] {
        for (_, state) in WORDS {
            let is_member = states.contains(&state);
            assert_eq!(OutcomeBucket::of(state) == bucket, is_member, "{state}");
        }
    }
    let words = OutcomeBucket::ALL.map(OutcomeBucket::word);
    assert_eq!(words, ["success", "error", "in_flight"]);
    for (word, state) in WORDS {
        for profile in [ProfileId::BeamDirectory, ProfileId::BeamBus] {
            let terminal = profile.profile().is_terminal(state);
            assert_eq!(is_terminal(state), terminal, "{word}");
        }
        // A bucket is never the word of a state, so it cannot be stored as one.
        assert!(!words.contains(&word));
    }
}

#[test]
fn be_006_acked_is_followed_by_acked_alone() {
    for context in [TransitionContext::Intent, TransitionContext::Message] {
        for (_, next) in WORDS {
            let checked = check_transition(context.clone(), Some(Acked), next);
            assert_eq!(checked.is_ok(), next == Acked, "{next}");
        }
    }
}

#[test]
fn legacy_status_words_mean_states() {
    for (word, expected) in [
        ("pending", Some(Received)),
        ("success", Some(Acked)),
        ("error", Some(Failed)),
        ("expired", Some(DeadLetter)),
        ("queued", Some(Queued)),
        ("in_flight", None),
        ("", None),
    ] {
        assert_eq!(normalise_status(word), expected, "{word}");
        assert_eq!(status_of_row(word), expected.unwrap_or(Received), "{word}");
    }
}

#[test]
fn be_010_legacy_trace_stages_become_states() {
    for (stage, status, expected) in [
        ("sender_lookup", "success", Some(Received)),
        ("sender_lookup", "error", Some(Received)),
        ("dispatch", "pending", Some(Dispatched)),
        ("dispatch", "error", Some(Dispatched)),
        ("delivery", "success", Some(Delivered)),
        ("delivery", "error", Some(Failed)),
        ("delivery", "pending", Some(Dispatched)),
        ("federation.resolve", "success", Some(Dispatched)),
        ("federation.resolve", "error", Some(Failed)),
        ("federation.resolve", "pending", Some(Dispatched)),
        ("federation.relay", "success", Some(Delivered)),
        ("federation.relay", "error", Some(Failed)),
        ("federation.relay", "pending", Some(Dispatched)),
        ("completed", "success", Some(Acked)),
        ("completed", "error", Some(Failed)),
        ("completed", "pending", Some(Failed)),
        ("dedupe", "success", None),
        ("dedupe", "acked", None),
        ("validated", "error", Some(Validated)),
        ("received", "pending", Some(Received)),
        ("expired", "error", Some(DeadLetter)),
        ("success", "error", Some(Acked)),
        ("unheard_of", "success", Some(Acked)),
        ("unheard_of", "queued", Some(Queued)),
        ("unheard_of", "unheard_of", None),
    ] {
        let migration = migrate_trace(stage, status, Some(r#"{"transport":"ws"}"#));
        let wanted = expected.map_or(TraceMigration::Delete, |state| TraceMigration::Becomes {
            state,
            details: object(
                json!({"transport": "ws", "legacyStage": stage, "legacyStatus": status}),
            ),
        });
        assert_eq!(migration, wanted, "{stage} {status}");
    }
}

#[test]
fn be_010_details_that_are_no_object_are_replaced() {
    for details in [None, Some(""), Some("not json"), Some("[1]"), Some("null")] {
        let migration = migrate_trace("dispatch", "success", details);
        let TraceMigration::Becomes { state, details } = migration else {
            panic!("{migration:?}");
        };
        assert_eq!(state, Dispatched);
        let wanted = json!({"legacyStage": "dispatch", "legacyStatus": "success"});
        assert_eq!(details, object(wanted));
    }
}

#[test]
fn be_011_a_migrated_row_is_kept() {
    for stage in [
        "sender_lookup",
        "delivery",
        "completed",
        "validated",
        "error",
        "new",
    ] {
        for status in ["pending", "success", "error", "expired", "acked"] {
            let TraceMigration::Becomes { state, details } = migrate_trace(stage, status, None)
            else {
                panic!("{stage} {status} is a legacy row");
            };
            let word = state_word(state);
            let details = Value::Object(details).to_string();
            let again = migrate_trace(word, word, Some(&details));
            assert_eq!(again, TraceMigration::Keep);
        }
    }
    for (word, state) in WORDS {
        assert_eq!(migrate_trace(word, word, None), TraceMigration::Keep);
        assert_eq!(normalise_status(word), Some(state));
    }
}

#[test]
fn be_152_the_status_filter_accepts_states_buckets_and_legacy_words() {
    let matching = |word: &str| {
        let filter = StatusFilter::parse(word)?;
        let matches = |state: &State| filter.matches(*state);
        Some(State::ALL.iter().copied().filter(matches).collect())
    };
    let in_flight = vec![Received, Validated, Queued, Dispatched, Delivered];
    for (word, expected) in [
        ("all", Some(State::ALL.to_vec())),
        ("", Some(State::ALL.to_vec())),
        ("success", Some(vec![Acked])),
        ("error", Some(vec![Failed, DeadLetter])),
        ("in_flight", Some(in_flight.clone())),
        ("pending", Some(in_flight)),
        ("expired", Some(vec![DeadLetter])),
        ("unheard_of", None),
    ] {
        assert_eq!(matching(word), expected, "{word}");
    }
    for (word, state) in WORDS {
        assert_eq!(matching(word), Some(vec![state]), "{word}");
    }
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(members) = value else {
        panic!("{value} is no object");
    };
    members
}
