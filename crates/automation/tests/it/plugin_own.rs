//! The bundled plugins as real processes: their behaviour with good and bad input.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use consign_automation::plugin::discovery::{DiscoveredPlugin, Discovery, discover};
use consign_automation::plugin::outcome::{FailureReason, PluginOutcome, classify};
use consign_automation::plugin::response::PluginResponse;
use consign_automation::plugin::run::{ProcessEnd, ProcessSpec, RunLimits};
use consign_automation::plugin::trust::Symlinks;
use serde_json::{Value, json};

use crate::plugin_world::{World, configured, environment, failure, finish};

mod exec;
mod file_watch;
mod http_check;

fn ours() -> Discovery {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let root = fs::canonicalize(root).unwrap();
    discover(&[root], Symlinks::Refuse).unwrap()
}

fn found(name: &str) -> DiscoveredPlugin {
    ours().plugins[name].clone()
}

/// `members` replace those of a minimal valid request.
fn job(found: &DiscoveredPlugin, command: &str, members: &Value) -> ProcessSpec {
    let mut request = json!({
        "protocol": 2, "job_id": "j", "command": command, "config": {}, "state": {}, "context": {},
        "deadline_at": "2026-02-08T10:00:00Z",
    });
    for (name, value) in members.as_object().unwrap() {
        request[name] = value.clone();
    }
    ProcessSpec {
        entrypoint: found.entrypoint.clone(),
        launcher: None,
        environment: environment(),
        request: request.to_string().into_bytes(),
        timeout: Duration::from_secs(20),
        limits: RunLimits::default(),
    }
}

async fn run(name: &str, command: &str, members: Value) -> ProcessEnd {
    finish(job(&found(name), command, &members)).await
}

fn succeeded(ended: &ProcessEnd) -> PluginResponse {
    let PluginOutcome::Succeeded(response) = classify(ended) else {
        panic!("{ended:?}");
    };
    response
}

async fn ask(name: &str, command: &str, members: Value) -> PluginResponse {
    succeeded(&run(name, command, members).await)
}

/// The error of a request that is not retryable.
async fn refused(name: &str, command: &str, members: Value) -> String {
    let failure = failure(&run(name, command, members).await);
    assert_eq!(failure.reason, FailureReason::ExitCode78, "{failure:?}");
    failure.error
}

#[test]
fn they_are_found_without_a_note_and_their_pages_name_every_key() {
    let discovery = ours();
    assert_eq!(discovery.notes, []);
    let names: Vec<_> = discovery.plugins.keys().map(String::as_str).collect();
    assert_eq!(names, ["exec", "file-watch", "http-check"]);
    for found in discovery.plugins.values() {
        let page = fs::read_to_string(found.directory.join("README.md")).unwrap();
        let manifest = &found.manifest;
        let keys = manifest
            .config_required
            .iter()
            .chain(&manifest.config_optional);
        let emitted = manifest.commands.iter().flat_map(|command| &command.emits);
        for word in keys.chain(emitted.map(|emitted| &emitted.event)) {
            assert!(
                page.contains(&format!("| `{word}` |")),
                "{}: {word}",
                manifest.name
            );
        }
    }
}

#[test]
fn the_examples_of_their_pages_are_configurations_that_load() {
    for found in ours().plugins.values() {
        let page = fs::read_to_string(found.directory.join("README.md")).unwrap();
        let (_, example) = page.split_once("```yaml\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let world = World::new();
        let config = configured(&world, &format!("plugin_roots: [plugins]\n{example}")).unwrap();
        assert_eq!((config.plugins.len(), config.pipelines.len()), (1, 1));
        let (name, plugin) = config.plugins.iter().next().unwrap();
        assert_eq!(plugin.uses.as_ref().unwrap_or(name), &found.manifest.name);
        let manifest = &found.manifest;
        for key in plugin.config.keys() {
            let is_known =
                manifest.config_required.contains(key) || manifest.config_optional.contains(key);
            assert!(is_known, "{key}");
        }
    }
}

#[test]
fn the_page_on_confinement_shows_a_configuration_that_confines() {
    let page = fs::read_to_string(found("exec").directory.join("../README.md")).unwrap();
    let (_, example) = page.split_once("```yaml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let world = World::new();
    let config = configured(&world, &format!("plugin_roots: [plugins]\n{example}")).unwrap();
    let confinement = &config.plugins["file-watch"].confinement;
    assert_eq!(confinement.limits.memory_bytes, Some(512 << 20));
    assert_eq!(confinement.sandbox.as_ref().unwrap().write.len(), 1);
}

#[tokio::test]
async fn null_absent_and_odd_members_are_answered_and_never_break_them() {
    let odd = [Value::Null, json!({}), json!([]), json!("x"), json!(7)];
    let inner =
        json!({"urls": null, "paths": [null], "command": [7], "files": [1], "checks": {"u": 1}});
    for (name, found) in ours().plugins {
        for command in ["poll", "handle", "health"] {
            for value in odd.iter().chain([&inner]) {
                let members = json!({
                    "config": value, "state": value, "context": value, "event": value, "payload": value,
                });
                let ended = finish(job(&found, command, &members)).await;
                let text = ended.stderr.text();
                assert_eq!(text, "", "{name} {command} {members}");
                if let PluginOutcome::Failed(failure) = classify(&ended) {
                    assert_eq!(
                        failure.reason,
                        FailureReason::ExitCode78,
                        "{name} {command}: {failure:?}"
                    );
                }
            }
        }
        let absent = br#"{"protocol":2,"command":"poll"}"#.to_vec();
        let ended = finish(ProcessSpec {
            request: absent,
            ..job(&found, "poll", &json!({}))
        })
        .await;
        assert_eq!(failure(&ended).reason, FailureReason::ExitCode78, "{name}");
    }
}
