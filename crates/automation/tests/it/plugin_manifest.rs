//! Valid and invalid manifests.

use consign_automation::plugin::command::CommandAccess;
use consign_automation::plugin::manifest::{PluginManifest, parse};
use serde_json::json;

use crate::plugin_world::manifest;

fn read(text: &str) -> PluginManifest {
    parse(text).unwrap().manifest
}

fn refused(text: &str) -> String {
    match parse(text) {
        Err(error) => error.to_string(),
        Ok(parsed) => panic!("{parsed:?}"),
    }
}

#[test]
fn a_full_manifest_is_read_as_written_du_027() {
    let text = "
manifest_spec: ductile.plugin
manifest_version: 1
name: withings
version: 1.10
protocol: 2
entrypoint: bin/run.py
description: Fetch health data
concurrency_safe: false
commands:
  poll: {type: read, description: Fetch, idempotent: true, retry_safe: false}
config_keys:
  required: [client_id, client_secret]
  optional: [access_token]
fact_outputs:
  - when: {command: poll}
    from: state_updates
    fact_type: withings.weight
    compatibility_view: mirror_object
stopwatch: {max_subs: 256}
";
    let found = read(text);
    assert_eq!(found.name, "withings");
    assert_eq!(found.version.as_deref(), Some("1.10"));
    assert_eq!(found.entrypoint, "bin/run.py");
    assert!(!found.concurrency_safe);
    assert_eq!(found.config_required, ["client_id", "client_secret"]);
    assert_eq!(found.config_optional, ["access_token"]);
    assert_eq!(found.fact_outputs[0].command, "poll");
    assert_eq!(found.fact_outputs[0].fact_type, "withings.weight");
    assert_eq!(found.stopwatch_subs_max, 256);
    assert_eq!(found.command("poll").unwrap().idempotent, Some(true));
}

#[test]
fn what_is_left_out_has_its_default_du_027() {
    let found = read(&manifest("bare").replace("version: 1.10\n", ""));
    assert!(found.concurrency_safe && found.version.is_none());
    assert!(found.config_required.is_empty() && found.fact_outputs.is_empty());
    assert_eq!(found.stopwatch_subs_max, 32);
}

#[test]
fn spec_version_protocol_name_and_entrypoint_are_checked_du_027() {
    for (from, to, message) in [
        (
            "ductile.plugin",
            "other",
            "`manifest_spec` is `other`; write `ductile.plugin`",
        ),
        (
            "manifest_spec: ductile.plugin\n",
            "",
            "`manifest_spec` is missing",
        ),
        (
            "manifest_version: 1",
            "manifest_version: 2",
            "`manifest_version` is `2`",
        ),
        ("manifest_version: 1\n", "", "`manifest_version` is missing"),
        ("protocol: 2", "protocol: 1", "`protocol` is `1`"),
        ("protocol: 2\n", "", "`protocol` is missing"),
        ("name: bare", "name: '  '", "`name` is missing"),
        ("name: bare", "name: core.switch", "`name` is `core.switch`"),
        ("name: bare", "name: \"a\\x1fb\"", "no control characters"),
        ("entrypoint: run.sh\n", "", "`entrypoint` is missing"),
        ("protocol: 2", "protocol: two", "line 5"),
        ("protocol: 2", "protocol: 2\nprotocol: 2", "duplicate"),
    ] {
        let text = manifest("bare").replace(from, to);
        let found = refused(&text);
        assert!(found.contains(message), "{to}: {found}");
    }
    for text in ["", "- a\n", "just text", "name: [", "\0"] {
        refused(text);
    }
}

#[test]
fn commands_are_a_map_or_a_list_du_030() {
    let start = manifest("x");
    let start = start.split("commands:").next().unwrap();
    let map = "commands:\n  poll: {type: read}\n  sync:\n  o-auth_2: {type: write}\n";
    let list = "commands:\n  - {name: poll, type: read}\n  - name: sync\n  - {name: o-auth_2, type: write}\n";
    let map = read(&format!("{start}{map}"));
    assert_eq!(map, read(&format!("{start}{list}")));
    let access: Vec<_> = map
        .commands
        .iter()
        .map(|one| (one.name.as_str(), one.access))
        .collect();
    let expected = [
        ("poll", CommandAccess::Read),
        ("sync", CommandAccess::Write),
        ("o-auth_2", CommandAccess::Write),
    ];
    assert_eq!(access, expected);

    for (commands, message) in [
        (
            "{poll: {type: execute}}",
            "`commands.poll.type` is `execute`",
        ),
        ("[{type: read}]", "`commands.name` is ``"),
        ("{9lives: {}}", "starts with a letter"),
        ("{'a b': {}}", "`commands.name` is `a b`"),
        ("[{name: a}, {name: a}]", "every name once"),
        ("[]", "`commands` is missing"),
        ("{}", "`commands` is missing"),
        ("poll", "commands as a map"),
    ] {
        let found = refused(&format!("{start}commands: {commands}\n"));
        assert!(found.contains(message), "{commands}: {found}");
    }
}

#[test]
fn schemas_and_values_of_commands_are_read_du_030() {
    let start = manifest("x").replace("  poll: {type: read}\n", "");
    let text = format!(
        "{start}  poll:\n    input_schema: {{city: string, days: {{type: integer}}}}\n    output_schema: true\n    \
         values:\n      consume: [payload.*, payload.user.first-name, payload, payload.größe]\n      \
         emit: [{{event: <configured event_type>, values: [payload.id]}}]\n"
    );
    let found = read(&text);
    let poll = found.command("poll").unwrap();
    let expanded = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    });
    assert_eq!(poll.input_schema, Some(expanded));
    assert_eq!(poll.output_schema, Some(json!(true)));
    assert_eq!(poll.consumes[2..], ["payload", "payload.größe"]);
    assert_eq!(poll.emits[0].event, "<configured event_type>");

    for (from, to) in [
        ("payload.*", "payload."),
        ("payload.*", "payloads"),
        ("payload.*", "payload.a.*"),
        ("payload.*", "context.a"),
        ("payload.id", "payload..id"),
        ("<configured event_type>", "''"),
        ("output_schema: true", "output_schema: 7"),
    ] {
        refused(&text.replace(from, to));
    }
}

#[test]
fn bad_fact_outputs_and_stopwatches_are_refused_du_033() {
    let good = "fact_outputs: [{when: {command: poll}, from: state_updates, fact_type: t}]\n";
    for unset in ["", ", compatibility_view: ''"] {
        let unset = good.replace("fact_type: t", &format!("fact_type: t{unset}"));
        let found = read(&format!("{}{unset}", manifest("x")));
        assert_eq!(found.fact_outputs.len(), 1);
    }
    for (from, to, message) in [
        (
            "command: poll",
            "command: sync",
            "`fact_outputs[0].when.command` is `sync`",
        ),
        (
            "when: {command: poll}, ",
            "",
            "`fact_outputs[0].when.command`",
        ),
        (
            "from: state_updates",
            "from: events",
            "`fact_outputs[0].from` is `events`",
        ),
        ("from: state_updates, ", "", "`fact_outputs[0].from`"),
        (
            "fact_type: t",
            "fact_type: ' '",
            "`fact_outputs[0].fact_type`",
        ),
        (
            "fact_type: t",
            "fact_type: t, compatibility_view: merge",
            "is `merge`",
        ),
    ] {
        let found = refused(&format!("{}{}", manifest("x"), good.replace(from, to)));
        assert!(found.contains(message), "{to}: {found}");
    }
    let usual = read(&format!("{}stopwatch: {{max_subs: 0}}\n", manifest("x")));
    assert_eq!(usual.stopwatch_subs_max, 32);
    for subs in ["257", "-1"] {
        refused(&format!(
            "{}stopwatch: {{max_subs: {subs}}}\n",
            manifest("x")
        ));
    }
}

#[test]
fn unknown_keys_are_told_and_ignored_du_027() {
    let text =
        format!("{}author: me\n", manifest("x")).replace("type: read", "type: read, cost: 3");
    let parsed = parse(&text).unwrap();
    assert_eq!(parsed.unknown_keys, ["author", "commands.poll.cost"]);
}

#[test]
fn a_bomb_is_refused_before_it_goes_off_du_027() {
    let mut bomb = vec!["a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned()];
    for (name, last) in "bcdefghij".chars().zip("abcdefghi".chars()) {
        let nine = vec![format!("*{last}"); 9].join(",");
        bomb.push(format!("{name}: &{name} [{nine}]\n"));
    }
    let deep = format!("a: {}\n", "[".repeat(20_000));
    for text in [bomb.concat(), deep] {
        let started_at = std::time::Instant::now();
        refused(&format!("{}{text}", manifest("x")));
        assert!(started_at.elapsed().as_millis() < 500);
    }
}
