//! Whole trees with plugins, loaded as the service loads them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::*;
use crate::config::{ConfigProblem, Environment, SealCheck};

struct World {
    dir: tempfile::TempDir,
}

impl World {
    /// A configuration with two installed plugins: `mail` has poll and handle, `old` only poll, without concurrency.
    fn new(config: &str) -> Self {
        let world = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        world.put(
            "config.yaml",
            &format!("{config}\nplugin_roots: [plugins]\n"),
        );
        world.plugin("mail", "commands: {poll: {type: read}, handle: {}}");
        world.plugin("old", "concurrency_safe: false\ncommands: {poll: {}}");
        world
    }

    fn path(&self, file: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap().join(file)
    }

    fn put(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn plugin(&self, name: &str, rest: &str) {
        let head = "manifest_spec: ductile.plugin\nmanifest_version: 1\nprotocol: 2\nversion: 1.0.0\nentrypoint: run.sh";
        self.put(
            &format!("plugins/{name}/manifest.yaml"),
            &format!("{head}\nname: {name}\n{rest}\n"),
        );
        let program = format!("plugins/{name}/run.sh");
        self.put(&program, "#!/bin/sh\n");
        fs::set_permissions(self.path(&program), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn environment() -> Environment {
        let variables = [("PATH", "/bin"), ("SECRET", "s"), ("EXTRA", "e")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Environment {
            variables: BTreeMap::from(variables),
            home: None,
            system_dir: PathBuf::from("/nowhere"),
            processors: 5,
        }
    }

    fn load(&self, verify: SealCheck) -> LoadedProgram {
        load(&self.path("config.yaml"), &Self::environment(), verify)
    }

    fn program(&self) -> Program {
        let loaded = self.load(SealCheck::No);
        loaded
            .program
            .unwrap_or_else(|| panic!("{}", shown(&loaded.problems)))
    }

    fn lock(&self) {
        let now = "2026-02-25T10:00:00Z".parse().unwrap();
        let plan = lock(&self.path("config.yaml"), &Self::environment(), now).unwrap();
        plan.apply().unwrap();
    }
}

fn shown(problems: &[ConfigProblem]) -> String {
    let line = |problem: &ConfigProblem| {
        let file = problem.file.file_name().map(Path::new);
        let file = file.unwrap_or(Path::new("")).to_owned();
        let problem = ConfigProblem {
            file,
            ..problem.clone()
        };
        format!("{:?} {problem}", problem.severity)
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn refused(config: &str, expected: &str) {
    let loaded = World::new(config).load(SealCheck::No);
    let problems = shown(&loaded.problems);
    assert!(problems.contains(expected), "{config}\ngave: {problems}");
    assert!(loaded.program.is_none(), "{config}");
}

fn warned(config: &str, expected: &str) {
    let loaded = World::new(config).load(SealCheck::No);
    let problems = shown(&loaded.problems);
    assert!(problems.contains(expected), "{config}\ngave: {problems}");
    assert!(loaded.program.is_some(), "{config}\ngave: {problems}");
}

#[test]
fn everything_a_runtime_asks_for_is_there_du_050() {
    let world = World::new(
        "service: {max_workers: 3, plugin_env_passthrough: [EXTRA]}
plugins:
  mail:
    config: {box: in}
    schedules: [{id: b, every: 1h}, {id: a, cron: '0 3 * * *'}]
  two: {uses: mail, parallelism: 2}
  old: {timeouts: {poll: 7s}, retry: {max_attempts: 2}, circuit_breaker: {threshold: 9}}
  off: {uses: mail, enabled: false}
pipelines:
  - {name: z, on: z.done, steps: [{uses: mail}]}
  - {name: y, on: y.done, steps: [{uses: two.poll}]}",
    );
    let program = world.program();
    let names: Vec<_> = program
        .plugins()
        .map(|plugin| plugin.name.as_str())
        .collect();
    assert_eq!(names, ["mail", "old", "two"]);
    assert_eq!(program.parallelism("mail"), Some(3));
    assert_eq!(program.parallelism("two"), Some(2));
    assert_eq!(program.parallelism("old"), Some(1));
    assert!(program.is_known("off") && program.plugin("off").is_none());
    assert!(!program.is_known("nobody") && program.parallelism("nobody").is_none());
    assert!(program.command("two", "handle").is_some());
    assert!(program.command("old", "handle").is_none());
    let mail = program.plugin("mail").unwrap();
    let ids: Vec<_> = mail
        .schedules
        .iter()
        .map(|entry| entry.id.as_str())
        .collect();
    assert_eq!(ids, ["b", "a"]);
    assert_eq!(mail.config["box"], "in");
    assert_eq!(program.plugin("two").unwrap().base.as_deref(), Some("mail"));
    let old = program.plugin("old").unwrap();
    assert_eq!(old.timeouts.of("poll").as_secs(), 7);
    assert_eq!((old.retry.max_attempts, old.breaker.threshold), (2, 9));
    let pipelines: Vec<_> = program
        .pipelines()
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(pipelines, ["y", "z"]);
    let variables: Vec<_> = program.environment().keys().collect();
    assert_eq!(variables, ["EXTRA", "PATH"]);
}

#[test]
fn an_unconfigured_plugin_runs_with_the_usual_values_du_008() {
    let program = World::new("service: {max_workers: 3}").program();
    let mail = program.plugin("mail").unwrap();
    assert_eq!((mail.parallelism, mail.retry.max_attempts), (3, 4));
    assert_eq!(mail.breaker, crate::breaker::BreakerPolicy::default());
    assert!(mail.config.is_empty() && mail.schedules.is_empty());
}

#[test]
fn schedules_of_handle_and_of_undeclared_commands_are_refused_du_071() {
    refused(
        "plugins:\n  old:\n    schedules:\n      - every: 1h\n        command: sync",
        "Error config.yaml:5: `plugins.old.schedules[0]`: the plugin has no command `sync`",
    );
    refused(
        "plugins: {mail: {schedules: [{every: 1h, command: handle}]}}",
        "cannot be scheduled",
    );
    refused(
        "plugins: {mail: {schedules: [{every: 1h}, {every: 2h}]}}",
        "has the id `default` twice",
    );
    refused(
        "plugins: {mail: {schedules: [{cron: '* *'}]}}",
        "`plugins.mail.schedules[0]`: ",
    );
    let disabled = "plugins: {old: {enabled: false, schedules: [{every: 1h, command: sync}]}}";
    assert!(World::new(disabled).program().plugin("old").is_none());
}

#[test]
fn names_of_plugins_that_are_not_there_are_refused_du_016() {
    refused(
        "plugins:\n  mail: {}\n  gone: {config: {a: 1}}",
        "Error config.yaml:3: no manifest below the plugin roots has the name `gone`; install it",
    );
    refused(
        "plugins: {x: {uses: gone}}",
        "`plugins.x.uses` names `gone`, which was not found",
    );
    refused(
        "plugins: {x: {uses: y}, y: {uses: mail}}",
        "`y`, which is an alias itself",
    );
    refused("plugins: {mail: {uses: old}}", "rename the alias");
    World::new("plugins: {gone: {enabled: false}}").program();
    refused(
        "plugins: {mail: {}}\nroutes:\n  - {from: mail, event_type: e, to: nobody}",
        "Error config.yaml:3: `routes[0].to` names `nobody`, which is not in `plugins`",
    );
    refused(
        "plugins: {mail: {}, old: {}}\nroutes:\n  - {from: mail, event_type: e, to: old}",
        "Error config.yaml:3: routes[0]: plugin `old` has no command `handle`",
    );
    refused(
        "plugins: {old: {}}\ntokens: [{name: s, key: k}]\nwebhooks:\n  endpoints:\n    - {path: /h, plugin: old, secret_ref: s, signature_header: X}",
        "Error config.yaml:5: the plugin `old` has no command `handle` for a webhook",
    );
}

#[test]
fn wrong_pipelines_are_refused_with_their_line_du_095() {
    let one = |rest: &str| format!("plugins: {{mail: {{}}, old: {{}}}}\npipelines:\n  - {rest}");
    let cases = [
        (
            "{name: p, on: e, steps: [{uses: nobody}]}",
            "pipeline `p`: steps[0]: uses `nobody` names no configured plugin",
        ),
        (
            "{name: p, on: e, from_plugin: nobody, steps: [{uses: mail}]}",
            "from_plugin `nobody` is not a configured plugin",
        ),
        (
            "{name: p, on: e, steps: [{uses: old}]}",
            "plugin `old` has no command `handle`",
        ),
        (
            "{name: p, on: e, steps: [{relay: there}]}",
            "relay to another instance is not supported",
        ),
        ("{name: p, on: e, steps: [{call: p}]}", "pipeline `p`: "),
        (
            "{on: e, steps: [{uses: mail}]}",
            "pipelines[0]: a pipeline needs a name",
        ),
    ];
    for (pipeline, expected) in cases {
        let loaded = World::new(&one(pipeline)).load(SealCheck::No);
        let problems = shown(&loaded.problems);
        assert!(problems.starts_with("Error config.yaml:3: "), "{problems}");
        assert!(problems.contains(expected), "{pipeline}\ngave: {problems}");
        assert!(loaded.program.is_none(), "{pipeline}");
    }
    warned(
        &one("{name: p, on: e, colour: red, steps: [{uses: mail}]}"),
        "Warning config.yaml:3: pipeline `p`: `colour` is unknown",
    );
}

#[test]
fn all_problems_are_told_at_once_du_095() {
    let loaded = World::new(
        "service: {tick_interval: 1ms}\nplugins: {gone: {}, also_gone: {}, mail: {schedules: [{every: 1h, command: x}]}}\npipelines:\n  - {name: p, on: e, steps: [{uses: nobody}]}\n  - {name: q, on: e, steps: [{uses: nobody}]}",
    )
    .load(SealCheck::No);
    let errors = loaded.problems.len();
    assert_eq!(errors, 6, "{}", shown(&loaded.problems));
}

#[test]
fn what_cannot_run_is_warned_of_and_the_rest_starts_du_027() {
    let world = World::new("plugins: {mail: {}, bad: {}, x: {uses: bad}}\ninstances: {a: 1}");
    world.plugin("bad", "commands: {}");
    let loaded = world.load(SealCheck::No);
    let problems = shown(&loaded.problems);
    assert!(
        problems.contains("Warning manifest.yaml: `commands` is missing"),
        "{problems}"
    );
    assert!(
        problems.contains("Warning config.yaml:1: the plugin `bad` that it uses was skipped"),
        "{problems}"
    );
    assert!(
        problems.contains("Warning config.yaml:2: `instances` is ignored"),
        "{problems}"
    );
    let program = loaded.program.unwrap();
    assert!(program.is_known("bad") && program.plugin("bad").is_none());
    let said = program.missing_plugin("bad");
    assert!(
        said.contains("was skipped") && said.contains("`config check`"),
        "{said}"
    );
    let said = program.missing_plugin("nobody");
    assert!(
        said.starts_with("no plugin has the name `nobody`"),
        "{said}"
    );
    assert_eq!(
        program.missing_command("mail", "dance"),
        "the plugin `mail` has no command `dance`; it has poll, handle"
    );
    let off = World::new("plugins: {mail: {enabled: false}}").program();
    assert!(off.missing_plugin("mail").contains("`enabled: false`"));
    warned(
        "plugins: {old: {enabled: false}, mail: {}}\npipelines: [{name: p, on: e, steps: [{uses: old.poll}]}]",
        "the pipeline `p` needs the plugin `old`, which is disabled",
    );
    refused(
        "service: {strict_mode: true}\nplugins: {mail: {}}\ninstances: {a: 1}",
        "Error config.yaml:3: `instances`",
    );
    let world = World::new("");
    fs::remove_dir_all(world.path("plugins")).unwrap();
    let problems = shown(&world.load(SealCheck::No).problems);
    assert!(
        problems.starts_with("Error config.yaml:2: plugin root ") && problems.contains("create it"),
        "{problems}"
    );
}

#[test]
fn a_plugin_nobody_asked_for_does_not_worry_a_strict_service_du_031() {
    let world = World::new("service: {strict_mode: true}\nplugins: {mail: {}}");
    world.plugin(
        "spare",
        "commands: {poll: {}}\nconfig_keys: {required: [account]}",
    );
    let program = world.program();
    assert!(program.plugin("spare").is_none());
    let world = World::new("plugins: {spare: {}}");
    world.plugin(
        "spare",
        "commands: {poll: {}}\nconfig_keys: {required: [account]}",
    );
    let problems = shown(&world.load(SealCheck::No).problems);
    assert!(
        problems.contains("Warning") && problems.contains("account"),
        "{problems}"
    );
}

#[test]
fn a_changed_plugin_is_warned_of_and_refused_when_strict_du_019() {
    for strict in [false, true] {
        let world = World::new(&format!(
            "service: {{strict_mode: {strict}}}\nplugins: {{mail: {{}}, a: {{uses: mail}}}}"
        ));
        world.lock();
        let sealed = world.load(SealCheck::AsConfigured);
        assert!(
            sealed.program.is_some() && sealed.problems.is_empty(),
            "{}",
            shown(&sealed.problems)
        );
        world.put("plugins/mail/run.sh", "#!/bin/sh\nrm -rf x\n");
        let changed = world.load(SealCheck::AsConfigured);
        let problems = shown(&changed.problems);
        let severity = if strict { "Error" } else { "Warning" };
        let expected =
            format!("{severity} run.sh: the program of `mail` differs from its seal; review");
        assert!(problems.contains(&expected), "{problems}");
        assert_eq!(
            (changed.program.is_none(), changed.integrity_failed),
            (strict, strict)
        );
        assert!(world.load(SealCheck::No).problems.is_empty());
    }
}

#[test]
fn a_served_goal_needs_a_name_and_a_command_of_its_plugin() {
    let serves = |entry: &str| format!("plugins:\n  mail:\n    serves:\n      - {entry}");
    let world = World::new(&serves("{goal: ' send mail ', capability: smtp}"));
    let program = world.program();
    let served = &program.plugin("mail").unwrap().serves[0];
    assert_eq!(
        (
            served.goal.as_str(),
            served.namespace.as_str(),
            served.command.as_str()
        ),
        ("send mail", "default", "handle")
    );
    for (entry, expected) in [
        (
            "{goal: g, command: poll2}",
            "Error config.yaml:4: `plugins.mail.serves`: the plugin has no command `poll2`; name a command that its manifest declares",
        ),
        (
            "{command: handle}",
            "Error config.yaml:4: `plugins.mail.serves[0].goal` is missing",
        ),
        (
            "{goal: ' '}",
            "`plugins.mail.serves[0].goal` is not a valid goal; write 1 to 256 characters",
        ),
        (
            "{goal: g, namespace: beam.x}",
            "`plugins.mail.serves[0].namespace` is not a valid namespace",
        ),
        (
            "{goal: g, capability: 'a b'}",
            "`plugins.mail.serves[0].capability` is not a valid capability",
        ),
        (
            "{goal: g, command: init}",
            "`init` manages the plugin itself",
        ),
        (
            "{goal: g}\n      - {goal: g, command: poll}",
            "Error config.yaml:5: `plugins.mail.serves` has the same goal twice",
        ),
    ] {
        refused(&serves(entry), expected);
    }
    warned(
        &serves("{goal: g, comand: poll}"),
        "did you mean `command`?",
    );
}

#[test]
fn a_webhook_has_a_plugin_or_publishes_an_intent() {
    let hook = |target: &str| {
        format!(
            "tokens: [{{name: s, key: v}}]\nplugins: {{mail: }}\nwebhooks:\n  endpoints:\n    - {{path: /a, {target} secret_ref: s, signature_header: X}}"
        )
    };
    World::new(&hook("publish: {goal: g, max_attempts: 5},")).program();
    for (target, expected) in [
        (
            "",
            "Error config.yaml:5: `webhooks.endpoints[0].plugin` is missing",
        ),
        (
            "plugin: mail, publish: {goal: g},",
            "an endpoint has both `plugin` and `publish`; keep `plugin` for an event",
        ),
        (
            "publish: {namespace: n},",
            "`webhooks.endpoints[0].publish.goal` is missing",
        ),
        (
            "publish: {goal: g, max_attempts: 21},",
            "`webhooks.endpoints[0].publish.max_attempts` is above 20",
        ),
    ] {
        refused(&hook(target), expected);
    }
}

#[test]
fn a_run_without_a_service_tries_no_plugin_again() {
    let world = World::new("plugins: {mail: {}, old: {retry: {max_attempts: 3}}}");
    let program = world.program().for_one_shot();
    let mut attempts = program.plugins().map(|plugin| plugin.retry.max_attempts);
    assert!(attempts.all(|attempts| attempts == 1));
}

#[test]
fn a_step_that_sends_a_message_is_checked_with_its_line() {
    let step = |with: &str| {
        format!(
            "plugins: {{mail: {{}}}}\npipelines:\n  - {{name: p, on: e, steps: [{{uses: core.send, with: {{{with}}}}}]}}"
        )
    };
    let (from, to) = ("from: a@x.beam.directory", "to: b@x.beam.directory");
    for (with, expected) in [
        (
            format!("{from}, intent: i"),
            "config.yaml:3: pipeline `p`: steps[0]: core.send needs with.to; write with: {from: …, to: …, intent: …}",
        ),
        (format!("{from}, {to}"), "core.send needs with.intent"),
        (
            format!("from: a, {to}, intent: i"),
            "with.from `a` is not a Beam-ID; write agent@org.beam.directory",
        ),
        (
            format!("from: '{{payload.a}}', {to}, intent: i"),
            "with.from must be a Beam-ID and no template",
        ),
        (
            format!("{from}, to: b@x.example, intent: i"),
            "with.to `b@x.example` is not a Beam-ID",
        ),
        (
            format!("{from}, {to}, intent: i, until: done"),
            "`with.until` must be sent, delivered or acked",
        ),
        (
            format!("{from}, {to}, intent: i, timeout: soon"),
            "with.timeout: ",
        ),
    ] {
        refused(&step(&with), expected);
    }
    let free = format!("{from}, to: '{{payload.from}}', intent: i, until: acked, timeout: 5m");
    World::new(&step(&free)).program();
}

#[test]
fn a_received_message_needs_a_pipeline() {
    let config = |on: &str| {
        format!(
            "plugins: {{mail: {{}}}}\nbeam:\n  receive:\n    - {{agent: b@x.beam.directory, intent: agent.ping, event: pinged}}\npipelines: [{{name: p, on: {on}, steps: [{{uses: mail}}]}}]"
        )
    };
    refused(
        &config("other"),
        "config.yaml:4: no pipeline has `on: pinged`, so the messages `agent.ping` for b@x.beam.directory would be lost; add such a pipeline, or correct `event`",
    );
    World::new(&config("pinged")).program();
}

#[test]
fn a_received_item_of_a_mesh_needs_a_pipeline() {
    let config = |on: &str| {
        format!(
            "plugins: {{mail: {{}}}}\nmesh:\n  receive:\n    - {{mesh: acme, topic: alerts, event: alerted}}\npipelines: [{{name: p, on: {on}, steps: [{{uses: mail}}]}}]"
        )
    };
    refused(
        &config("other"),
        "config.yaml:4: no pipeline has `on: alerted`, so the messages of topic alerts of mesh acme would be lost; add such a pipeline, or correct `event`",
    );
    World::new(&config("alerted")).program();
}
