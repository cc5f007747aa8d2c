//! Edits of whole trees: what they write, what they keep, what they refuse.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::config::{self, SealCheck};
use crate::program;

struct World {
    dir: tempfile::TempDir,
    environment: Environment,
}

impl World {
    fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment {
            variables: BTreeMap::new(),
            home: None,
            system_dir: PathBuf::from("/nowhere"),
            processors: 2,
        };
        fs::create_dir(dir.path().join("plugins")).unwrap();
        fs::write(dir.path().join("config.yaml"), config).unwrap();
        Self { dir, environment }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    fn mode(&self, file: &str) -> u32 {
        let found = fs::metadata(self.path(file)).unwrap();
        found.permissions().mode() & 0o777
    }

    fn set(&self, assignment: &str) -> Result<Edit, EditRefused> {
        set(&self.path("config.yaml"), &self.environment, assignment)
    }

    fn consequences(&self, edit: &Edit) -> Vec<config::ConfigProblem> {
        program::consequences(&self.path("config.yaml"), &self.environment, edit)
    }

    fn create(&self, name: &str, scopes: &[&str]) -> Result<(Edit, String), EditRefused> {
        let token = NewToken {
            name,
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            description: Some("for \"tests\""),
            now: "2026-02-25T00:00:00.7Z".parse().unwrap(),
        };
        create(&self.path("config.yaml"), &self.environment, &token)
    }

    fn change(&self, name: &str, change: &ScopeChange) -> Result<Edit, EditRefused> {
        change_scopes(&self.path("config.yaml"), &self.environment, name, change)
    }

    fn config(&self) -> config::Config {
        let loaded = config::load(&self.path("config.yaml"), &self.environment, SealCheck::No);
        loaded
            .config
            .unwrap_or_else(|| panic!("{:?}", loaded.problems))
    }
}

const COMMENTED: &str = "\
# the service
service:
  # how often
  tick_interval: 60s   # a minute
  name: 'old name'
plugin_roots: [plugins] # here
plugins:
  my.mail: {enabled: false, config: {limit: 3}}
";

#[test]
fn one_value_changes_and_every_comment_stays_du_114() {
    let world = World::new(COMMENTED);
    let cases = [
        (
            "service.tick_interval=90s",
            "tick_interval: 60s   #",
            "tick_interval: 90s   #",
        ),
        ("service.name = a: b", "'old name'", "\"a: b\""),
        ("plugin:my.mail.config.limit=4", "limit: 3", "limit: 4"),
        (
            "plugins.my.mail.enabled=true",
            "enabled: false",
            "enabled: true",
        ),
        (
            "service.log_level=debug",
            "  # how often\n",
            "  # how often\n  log_level: debug\n",
        ),
        (
            "api.listen=127.0.0.1:1",
            "{limit: 3}}\n",
            "{limit: 3}}\napi:\n  listen: \"127.0.0.1:1\"\n",
        ),
    ];
    for (assignment, from, to) in cases {
        let edit = world.set(assignment).unwrap();
        assert_eq!(
            world.text("config.yaml"),
            COMMENTED,
            "a plan writes nothing"
        );
        edit.apply().unwrap();
        assert_eq!(
            world.text("config.yaml"),
            COMMENTED.replace(from, to),
            "{assignment}"
        );
        assert_eq!(world.text("config.yaml.bak"), COMMENTED);
        assert_eq!(
            (world.mode("config.yaml"), world.mode("config.yaml.bak")),
            (0o600, 0o600)
        );
        fs::write(world.path("config.yaml"), COMMENTED).unwrap();
    }
}

#[test]
fn what_cannot_be_changed_in_place_is_refused_du_114() {
    let world = World::new(
        "plugin_roots: [plugins]\nservice: {}\napi:\nx: &a {limit: 1}\ny: *a\nplugins:\n  m: &m\n    config: {n: 1}\n  o: *m\nlong: |\n  a\n  b\n",
    );
    let cases = [
        ("service.name", "the `=` between"),
        ("service..name=x", "is not a path"),
        ("service.name=", "the value after"),
        ("service.name=[a, b]", "only scalars"),
        ("plugin_roots.0=x", "leads into the list"),
        ("plugins=x", "is the map"),
        ("service.name=x", "cannot be changed in place"),
        ("api.listen=x", "leads below the null"),
        ("y.limit=2", "cannot be changed without affecting"),
        (
            "plugins.m.config.n=2",
            "cannot be changed without affecting",
        ),
        ("long=x", "cannot be changed in place"),
    ];
    for (assignment, expected) in cases {
        let refused = world.set(assignment).unwrap_err();
        assert!(
            refused.message.contains(expected),
            "{assignment}: {refused}"
        );
    }
}

#[test]
fn an_edit_is_judged_by_the_errors_it_brings_du_114() {
    let world = World::new("plugin_roots: [plugins]\nplugins: {gone: {}}\n");
    let edit = world.set("service.log_level=debug").unwrap();
    assert!(
        world.consequences(&edit).is_empty(),
        "the old error is not its fault"
    );
    let edit = world.set("service.log_level=loud").unwrap();
    let found = world.consequences(&edit);
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("log_level"), "{}", found[0]);
    let edit = world.set("plugins.other.enabled=true");
    assert!(edit.is_err(), "a flow map is not extended");
}

#[test]
fn a_value_may_name_a_variable_whether_or_not_it_is_set_du_005() {
    let mut world = World::new("plugin_roots: [plugins]\nservice:\n  name: ${NAME}\n");
    for set in [false, true] {
        let edit = world.set("service.name=x ${OTHER}").unwrap();
        let written = String::from_utf8(edit.drafts()[&world.path("config.yaml")].clone()).unwrap();
        assert!(
            written.ends_with("  name: \"x ${OTHER}\"\n"),
            "{set}: {written}"
        );
        for name in ["NAME", "OTHER"] {
            let variables = &mut world.environment.variables;
            variables.insert(name.to_owned(), "filled in: # {".to_owned());
        }
        fs::write(
            world.path("config.yaml"),
            "plugin_roots: [plugins]\nservice:\n  name: \"${NAME}\"\n",
        )
        .unwrap();
    }
}

proptest! {
    #[test]
    fn any_text_that_is_set_is_read_back_du_114(
        value in r"[ -~äß\n\t]{1,12}",
        place in prop::sample::select(vec!["service.name", "service.new", "plugins.m.config.n", "top.deep.er"]),
    ) {
        let world = World::new(
            "# one\nservice: # two\n  name: old # three\nplugin_roots: [plugins]\nplugins: {m: {config: {n: 1, o: 2}}}\n",
        );
        let Ok(edit) = world.set(&format!("{place}={value}")) else {
            let value = value.trim();
            prop_assert!(value.is_empty() || value.starts_with(['[', '{']), "{:?}", value);
            return Ok(());
        };
        edit.apply().unwrap();
        let text = world.text("config.yaml");
        for comment in ["# one", "# two", "# three"] {
            prop_assert!(text.contains(comment), "{}", text);
        }
        let tree = read_sources(&world.path("config.yaml"), &world.environment, &Drafts::new()).unwrap();
        let found = place.split('.').fold(tree.merged.json(), |tree, key| tree[key].clone());
        let meant = match found {
            serde_json::Value::String(text) => text == value.trim(),
            serde_json::Value::Bool(_) | serde_json::Value::Number(_) => text.contains(value.trim()),
            serde_json::Value::Null | serde_json::Value::Array(_) | serde_json::Value::Object(_) => false,
        };
        prop_assert!(meant, "{:?} became {}", value, text);
    }
}

#[test]
fn a_value_in_an_included_file_is_changed_there_du_114() {
    let world = World::new("include: [more.yaml]\nplugin_roots: [plugins]\nservice:\n  name: a\n");
    fs::write(world.path("more.yaml"), "service:\n  name: b\n").unwrap();
    world.set("service.name=c").unwrap().apply().unwrap();
    assert_eq!(world.text("more.yaml"), "service:\n  name: c\n");
    assert_eq!(world.config().service.name, "c");
    let (link, real) = (world.path("more.yaml"), world.path("real.yaml"));
    fs::rename(&link, &real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    world.set("service.name=d").unwrap().apply().unwrap();
    assert!(link.is_symlink(), "a link stays one");
    assert_eq!(world.text("real.yaml"), "service:\n  name: d\n");
}

#[test]
fn parts_are_found_by_path_and_by_name_with_secrets_masked_du_025() {
    let world = World::new(
        "plugin_roots: [plugins]\nservice: {name: s}\nplugins: {my.mail: {enabled: false, config: {api_key: v}}}\npipelines: [{name: p, on: e, steps: [{uses: my.mail}]}]\ntokens: [{name: t, key: value}]\nwebhooks: {endpoints: [{path: /h, plugin: my.mail, secret_ref: t, signature_header: X}]}\n",
    );
    let config = world.config();
    let get = |wanted: &str| config::get(&config, wanted).map(|value| value.to_string());
    assert_eq!(get("service.name").unwrap(), r#""s""#);
    assert_eq!(get("plugins.my.mail.enabled").unwrap(), "false");
    assert_eq!(
        get("plugin:my.mail.config.api_key").unwrap(),
        r#""[redacted]""#
    );
    assert_eq!(get("tokens[0].key").unwrap(), r#""[redacted]""#);
    assert_eq!(get("pipelines.0.name").unwrap(), r#""p""#);
    assert!(get("pipeline:p").unwrap().contains(r#""on":"e""#));
    assert!(get("webhook:/h").unwrap().contains("signature_header"));
    assert!(get("plugin:*").unwrap().starts_with(r#"{"my.mail""#));
    for absent in [
        "service.nothing",
        "plugin:x",
        "pipeline:x",
        "pipelines.1",
        "service.name.x",
    ] {
        assert_eq!(get(absent), None, "{absent}");
    }
}

#[test]
fn a_first_configuration_is_private_and_accepted_and_never_overwritten_du_114() {
    let world = World::new("");
    let dir = world.path("new");
    let path = init(&dir, false).unwrap();
    assert_eq!(
        (world.mode("new"), world.mode("new/config.yaml")),
        (0o700, 0o600)
    );
    let loaded = program::load(&path, &world.environment, SealCheck::No);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let program = loaded.program.unwrap();
    let hello = program.plugin("hello").unwrap();
    assert_eq!(hello.schedules.len(), 1);
    let ran = std::process::Command::new(&hello.entrypoint)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(answer["status"], "ok");
    assert!(init(&dir, false).is_err());
    fs::write(&path, "mine: 1\n").unwrap();
    init(&dir, true).unwrap();
    assert_eq!(world.text("new/config.yaml.bak"), "mine: 1\n");
}

#[test]
fn a_token_is_made_changed_and_taken_away_in_place_du_023() {
    let mut world = World::new("# top\nplugin_roots: [plugins]\n");
    let (edit, variable) = world
        .create("admin-cli", &["plugin:rw", "jobs:ro"])
        .unwrap();
    assert_eq!(variable, "ADMIN_CLI_API_KEY");
    edit.apply().unwrap();
    assert_eq!(
        world.text("config.yaml"),
        "# top\nplugin_roots: [plugins]\ninclude:\n  - tokens.yaml\n"
    );
    assert_eq!(
        (
            world.mode("tokens.yaml"),
            world.mode("scopes"),
            world.mode("scopes/admin-cli.json")
        ),
        (0o600, 0o700, 0o600)
    );
    world
        .environment
        .variables
        .insert(variable, "sesame".to_owned());
    world.create("second", &["*"]).unwrap().0.apply().unwrap();
    world
        .environment
        .variables
        .insert("SECOND_API_KEY".to_owned(), "two".to_owned());
    let config = world.config();
    assert!(config.registry.holder("sesame").unwrap().may("plugin:ro"));
    let listed = list(&config);
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[1].variable.as_deref(), Some("ADMIN_CLI_API_KEY"));
    assert_eq!((listed[1].is_set, listed[1].scopes.len()), (true, 2));
    assert_eq!(listed[1].description.as_deref(), Some("for \"tests\""));

    let change = |change| world.change("admin-cli", &change).unwrap().apply().unwrap();
    change(ScopeChange::Add(vec![
        "events:ro".to_owned(),
        "jobs:ro".to_owned(),
    ]));
    change(ScopeChange::Remove(vec!["plugin:rw".to_owned()]));
    let holder = world.config().registry.holder("sesame").unwrap().clone();
    assert!(holder.may("events:ro") && !holder.may("plugin:ro"));
    assert!(world.text("scopes/admin-cli.json").contains("created_at"));
    change(ScopeChange::Set(vec!["*".to_owned()]));
    fs::write(world.path("scopes/admin-cli.json"), r#"["jobs:ro"]"#).unwrap();
    let stale = config::load(
        &world.path("config.yaml"),
        &world.environment,
        SealCheck::No,
    );
    assert!(stale.config.is_none());
    change(ScopeChange::Keep);
    assert!(
        world
            .config()
            .registry
            .holder("sesame")
            .unwrap()
            .may("jobs:ro")
    );

    let path = world.path("config.yaml");
    delete(&path, &world.environment, "admin-cli")
        .unwrap()
        .apply()
        .unwrap();
    assert!(!world.path("scopes/admin-cli.json").exists());
    let names: Vec<_> = list(&world.config())
        .into_iter()
        .map(|token| token.name)
        .collect();
    assert_eq!(names, ["second"]);
    delete(&path, &world.environment, "second")
        .unwrap()
        .apply()
        .unwrap();
    assert!(list(&world.config()).is_empty());
    world.create("third", &["*"]).unwrap().0.apply().unwrap();
    assert!(world.text("tokens.yaml").contains("third"));
}

#[test]
fn tokens_that_make_no_sense_are_refused_du_023() {
    let world = World::new("plugin_roots: [plugins]\ntokens: [{name: a, key: k}]\n");
    let cases = [
        ("a", &["*"][..], "already"),
        ("a b", &["*"], "not a valid token name"),
        ("b", &[], "list of scopes is empty"),
        ("b", &["plugins:ro"], "`plugins:ro` allows nothing"),
    ];
    for (name, scopes, expected) in cases {
        let refused = world.create(name, scopes).unwrap_err();
        assert!(refused.message.contains(expected), "{refused}");
    }
    let refused = world.change("a", &ScopeChange::Keep).unwrap_err();
    assert!(refused.message.contains("only a named secret"), "{refused}");
    let refused = world.change("z", &ScopeChange::Keep).unwrap_err();
    assert!(
        refused.message.contains("no token has the name `z`"),
        "{refused}"
    );
    let in_a_row = delete(&world.path("config.yaml"), &world.environment, "a").unwrap_err();
    assert!(in_a_row.message.contains("lines of its own"), "{in_a_row}");
}

#[test]
fn a_backup_holds_all_files_and_brings_them_back_du_114() {
    let world = World::new("plugin_roots: [plugins]\n");
    let (edit, variable) = world.create("a", &["*"]).unwrap();
    edit.apply().unwrap();
    let peeked = config::peek(&world.path("config.yaml"), &world.environment).unwrap();
    assert_eq!(variable, "A_API_KEY");
    let output = world.path("copy");
    let done = backup(&peeked, &output).unwrap();
    let expected = ["config.yaml", "scopes/a.json", "tokens.yaml"].map(PathBuf::from);
    assert_eq!(
        (done.copied, done.left_out),
        (expected.to_vec(), Vec::new())
    );
    assert!(
        backup(&peeked, &output).is_err(),
        "a backup is never overwritten"
    );
    let before = world.text("tokens.yaml");
    fs::write(world.path("tokens.yaml"), "tokens: []\n").unwrap();
    fs::remove_file(world.path("scopes/a.json")).unwrap();
    restore(&output, world.dir.path()).unwrap().apply().unwrap();
    assert_eq!(world.text("tokens.yaml"), before);
    assert_eq!(world.text("tokens.yaml.bak"), "tokens: []\n");
    assert!(world.path("scopes/a.json").exists());
    assert!(restore(&world.path("plugins"), world.dir.path()).is_err());
}
