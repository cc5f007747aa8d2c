//! The configuration of the automation on the command line, under both names of the binary.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{binary, code, mode, printed, text, word};

/// A directory with a configuration that `config init` wrote, and a link named `ductile`.
struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        symlink(binary(), folder.path().join("ductile")).expect("a link can be made");
        let world = Self { folder };
        let dir = world.config();
        let made = world.run(&world.ductile(), &["config", "init", utf8(&dir)], &[]);
        assert_eq!(code(&made), 0, "{}", text(&made.stderr));
        world
    }

    fn ductile(&self) -> PathBuf {
        self.folder.path().join("ductile")
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("conf")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.config().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).expect("the file is there")
    }

    fn add(&self, name: &str, more: &str) {
        std::fs::write(self.file(name), self.read(name) + more).expect("the file can be written");
    }

    fn run(&self, program: &Path, args: &[&str], variables: &[(&str, &str)]) -> Output {
        Command::new(program)
            .args(args)
            .env_clear()
            .env("HOME", self.folder.path())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .expect("the command runs")
    }

    /// `ductile config …` for the configuration of this world.
    fn act(&self, args: &[&str]) -> Output {
        self.act_with(args, &[])
    }

    fn act_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Output {
        let dir = self.config();
        let args = [&["config"], args, &["--config", utf8(&dir)]].concat();
        self.run(&self.ductile(), &args, variables)
    }
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

#[test]
fn both_names_answer_and_unknown_commands_end_with_one_du_113() {
    let world = World::new();
    let dir = world.config();
    let ours = [
        "automation",
        "config",
        "check",
        "--config",
        utf8(&dir),
        "--json",
    ];
    let ours = printed(&world.run(&binary(), &ours, &[]));
    let theirs = printed(&world.act(&["check", "--json"]));
    assert_eq!(ours, theirs);
    assert_eq!(ours["valid"], true);
    for args in [
        &["frobnicate"][..],
        &["config", "frobnicate"],
        &["config"],
        &["config", "get"],
        &["intent", "list"],
    ] {
        let refused = world.run(&world.ductile(), args, &[]);
        assert_eq!(code(&refused), 1, "{args:?}");
        assert!(text(&refused.stderr).contains("Usage: ductile"), "{args:?}");
        assert!(refused.stdout.is_empty(), "{args:?}");
    }
    for args in [
        &["--help"][..],
        &["help"],
        &["config", "--help"],
        &["config", "help"],
        &["config", "token", "create", "--help"],
    ] {
        let help = world.run(&world.ductile(), args, &[]);
        assert_eq!(code(&help), 0, "{args:?}");
        assert!(text(&help.stdout).contains("Usage: ductile"), "{args:?}");
    }
    let version = world.run(&world.ductile(), &["--version"], &[]);
    assert_eq!(
        text(&version.stdout),
        format!("ductile {}\n", env!("CARGO_PKG_VERSION"))
    );
    let version = printed(&world.run(&world.ductile(), &["version", "--json"], &[]));
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version.get("commit").is_some() && version.get("build_time").is_some());
}

#[test]
fn failures_are_json_when_json_was_asked_for_du_113() {
    let world = World::new();
    let dir = world.config();
    let dir = utf8(&dir);
    let failed = |output: &Output, expected: i32| -> Value {
        assert_eq!(code(output), expected, "{}", text(&output.stderr));
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut keys: Vec<_> = error.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        assert_eq!(keys, ["code", "context", "error"]);
        error
    };
    let both = [
        "config",
        "show",
        "--config",
        dir,
        "--config-dir",
        dir,
        "--json",
    ];
    let error = failed(&world.run(&world.ductile(), &both, &[]), 1);
    assert!(word(&error["error"]).contains("give only one of them"));
    let nowhere = world.run(
        &world.ductile(),
        &["config", "get", "service.name", "--json"],
        &[],
    );
    let error = failed(&nowhere, 1);
    assert!(word(&error["context"]["hint"]).contains("--config"));
    failed(&world.act(&["get", "service.nothing", "--json"]), 1);
    world.add("config.yaml", "api: [\n");
    let error = failed(&world.act(&["show", "--json"]), 78);
    assert_eq!(error["code"], "config_refused");
    assert!(error["context"]["problems"][0]["line"].as_u64() > Some(0));
    let plain = world.act(&["show"]);
    assert_eq!(code(&plain), 78);
    assert!(text(&plain.stderr).starts_with("error: the configuration cannot be read"));
}

#[test]
fn a_check_ends_with_zero_one_or_two_du_114() {
    let world = World::new();
    let clean = world.act(&["check", "--strict"]);
    assert_eq!(
        (code(&clean), text(&clean.stdout).as_str()),
        (0, "valid: 0 errors, 0 warnings\n")
    );
    world.add("config.yaml", "colour: red\n");
    let sealed = printed(&world.act(&["lock", "--json"]));
    assert_eq!(sealed["changes"][0]["change"], "changed");
    let warned = world.act(&["check"]);
    assert_eq!(code(&warned), 0);
    assert!(
        text(&warned.stderr).contains("warning: ") && text(&warned.stderr).contains("`colour`")
    );
    assert_eq!(code(&world.act(&["check", "--strict"])), 2);
    assert_eq!(
        code(&world.act(&["check", "--fail-on-warnings", "--format", "json"])),
        2
    );
    world.add(
        "config.yaml",
        "routes: [{from: hello, event_type: e, to: nobody}]\n",
    );
    let invalid = world.act(&["check", "--format", "json"]);
    assert_eq!(code(&invalid), 1);
    let told: Value = serde_json::from_slice(&invalid.stdout).unwrap();
    assert_eq!(told["valid"], false);
    assert!(word(&told["errors"][0]["message"]).contains("nobody"));
    assert!(told["errors"][0]["line"].as_u64() > Some(1));
}

#[test]
fn routes_schedules_and_pipelines_that_cannot_run_fail_a_check_du_016_du_071_du_095() {
    let cases = [
        (
            "routes: [{from: hello, event_type: e, to: nobody}]\n",
            "`nobody`",
        ),
        (
            "pipelines: [{name: p, on: e, steps: [{uses: nobody}]}]\n",
            "`nobody`",
        ),
        (
            "pipelines: [{name: p, on: e, steps: [{relay: x}]}]\n",
            "relay",
        ),
    ];
    for (more, expected) in cases {
        let world = World::new();
        world.add("config.yaml", more);
        let checked = world.act(&["check"]);
        assert_eq!(code(&checked), 1, "{more}");
        assert!(
            text(&checked.stderr).contains(expected),
            "{}",
            text(&checked.stderr)
        );
    }
    for command in ["handle", "sync"] {
        let world = World::new();
        world.add("config.yaml", "");
        let scheduled = world.read("config.yaml").replace(
            "every: 5m",
            &format!("every: 5m\n        command: {command}"),
        );
        std::fs::write(world.file("config.yaml"), scheduled).unwrap();
        let checked = world.act(&["check"]);
        assert_eq!(code(&checked), 1);
        assert!(
            text(&checked.stderr).contains(command),
            "{}",
            text(&checked.stderr)
        );
    }
}

#[test]
fn a_change_says_whether_it_is_meant_and_keeps_comments_du_114() {
    let world = World::new();
    let before = world.read("config.yaml");
    let unsaid = world.act(&["set", "service.name=other"]);
    assert_eq!(code(&unsaid), 1);
    assert!(
        text(&unsaid.stderr).contains("--apply"),
        "{}",
        text(&unsaid.stderr)
    );
    assert_eq!(
        code(&world.act(&["set", "service.name=other", "--dry-run", "--apply"])),
        1
    );
    let dry = printed(&world.act(&["set", "service.name=other", "--dry-run", "--json"]));
    assert_eq!(dry["applied"], false);
    assert_eq!(world.read("config.yaml"), before);
    let invalid = world.act(&["set", "service.tick_interval=1ms", "--apply"]);
    assert_eq!(code(&invalid), 78);
    assert!(text(&invalid.stderr).contains("below 100ms"));
    let undeclared = world.act(&["set", "plugin:hello.uses=nobody", "--apply"]);
    assert_eq!(code(&undeclared), 78, "the plugins are judged too");
    assert_eq!(world.read("config.yaml"), before);
    assert_eq!(
        code(&world.act(&["set", "service.name=other", "--apply"])),
        0
    );
    assert_eq!(
        world.read("config.yaml"),
        before.replace("name: ductile", "name: other")
    );
    assert_eq!(world.read("config.yaml.bak"), before);
    assert_eq!(text(&world.act(&["get", "service.name"]).stdout), "other\n");
    let shown = printed(&world.act(&["show", "plugin:hello", "--json"]));
    assert_eq!(shown["config"]["greeting"], "hello");
    assert!(text(&world.act(&["show"]).stdout).contains("plugin_roots:"));
}

#[test]
fn a_seal_is_written_only_when_asked_and_plugins_are_in_it_du_017() {
    let world = World::new();
    assert_eq!(
        (mode(&world.config()), mode(&world.file(".checksums"))),
        (0o700, 0o600)
    );
    std::fs::write(world.file("plugins/hello/run.sh"), "#!/bin/sh\n").unwrap();
    let checked = printed(&world.act(&["check", "--json"]));
    assert!(
        word(&checked["warnings"][0]["message"])
            .contains("the program of `hello` differs from its seal")
    );
    let sealed = world.read(".checksums");
    assert_eq!(code(&world.act(&["lock", "--dry-run"])), 0);
    assert_eq!(world.read(".checksums"), sealed);
    assert_eq!(code(&world.act(&["lock", "-v"])), 0);
    assert_eq!(
        printed(&world.act(&["check", "--json"]))["warnings"],
        serde_json::json!([])
    );
}

#[test]
fn a_token_is_shown_once_and_lives_by_its_variable_du_023() {
    let world = World::new();
    let create = [
        "token",
        "create",
        "--name",
        "admin-cli",
        "--scopes",
        "plugin:rw,jobs:ro",
    ];
    let dry = world.act(&[&create[..], &["--dry-run"]].concat());
    assert_eq!((code(&dry), world.file("tokens.yaml").exists()), (0, false));
    let made = printed(&world.act(&[&create[..], &["--json"]].concat()));
    let key = word(&made["key"]);
    assert_eq!(
        (word(&made["variable"]).as_str(), key.len()),
        ("ADMIN_CLI_API_KEY", 64)
    );
    for file in [
        "tokens.yaml",
        "scopes/admin-cli.json",
        "config.yaml",
        ".checksums",
    ] {
        assert!(!world.read(file).contains(&key), "{file}");
        assert_eq!(mode(&world.file(file)), 0o600, "{file}");
    }
    assert_eq!(code(&world.act(&["check"])), 1, "the variable is not set");
    let set = [("ADMIN_CLI_API_KEY", key.as_str())];
    let checked = world.act_with(&["check", "--strict"], &set);
    assert_eq!(code(&checked), 0, "{}", text(&checked.stderr));
    let listed = world.act_with(&["token", "list"], &set);
    assert!(
        text(&listed.stdout).contains("admin-cli  ADMIN_CLI_API_KEY  yes  plugin:rw,jobs:ro"),
        "{}",
        text(&listed.stdout)
    );
    assert!(!text(&listed.stdout).contains(&key));
    assert_eq!(code(&world.act(&create)), 1, "the name is taken");

    let act = |args: &[&str]| world.act_with(args, &set);
    assert_eq!(code(&act(&["scope", "add", "admin-cli", "events:ro"])), 0);
    assert_eq!(
        code(&act(&["scope", "remove", "admin-cli", "plugin:rw,jobs:ro"])),
        0
    );
    let inspected = printed(&act(&["token", "inspect", "admin-cli", "--json"]));
    assert_eq!(inspected["scopes"], serde_json::json!(["events:ro"]));
    assert_eq!(
        code(&act(&["check", "--strict"])),
        0,
        "each change is sealed"
    );
    assert_eq!(code(&act(&["scope", "set", "admin-cli", "job:rw"])), 1);
    assert_eq!(code(&act(&["scope", "validate", "jobs:ro", "*"])), 0);
    assert_eq!(code(&act(&["scope", "validate", "job:rw"])), 1);

    std::fs::write(world.file("scopes/admin-cli.json"), r#"["*"]"#).unwrap();
    assert_eq!(code(&act(&["check"])), 1);
    assert_eq!(code(&act(&["token", "rehash", "admin-cli"])), 0);
    assert_eq!(code(&act(&["check", "--strict"])), 0);
    world.add("config.yaml", "# touched by somebody\n");
    let delete = ["token", "delete", "admin-cli"];
    let refused = act(&delete);
    assert_eq!(code(&refused), 78, "nobody vouched for the change");
    assert!(text(&refused.stderr).contains("config.yaml differs from its seal"));
    assert_eq!(code(&act(&["lock"])), 0);
    assert_eq!(code(&act(&delete)), 0);
    assert_eq!(
        printed(&act(&["token", "list", "--json"])),
        serde_json::json!([])
    );
    assert_eq!(code(&world.act(&["check", "--strict"])), 0);
}

#[test]
fn a_backup_brings_the_files_back_with_their_seal_du_114() {
    let world = World::new();
    let copy = world.folder.path().join("copy");
    let output = utf8(&copy);
    let copied = printed(&world.act(&["backup", "--output", output, "--json"]));
    assert_eq!(
        copied["copied"],
        serde_json::json!([".checksums", "config.yaml"])
    );
    assert_eq!(code(&world.act(&["backup", "--output", output])), 1);
    let before = world.read("config.yaml");
    assert_eq!(code(&world.act(&["set", "service.name=x", "--apply"])), 0);
    assert_eq!(code(&world.act(&["check", "--strict"])), 2);
    assert_eq!(code(&world.act(&["restore", output, "--dry-run"])), 0);
    assert_ne!(world.read("config.yaml"), before);
    assert_eq!(code(&world.act(&["restore", output])), 0);
    assert_eq!(world.read("config.yaml"), before);
    assert_eq!(code(&world.act(&["check", "--strict"])), 0);
    let dir = world.config();
    let again = world.run(&world.ductile(), &["config", "init", utf8(&dir)], &[]);
    assert_eq!(code(&again), 1);
    assert!(text(&again.stderr).contains("--force"));
}
