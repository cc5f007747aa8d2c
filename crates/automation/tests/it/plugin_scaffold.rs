//! Scaffolded plugins work immediately, and nothing is overwritten.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use consign_automation::plugin::discovery::{DiscoveredPlugin, discover};
use consign_automation::plugin::outcome::{FailureReason, PluginOutcome, classify};
use consign_automation::plugin::request::{PluginEvent, PluginRequest};
use consign_automation::plugin::response::{EmittedEvent, PluginResponse};
use consign_automation::plugin::run::{ProcessSpec, RunLimits};
use consign_automation::plugin::scaffold::{Error, Language, create, plan};
use consign_automation::plugin::trust::Symlinks;
use serde_json::{Map, Value, json};

use crate::plugin_world::{World, environment, failure, finish};

fn made(world: &World, name: &str, language: Language) -> DiscoveredPlugin {
    create(&world.path(""), name, language).unwrap();
    let mut discovery = discover(&[world.path("")], Symlinks::Refuse).unwrap();
    assert_eq!(discovery.notes, []);
    discovery.plugins.remove(name).unwrap()
}

fn request(command: &str, state: Map<String, Value>) -> PluginRequest {
    let emitted = EmittedEvent {
        kind: "file.changed".to_owned(),
        payload: json!({"command": "health"}),
        dedupe_key: None,
    };
    let time = "2026-02-08T10:00:00Z".parse().unwrap();
    PluginRequest {
        job_id: "4f0c6b1e".to_owned(),
        plugin: "any".to_owned(),
        command: command.to_owned(),
        config: serde_json::from_value(json!({"command": "sneaky"})).unwrap(),
        state,
        context: Map::new(),
        event: Some(PluginEvent::stamped(
            emitted,
            "s".to_owned(),
            time,
            "e".to_owned(),
        )),
        payload: None,
        deadline_at: time,
    }
}

fn job(entrypoint: &Path, request: Vec<u8>) -> ProcessSpec {
    ProcessSpec {
        entrypoint: entrypoint.to_path_buf(),
        launcher: None,
        environment: environment(),
        request,
        timeout: Duration::from_secs(15),
        limits: RunLimits::default(),
    }
}

async fn answer(
    found: &DiscoveredPlugin,
    command: &str,
    state: Map<String, Value>,
) -> PluginResponse {
    let ended = finish(job(&found.entrypoint, request(command, state).to_line())).await;
    let PluginOutcome::Succeeded(response) = classify(&ended) else {
        panic!("{command}: {ended:?}");
    };
    response
}

#[tokio::test]
async fn a_new_plugin_in_bash_or_python_answers_every_command_that_it_declares_du_027() {
    for language in [Language::Bash, Language::Python] {
        let world = World::new();
        let found = made(&world, "my-plugin_2", language);
        let commands = found.manifest.commands.iter();
        let commands: Vec<_> = commands.map(|command| command.name.as_str()).collect();
        assert_eq!(commands, ["poll", "handle", "health"]);

        let polled = answer(&found, "poll", Map::new()).await;
        assert_eq!(polled.events[0].kind, "my-plugin_2.polled");
        assert_eq!(polled.events[0].payload["job_id"], "4f0c6b1e");
        let handled = answer(&found, "handle", Map::new()).await;
        assert!(handled.result.starts_with("handled"), "{handled:?}");
        assert_eq!(answer(&found, "health", Map::new()).await.result, "healthy");

        let unknown = finish(job(
            &found.entrypoint,
            request("sync", Map::new()).to_line(),
        ))
        .await;
        let unknown = failure(&unknown);
        assert_eq!(unknown.reason, FailureReason::PluginRetryFalse);
        assert!(unknown.error.contains("sync"), "{unknown:?}");
        let old = br#"{"protocol":1,"command":"poll"}"#.to_vec();
        let old = failure(&finish(job(&found.entrypoint, old)).await);
        assert_eq!(old.reason, FailureReason::ExitCode78, "{old:?}");
    }
}

#[tokio::test]
async fn a_new_python_plugin_goes_on_from_its_state() {
    let world = World::new();
    let found = made(&world, "counter", Language::Python);
    let first = answer(&found, "poll", Map::new()).await;
    let second = answer(&found, "poll", first.state_updates).await;
    assert_eq!(second.state_updates["polls"], 2);
}

#[tokio::test]
async fn a_new_rust_plugin_says_how_it_is_built_and_runs_what_was_built() {
    let world = World::new();
    let found = made(&world, "fast", Language::Rust);
    let request = request("health", Map::new()).to_line();
    let unbuilt = failure(&finish(job(&found.entrypoint, request.clone())).await);
    assert_eq!(unbuilt.reason, FailureReason::ExitCode78);
    assert!(
        unbuilt.error.contains("cargo build --release"),
        "{unbuilt:?}"
    );
    let script = "#!/bin/sh\nread line\necho '{\"status\":\"ok\",\"result\":\"built\"}'\n";
    world.file("fast/target/release/plugin", script, 0o755);
    let ended = finish(job(&found.entrypoint, request)).await;
    assert!(matches!(classify(&ended), PluginOutcome::Succeeded(built) if built.result == "built"));
}

#[test]
fn a_plan_is_what_is_written_and_writes_nothing() {
    for language in Language::ALL {
        let world = World::new();
        assert_eq!(Language::named(language.as_str()), Some(language));
        let planned = plan(&world.path(""), "new", language).unwrap();
        assert!(fs::read_dir(world.path("")).unwrap().next().is_none());
        assert_eq!(create(&world.path(""), "new", language).unwrap(), planned);
        for file in planned {
            let mode = fs::metadata(&file.path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, file.mode, "{file:?}");
            assert_eq!(fs::read_to_string(&file.path).unwrap(), file.text);
            assert!(!file.text.contains("{{"), "{file:?}");
        }
        let directory = fs::metadata(world.path("new")).unwrap();
        assert_eq!(directory.permissions().mode() & 0o777, 0o755);
    }
}

#[test]
fn nothing_is_overwritten_and_bad_names_are_refused() {
    let world = World::new();
    let parent = world.path("");
    let refused = |name: &str| create(&parent, name, Language::Bash).unwrap_err();
    let mine = world.file("taken/notes.txt", "mine", 0o644);
    fs::create_dir(world.path("empty")).unwrap();
    symlink("nowhere", world.path("dangling")).unwrap();
    for name in ["taken", "empty", "dangling"] {
        assert!(matches!(refused(name), Error::Exists(_)), "{name}");
    }
    assert_eq!(fs::read_to_string(mine).unwrap(), "mine");
    assert!(fs::read_dir(world.path("empty")).unwrap().next().is_none());

    let long = "a".repeat(65);
    for name in [
        "", ".", "..", "../up", "a/b", "1st", "-x", "a b", "a\nb", "ä", "a.b", &long,
    ] {
        assert!(matches!(refused(name), Error::Name(_)), "{name}");
    }
    let error = plan(&world.path("missing"), "new", Language::Rust).unwrap_err();
    assert!(matches!(error, Error::NoParent(_)));
}
