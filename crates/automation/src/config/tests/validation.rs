//! What is refused, what causes a warning, and the positions in messages.

use super::*;
use crate::config::model::EndpointTarget;

#[test]
fn a_tick_that_is_too_short_is_refused_du_010() {
    refused(
        "service:\n  tick_interval: 99ms",
        "Error config.yaml:2: `service.tick_interval` is below 100ms; choose 100ms or more",
    );
    refused("service: {tick_interval: 0s}", "below 100ms");
    warned(
        "service: {tick_interval: 100ms}",
        "Warning config.yaml:1: `service.tick_interval` is below one second",
    );
    refused(
        "service: {tick_interval: 60}",
        "`service.tick_interval`: `60` is not a duration",
    );
}

#[test]
fn jobs_are_kept_at_least_as_long_as_duplicates_count_du_011() {
    refused(
        "service:\n  dedupe_ttl: 2d\n  job_queue_retention: 47h",
        "Error config.yaml:3: `service.job_queue_retention` is shorter",
    );
    refused("service: {dedupe_ttl: 2d}", "is shorter");
    World::new("service: {dedupe_ttl: 2d, job_queue_retention: 48h}").config();
}

#[test]
fn a_plugin_cannot_have_more_workers_than_there_are_du_012() {
    let two = "service: {max_workers: 2}\nplugins:\n  p:\n    parallelism:";
    refused(
        &format!("{two} 3"),
        "Error config.yaml:4: `plugins.p.parallelism` is greater than the 2",
    );
    refused(
        &format!("{two} 0"),
        "`plugins.p.parallelism` must be a whole number of at least 1",
    );
    assert_eq!(
        World::new(&format!("{two} 2")).config().plugins["p"].parallelism,
        Some(2)
    );
    refused(
        "service: {max_workers: 0}",
        "`service.max_workers` must be a whole number of at least 1",
    );
    refused(
        "service: {hook_max_depth: -1}",
        "`service.hook_max_depth` must be",
    );
}

#[test]
fn the_old_schedule_is_refused_with_a_hint_du_013() {
    refused(
        "plugins:\n  p:\n    schedule: {every: 5m}",
        "Error config.yaml:3: `plugins.p.schedule` is no longer read; use `schedules:`",
    );
}

#[test]
fn unknown_keys_are_warned_of_and_refused_when_strict_du_014() {
    let text = "log_level: debug\nservice:\n  max_worker: 2\nplugins: {p: {retry: {attempts: 3}}}";
    let problems = World::new(text).problems();
    let expected = "Warning config.yaml:3: unknown key `service.max_worker`; did you mean `max_workers`?\nWarning config.yaml:4: unknown key `plugins.p.retry.attempts`\nWarning config.yaml:1: unknown key `log_level`";
    assert_eq!(problems, expected);
    warned(text, "log_level");
    refused(
        "x: 1\nservice: {strict_mode: true}",
        "Error config.yaml:1: unknown key `x`",
    );
    refused(
        "x: 1\nservice: {admission: {validate_config_on_boot: true}}",
        "Error config.yaml:1: unknown key `x`",
    );
    warned(
        "x: 1\nservice: {strict_mode: true, admission: {fail_on_drift: true}}",
        "unknown key `x`",
    );
    let quiet = "workspace: {a: 1}\ntcc_paths: [x]\nservice: {unconfined: true}\napi: {management_socket: s}\nplugins: {p: {run_as: u}}";
    assert_eq!(World::new(quiet).problems(), "");
    warned("secrets: {a: b}", "`secrets` is not supported");
    warned("plugins: {p: {path: ./p}}", "`plugins.p.path` is ignored");
}

#[test]
fn routes_and_webhooks_need_a_configured_plugin_du_016() {
    let plugins = "tokens: [{name: s, key: v}]\nplugins: {withings: {}, off: {enabled: false}}";
    refused(
        &format!("{plugins}\nroutes:\n  - {{from: withings, event_type: e, to: analyser}}"),
        "Error config.yaml:4: `routes[0].to` names `analyser`, which is not in `plugins`",
    );
    refused(
        &format!("{plugins}\nroutes: [{{from: withing, event_type: e, to: off}}]"),
        "did you mean `withings`?",
    );
    refused(
        &format!("{plugins}\nroutes: [{{from: withings, to: off}}]"),
        "`routes[0].event_type` is missing",
    );
    let hook = |rest: &str| format!("{plugins}\nwebhooks: {{endpoints: [{{path: /a, {rest}}}]}}");
    refused(
        &hook("plugin: x, secret_ref: s, signature_header: X"),
        "`webhooks.endpoints[0].plugin` names `x`",
    );
    refused(
        &hook("plugin: off, signature_header: X"),
        "`webhooks.endpoints[0].secret_ref` is missing",
    );
    refused(
        &hook("plugin: off, secret_ref: s"),
        "signature_header` is missing",
    );
    refused(
        &hook("plugin: off, secret_ref: t, signature_header: X"),
        "names the secret `t`, which `tokens` does not have",
    );
    let fine = format!("{plugins}\nroutes: [{{from: withings, event_type: e, to: off}}]");
    assert_eq!(
        World::new(&fine).config().routes[0].json()["event_type"],
        "e"
    );
}

#[test]
fn webhooks_load_in_both_forms_du_015() {
    let endpoint =
        "{path: /a, plugin: p, secret_ref: s, signature_header: X-Sig, max_body_size: 2KB}";
    for webhooks in [
        format!("webhooks: {{listen: 'l:1', endpoints: [{endpoint}]}}"),
        format!("webhooks: [{endpoint}]"),
    ] {
        let world =
            World::new("include: [webhooks.yaml]\nplugins: {p: }\ntokens: [{name: s, key: v}]");
        world.put("webhooks.yaml", &webhooks);
        let config = world.config();
        let endpoint = &config.webhooks.as_ref().unwrap().endpoints[0];
        assert_eq!(
            (endpoint.path.as_str(), &endpoint.target),
            ("/a", &EndpointTarget::Plugin("p".to_owned()))
        );
        assert_eq!(
            (endpoint.secret.expose(), endpoint.max_body_bytes),
            ("v", 2048)
        );
        assert_eq!(endpoint.signature_header, "X-Sig");
    }
}

#[test]
fn schedules_have_one_mode_and_an_id_of_their_own_and_never_handle_du_071() {
    let plugin = |schedules: &str| format!("plugins:\n  p:\n    schedules:\n      {schedules}");
    refused(
        &plugin("- {id: a}"),
        "Error config.yaml:4: `plugins.p.schedules[0]` must have exactly one of every, cron, at, after",
    );
    refused(
        &plugin("- {every: 5m, cron: '* * * * *'}"),
        "exactly one of",
    );
    refused(
        &plugin("- {every: 5m}\n      - {every: 6m}"),
        "Error config.yaml:5: `plugins.p.schedules` has the id `default` twice",
    );
    refused(
        &plugin("- {every: 5m, command: handle}"),
        "`handle` answers events and cannot be scheduled",
    );
    refused(
        &plugin("- {cron: '* * * * *', catch_up: run_all}"),
        "`catch_up` other than skip is only valid with `every`",
    );
    refused(&plugin("- {every: often}"), "`often` is not an interval");
    refused(
        &plugin("- {every: 5m, if_running: wait}"),
        "must be one of skip, queue, cancel",
    );
    refused(
        &plugin("- {every: 5m, payload: [1]}"),
        "must be a map, not a list",
    );
    let fine = plugin(
        "- {every: daily, catch_up: run_once, jitter: 5s, not_on: [sat], payload: {a: 1}}\n      - {id: b, after: 5m, catch_up: skip}",
    );
    let config = World::new(&fine).config();
    assert_eq!(config.plugins["p"].schedules[1].json()["after"], "5m");
    assert_eq!(config.plugins["p"].schedules[1].at.line, 5);
}

#[test]
fn what_is_simply_wrong_is_told_all_at_once() {
    let text = "service: {log_level: loud, max_workers: many, strict_mode: maybe}\napi: {enabled: true}\nplugins: [a]\nstate: here";
    let world = World::bare();
    world.put("config.yaml", text);
    let problems = world.problems();
    let expected = [
        "Error config.yaml:1: `service.log_level` must be one of debug, info, warn, error",
        "Error config.yaml:1: `service.max_workers` must be a whole number",
        "Error config.yaml:1: `service.strict_mode` must be true or false, not text",
        "Error config.yaml:2: the API is enabled and has no token",
        "Error config.yaml:3: `plugins` must be a map of plugins, not a list",
        "Error config.yaml:4: `state` must be a map of keys, not text",
        "`plugin_roots` is empty",
    ];
    for expected in expected {
        assert!(problems.contains(expected), "{expected}\nin: {problems}");
    }
    assert_eq!(problems.lines().count(), expected.len(), "{problems}");
}

#[test]
fn what_later_versions_write_loads_even_when_strict_du_014() {
    let text = "service: {strict_mode: true, unconfined: true}\nsecrets: {age_key_file: age.key}\napi:\n  enabled: true\n  auth: {tokens: [{secret_ref: admin, scopes: ['*', 'state:ro']}]}\ntokens: [{name: admin, key: v}]\nplugins:\n  echo:\n    path: ./echo\n    schedules:\n      - every: 5m\n        jitter: 30s\n    config:\n      # nothing yet";
    let world = World::new(text);
    let config = world.config();
    assert!(config.registry.holder("v").unwrap().may("state:ro"));
    assert!(config.service.strictness.validation);
    let problems = world.problems();
    assert_eq!(problems.lines().count(), 3, "{problems}");
    assert!(
        problems.lines().all(|line| line.starts_with("Notice")),
        "{problems}"
    );
}

#[test]
fn received_messages_need_an_agent_and_an_intent() {
    let receive = |rest: &str| format!("plugins: {{}}\nbeam:\n  receive:\n    - {{{rest}}}");
    refused(
        &receive("agent: bob, intent: agent.ping"),
        "Error config.yaml:4: `beam.receive[0].agent` is not a Beam-ID; write agent@org.beam.directory",
    );
    refused(
        &receive("agent: bob@acme.beam.directory"),
        "Error config.yaml:4: `beam.receive[0].intent` is missing",
    );
    refused(
        &receive("intent: agent.ping"),
        "`beam.receive[0].agent` is missing",
    );
    let long = "b".repeat(60);
    refused(
        &receive(&format!("agent: {long}@beam.directory, intent: agent.ping")),
        "`beam.receive[0].agent` is longer than 74 characters",
    );
    let one = "{agent: bob@acme.beam.directory, intent: agent.ping}";
    refused(
        &format!("beam: {{receive: [{one}, {one}]}}"),
        "`beam.receive[1]` has the same `agent` and `intent` as another entry",
    );
    warned(
        &receive("agent: bob@acme.beam.directory, intent: agent.ping, evnt: x"),
        "Warning config.yaml:4: unknown key `beam.receive[0].evnt`; did you mean `event`?",
    );
    let config = World::new(&format!("beam: {{receive: [{one}]}}")).config();
    assert_eq!(config.received[0].event, "message.received");
}

#[test]
fn received_items_need_a_mesh_and_either_a_topic_or_a_queue() {
    let receive = |rest: &str| format!("plugins: {{}}\nmesh:\n  receive:\n    - {{{rest}}}");
    refused(
        &receive("topic: alerts"),
        "Error config.yaml:4: `mesh.receive[0].mesh` is missing",
    );
    refused(
        &receive("mesh: Acme, topic: alerts"),
        "Error config.yaml:4: `mesh.receive[0].mesh` is not a valid name; write the short name of the mesh",
    );
    refused(
        &receive("mesh: acme"),
        "Error config.yaml:4: `mesh.receive[0]` has no source; write `topic` or `queue`, and not both",
    );
    refused(
        &receive("mesh: acme, topic: alerts, queue: builds"),
        "Error config.yaml:4: `mesh.receive[0]` has two sources; write `topic` or `queue`, and not both",
    );
    refused(
        &receive("mesh: acme, topic: no name"),
        "`mesh.receive[0].topic` is not a valid name",
    );
    let long = "q".repeat(129);
    refused(
        &receive(&format!("mesh: acme, queue: {long}")),
        "`mesh.receive[0].queue` is not a valid name",
    );
    refused(
        "mesh: {receive: [{mesh: acme, topic: alerts}, {mesh: acme, topic: \"#alerts\", event: other}]}",
        "`mesh.receive[1]` has the same source as another entry",
    );
    warned(
        &receive("mesh: acme, topic: alerts, evnt: x"),
        "Warning config.yaml:4: unknown key `mesh.receive[0].evnt`; did you mean `event`?",
    );
    let both =
        "mesh: {receive: [{mesh: acme, topic: alerts}, {mesh: acme, queue: alerts, event: x}]}";
    let config = World::new(both).config();
    let shown = |index: usize| {
        let received = &config.received_items[index];
        (received.source.to_string(), received.event.clone())
    };
    let words = |source: &str, event: &str| (source.to_owned(), event.to_owned());
    assert_eq!(
        shown(0),
        words("topic alerts of mesh acme", "message.received")
    );
    assert_eq!(shown(1), words("queue alerts of mesh acme", "x"));
}
