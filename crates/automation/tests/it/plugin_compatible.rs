//! Plugins as they exist in practice, loaded and run unchanged.

use std::collections::BTreeMap;
use std::time::Duration;

use consign_automation::plugin::command::CommandAccess;
use consign_automation::plugin::discovery::{Weight, discover};
use consign_automation::plugin::outcome::{FailureReason, PluginOutcome, classify, warnings};
use consign_automation::plugin::registry::{Declaration, RegisteredPlugin, register};
use consign_automation::plugin::run::{ProcessEnd, ProcessSpec, RunLimits};
use consign_automation::plugin::trust::Symlinks;
use serde_json::{Value, json};

use crate::plugin_world::{World, environment, failure, finish};

/// A list of commands, flow and block style mixed, comments, a schema in each form, and keys of later versions.
const LIST_MANIFEST: &str = r#"---
# yaml-language-server: $schema=./manifest.schema.json
manifest_spec: "ductile.plugin"
manifest_version: 1
name: weather
version: "0.3.1"
protocol: 2
entrypoint: ./run.sh
description: >
  Fetches the weather
  and tells when it turns.
homepage: https://example.org/weather
commands:
  - name: poll
    type: read
    description: "Fetch: the current weather"
    output_schema: {temperature: number, place: string}
    values:
      emit:
        - {event: "<configured event_type>", values: [payload.temperature, payload.place]}
  - name: handle
    type: write
    input_schema:
      type: object
      properties:
        place: {type: string}
    timeout_hint: 30s
config_keys:
  required: [place]
  optional:
    - units
"#;

/// A map of commands, some of them empty, and facts.
const MAP_MANIFEST: &str = "
manifest_spec: ductile.plugin
manifest_version: 1
name: inbox
version: 2.0
protocol: 2
entrypoint: run.py
concurrency_safe: no
commands:
  poll: {type: read}
  handle:
  oauth_callback: {type: write, idempotent: false}
  health: {}
config_keys:
fact_outputs:
  - when: {command: poll}
    from: state_updates
    fact_type: inbox.snapshot
    compatibility_view: mirror_object
";

/// Prints JSON over several lines, logs to standard error, and takes its request apart with text tools.
const BASH: &str = r#"#!/usr/bin/env bash
set -u
echo "[weather] $(date -u +%H:%M:%S) starting" >&2
input="$(cat)"
command=$(echo "$input" | sed -n 's/.*"command": *"\([a-z_]*\)".*/\1/p')
case "$command" in
  poll)
    cat <<EOF

{
  "status": "ok",
  "result": "12 degrees",
  "events": [
    {
      "type": "weather.turned",
      "payload": { "temperature": 12, "place": "Ulm" },
      "dedupe_key": "weather:Ulm:12"
    }
  ],
  "state_updates": { "last": 12 },
  "logs": [ { "level": "info", "message": "asked once" } ]
}

EOF
    ;;
  *)
    echo "[weather] do not know $command" >&2
    printf '{\n\t"status": "error",\n\t"error": "unsupported",\n\t"retry": false,\n\t"events": [{"type": "weather.failed", "payload": {}}],\n\t"state_updates": {"last": null}\n}\n'
    exit 1
    ;;
esac
"#;

/// Expects that fields may be null or absent, and responds with extra fields.
const PYTHON: &str = r#"#!/usr/bin/env python3
import json, sys
req = json.loads(sys.stdin.read())
cfg = req.get("config") or {}
state = req.get("state") or {}
ctx = req.get("context") or {}
event = req.get("event") or {}
sys.stderr.write("warning: something deprecated\n" * 3)
resp = {"protocol": 2, "status": "ok", "result": "seen %d" % state.get("seen", 0), "error": None,
        "retry": None, "logs": None, "events": None, "state_updates": None,
        "ductile_stopwatch_subs": [{"name": "fetch", "ms": 3}], "debug": {"cfg": sorted(cfg), "ctx": sorted(ctx)}}
if req["command"] == "handle":
    resp["result"] = "event " + str(event.get("type"))
    resp["state_updates"] = {"seen": state.get("seen", 0) + 1}
print(json.dumps(resp, indent=2, ensure_ascii=False))
"#;

fn load(world: &World, config: &Value) -> BTreeMap<String, RegisteredPlugin> {
    let discovery = discover(&[world.path("plugins")], Symlinks::Refuse).unwrap();
    let skipped = discovery.notes.iter();
    let skipped: Vec<_> = skipped
        .filter(|note| note.weight == Weight::Skipped)
        .collect();
    assert!(skipped.is_empty(), "{skipped:?}");
    let declared = |(name, value): (&String, &Value)| {
        let config = value.as_object().cloned().unwrap_or_default();
        let declaration = Declaration {
            config,
            ..Declaration::default()
        };
        (name.clone(), declaration)
    };
    let declarations = config.as_object().unwrap().iter().map(declared).collect();
    let (registry, _) = register(discovery, &declarations).unwrap();
    let plugins = registry.iter();
    plugins
        .map(|plugin| (plugin.name.clone(), plugin.clone()))
        .collect()
}

async fn run(plugin: &RegisteredPlugin, request: &Value) -> ProcessEnd {
    finish(ProcessSpec {
        entrypoint: plugin.entrypoint.clone(),
        launcher: None,
        environment: environment(),
        request: format!("{request}\n").into_bytes(),
        timeout: Duration::from_secs(15),
        limits: RunLimits::default(),
    })
    .await
}

fn world() -> World {
    let world = World::new();
    world.manifest("plugins/weather", LIST_MANIFEST);
    world.file("plugins/weather/run.sh", BASH, 0o755);
    world.manifest("plugins/inbox", MAP_MANIFEST);
    world.file("plugins/inbox/run.py", PYTHON, 0o755);
    world.file("plugins/_lib/common.sh", "# shared\n", 0o644);
    world
}

#[test]
fn both_forms_of_commands_load_with_all_that_is_said_around_them_du_030() {
    let world = world();
    let plugins = load(&world, &json!({"weather": {"place": "Ulm"}}));
    let weather = &plugins["weather"].manifest;
    assert_eq!(weather.version.as_deref(), Some("0.3.1"));
    let poll = weather.command("poll").unwrap();
    assert_eq!(poll.access, CommandAccess::Read);
    assert_eq!(
        poll.output_schema.as_ref().unwrap()["properties"]["place"]["type"],
        "string"
    );
    assert_eq!(poll.emits[0].event, "<configured event_type>");
    assert_eq!(weather.config_optional, ["units"]);

    let inbox = &plugins["inbox"].manifest;
    assert!(!inbox.concurrency_safe);
    assert_eq!(inbox.version.as_deref(), Some("2.0"));
    let accesses: Vec<_> = inbox
        .commands
        .iter()
        .map(|one| (one.name.as_str(), one.access))
        .collect();
    let expected = [
        ("poll", CommandAccess::Read),
        ("handle", CommandAccess::Write),
        ("oauth_callback", CommandAccess::Write),
        ("health", CommandAccess::Write),
    ];
    assert_eq!(accesses, expected);
    assert!(inbox.config_required.is_empty() && inbox.fact_outputs.len() == 1);
}

#[tokio::test]
async fn indented_answers_of_bash_with_noise_on_standard_error_are_taken_du_037() {
    let world = world();
    let plugins = load(&world, &json!({"weather": {"place": "Ulm"}}));
    let ended = run(
        &plugins["weather"],
        &json!({"protocol": 2, "command": "poll"}),
    )
    .await;
    let PluginOutcome::Succeeded(response) = classify(&ended) else {
        panic!("{ended:?}");
    };
    assert_eq!(response.events[0].kind, "weather.turned");
    let payload = json!({"temperature": 12, "place": "Ulm", "result": "12 degrees"});
    assert_eq!(response.events[0].payload, payload);
    assert_eq!(response.state_updates["last"], 12);
    assert!(ended.stderr.text().contains("starting") && warnings(&ended).is_empty());
}

#[tokio::test]
async fn an_error_with_events_and_retry_false_is_an_error_and_nothing_more_du_041() {
    let world = world();
    let plugins = load(&world, &json!({"weather": {"place": "Ulm"}}));
    let ended = run(
        &plugins["weather"],
        &json!({"protocol": 2, "command": "handle"}),
    )
    .await;
    let failure = failure(&ended);
    assert_eq!(failure.reason, FailureReason::PluginRetryFalse);
    assert_eq!(failure.error, "unsupported");
    assert!(!failure.is_retryable());
    assert_eq!(warnings(&ended), ["the plugin exited with code 1"]);
}

#[tokio::test]
async fn null_and_absent_members_pass_in_both_directions_du_037() {
    let world = world();
    let plugins = load(&world, &json!({"weather": {"place": "Ulm"}}));
    let inbox = &plugins["inbox"];
    for request in [
        json!({"protocol": 2, "command": "poll", "config": null, "state": null, "context": null}),
        json!({"command": "poll"}),
    ] {
        let ended = run(inbox, &request).await;
        let PluginOutcome::Succeeded(response) = classify(&ended) else {
            panic!("{ended:?}");
        };
        assert_eq!(response.result, "seen 0");
        assert!(response.events.is_empty() && response.state_updates.is_empty());
    }
    let event = json!({"command": "handle", "event": {"type": "mail.came"}, "state": {"seen": 4}});
    let ended = run(inbox, &event).await;
    let PluginOutcome::Succeeded(response) = classify(&ended) else {
        panic!("{ended:?}");
    };
    assert_eq!(
        (response.result.as_str(), &response.state_updates["seen"]),
        ("event mail.came", &json!(5))
    );
}

#[tokio::test]
async fn a_missing_interpreter_is_told_and_leaves_the_others_alone_du_038() {
    let world = world();
    world.manifest("plugins/odd", &MAP_MANIFEST.replace("inbox", "odd"));
    world.file(
        "plugins/odd/run.py",
        "#!/opt/no/such/venv/bin/python3\n",
        0o755,
    );
    world.manifest("plugins/env", &MAP_MANIFEST.replace("inbox", "env"));
    world.file(
        "plugins/env/run.py",
        "#!/usr/bin/env no-such-runtime\n",
        0o755,
    );
    let plugins = load(&world, &json!({"weather": {"place": "Ulm"}}));
    assert_eq!(plugins.len(), 4);
    let request = json!({"protocol": 2, "command": "poll"});
    let odd = failure(&run(&plugins["odd"], &request).await);
    assert_eq!(odd.reason, FailureReason::SpawnError);
    assert!(odd.error.contains("interpreter"), "{odd:?}");
    let env = failure(&run(&plugins["env"], &request).await);
    assert_eq!(env.reason, FailureReason::NilResponse);
    assert!(env.error.contains("no-such-runtime"), "{env:?}");
    let inbox = run(&plugins["inbox"], &request).await;
    assert!(matches!(classify(&inbox), PluginOutcome::Succeeded(_)));
}
