//! Plugins: an accepted manifest satisfies its rules, and a refused one has a reason.

use std::time::Duration;

use consign_automation::plugin::capture::Captured;
use consign_automation::plugin::manifest::{MANIFEST_BYTES_MAX, parse};
use consign_automation::plugin::outcome::{FailureReason, PluginOutcome, classify};
use consign_automation::plugin::response::{self, PluginReply};
use consign_automation::plugin::run::{ExitKind, ProcessEnd};
use serde_json::{Map, Value, json};

pub(crate) fn manifest(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    assert!(text.len() as u64 <= MANIFEST_BYTES_MAX);
    let parsed = match parse(text) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let found = parsed.manifest;
    assert!(!found.name.trim().is_empty() && !found.entrypoint.trim().is_empty());
    assert!(!found.commands.is_empty());
    assert!((1..=256).contains(&found.stopwatch_subs_max));
    for (index, command) in found.commands.iter().enumerate() {
        let name = &command.name;
        assert!(name.starts_with(|first: char| first.is_ascii_alphabetic()));
        let first = found.commands.iter().position(|other| other.name == *name);
        assert_eq!(first, Some(index), "`{name}` stands there twice");
        for schema in [&command.input_schema, &command.output_schema]
            .into_iter()
            .flatten()
        {
            let is_whole = schema.get("type").is_some() || schema.is_boolean();
            assert!(is_whole, "{schema} was not written out");
        }
    }
    for fact in &found.fact_outputs {
        assert!(found.command(&fact.command).is_some() && !fact.fact_type.trim().is_empty());
    }
}

pub(crate) fn answer(bytes: &[u8]) {
    let ended = ProcessEnd {
        how: ExitKind::Exited(std::process::ExitStatus::default()),
        stdout: Captured {
            bytes: bytes.to_vec(),
            is_truncated: false,
        },
        stderr: Captured::default(),
        elapsed: Duration::ZERO,
    };
    let outcome = classify(&ended);
    match response::parse(bytes) {
        Ok(PluginReply::Ok(found)) => {
            assert!(!found.result.trim().is_empty());
            for event in &found.events {
                assert!(!event.kind.trim().is_empty());
                assert!(
                    event
                        .dedupe_key
                        .as_ref()
                        .is_none_or(|key| !key.trim().is_empty())
                );
                if let Value::Object(payload) = &event.payload {
                    assert!(payload.contains_key("result"));
                }
            }
            same_again(&found);
            assert!(matches!(outcome, PluginOutcome::Succeeded(taken) if taken == found));
        }
        Ok(PluginReply::Error(refusal)) => {
            assert!(!refusal.error.trim().is_empty());
            let reason = outcome.reason().expect("a refusal is a failure");
            assert_eq!(reason.is_retryable(), refusal.retry);
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let reason = outcome.reason().expect("what is no answer is a failure");
            assert!(matches!(
                reason,
                FailureReason::NilResponse | FailureReason::Protocol
            ));
            assert!(reason.is_retryable());
        }
    }
}

/// Serialises the parsed value and parses it again.
fn same_again(found: &response::PluginResponse) {
    let events = found.events.iter().map(|event| {
        let mut members = Map::new();
        members.insert("type".to_owned(), json!(event.kind));
        members.insert("payload".to_owned(), event.payload.clone());
        members.insert("dedupe_key".to_owned(), json!(event.dedupe_key));
        Value::Object(members)
    });
    let written = json!({
        "status": "ok",
        "result": found.result,
        "events": events.collect::<Vec<_>>(),
        "state_updates": found.state_updates,
    });
    let Ok(PluginReply::Ok(again)) = response::parse(written.to_string().as_bytes()) else {
        panic!("{written} was an answer");
    };
    assert_eq!(again.events, found.events);
    assert_eq!(again.state_updates, found.state_updates);
    assert_eq!(again.result, found.result);
}
