//! Files, includes, variables and defaults.

use std::time::Duration;

use super::*;

#[test]
fn includes_are_read_in_order_and_from_their_own_directory_du_002() {
    let world = World::new(
        "include: [a.yaml, parts]\nservice: {name: root}\nroutes: []\npipelines: [{name: p0}]",
    );
    world.put(
        "a.yaml",
        "include: [deep/b.yaml]\nservice: {name: a, log_level: warn}\npipelines: [{name: p1}]",
    );
    world.put(
        "deep/b.yaml",
        "include: [c.yaml]\nservice: {name: b}\npipelines: [{name: p2}]",
    );
    world.put("deep/c.yaml", "pipelines: [{name: p3}]");
    world.put(
        "parts/2.yaml",
        "service: {name: two}\npipelines: [{name: p5}]",
    );
    world.put("parts/1.yaml", "pipelines: [{name: p4}]");
    world.put("parts/no.yml", "service: {name: never}");
    world.put("parts/below/3.yaml", "service: {name: never}");
    let config = world.config();
    assert_eq!(config.service.name, "two");
    assert_eq!(config.service.log_level, model::LogLevel::Warn);
    let names: Vec<_> = config
        .pipelines
        .iter()
        .map(|node| node.json()["name"].clone())
        .collect();
    assert_eq!(names, ["p0", "p1", "p2", "p3", "p4", "p5"]);
    assert_eq!(
        config.pipelines[3].at.file.as_ref(),
        world.path("deep/c.yaml")
    );
    assert_eq!(config.files.len(), 6);
}

#[test]
fn a_circular_or_missing_include_names_the_path_and_the_includer_du_003() {
    let world = World::new("include:\n  - a.yaml");
    let missing = world.problems();
    assert!(
        missing.starts_with("Error config.yaml:2: cannot read "),
        "{missing}"
    );
    assert!(missing.contains("a.yaml: No such file"), "{missing}");
    world.put("a.yaml", "x: 1\ninclude: [a.yaml, config.yaml]");
    let circular = world.load(SealCheck::No);
    assert!(circular.config.is_none());
    let circular = shown(&circular.problems);
    assert!(
        circular.contains("Error a.yaml:2: circular include: "),
        "{circular}"
    );
    assert!(
        circular.contains("config.yaml is already part"),
        "{circular}"
    );
    // All of them at once, and no problem that only follows from them.
    assert_eq!(circular.lines().count(), 2, "{circular}");
}

#[test]
fn include_paths_take_no_variables() {
    let world = World::new("include:\n  - ${WHERE}/a.yaml").with("WHERE", ".");
    world.put("a.yaml", "service: {name: a}");
    let problems = world.problems();
    assert!(
        problems.contains("Error config.yaml:2: `include` must not use variables"),
        "{problems}"
    );
}

#[test]
fn variables_are_filled_in_before_parsing_and_after_hashing_du_005_du_022() {
    let text = "service: {name: ${NAME}, max_workers: ${WORKERS}, allow_symlinks: ${FLAG}}";
    let world = World::new(text)
        .with("NAME", "n")
        .with("WORKERS", "7")
        .with("FLAG", "true");
    let config = world.config();
    assert_eq!(config.service.name, "n");
    assert_eq!(config.service.max_workers, 7);
    assert!(config.service.allow_symlinks);
    let raw = fs::read(world.path("config.yaml")).unwrap();
    assert_eq!(config.files[0].hash, blake3::hash(&raw).to_hex().as_str());
}

#[test]
fn a_variable_that_is_not_set_is_refused_where_it_matters_and_no_value_is_shown_du_005() {
    let config = "api: {enabled: true, auth: {tokens: [{token: \"${API}\"}]}}\nplugins:\n  on:\n    config: {a: {b: [\"x ${DEEP}\"]}, c: ${SET}}\n  off: {enabled: false, config: {a: \"${OFF}\"}}\ntokens:\n  - {name: used, key: \"${USED}\"}\n  - {name: idle, key: \"${IDLE}\"}\nwebhooks: {endpoints: [{path: /a, plugin: on, secret_ref: used, signature_header: X}]}";
    let world = World::new(config).with("SET", "hunter2");
    let problems = world.problems();
    for name in ["API", "DEEP", "USED"] {
        assert!(
            problems.contains(&format!("the variable `{name}`, which is not set")),
            "{problems}"
        );
    }
    assert!(
        problems.contains("Error config.yaml:4: `plugins.on.config` needs"),
        "{problems}"
    );
    assert!(
        !problems.contains("OFF") && !problems.contains("IDLE"),
        "{problems}"
    );
    assert!(!problems.contains("hunter2"), "{problems}");
}

#[test]
fn stand_ins_make_a_tree_readable_and_leave_what_is_set_alone() {
    let config = "include: [more.yaml]\nservice: {name: ${NAME}}\ntokens: [{name: a, key: ${KEY}}]";
    let world = World::new(config).with("NAME", "n");
    world.put("more.yaml", "plugins: {p: {config: {word: ${WORD}}}}");
    let path = world.path("config.yaml");
    assert!(peek(&path, &world.environment).is_err());
    let environment = with_stand_ins(&path, &world.environment);
    let names: Vec<&str> = environment.variables.keys().map(String::as_str).collect();
    assert_eq!(names, ["KEY", "NAME", "WORD"]);
    assert_eq!(environment.variables["NAME"], "n");
    let config = peek(&path, &environment).unwrap();
    assert_eq!(config.tokens[0].key.expose(), format!("{STAND_IN}KEY"));
}

#[test]
fn a_value_that_breaks_the_yaml_is_not_quoted_du_005() {
    let world = World::new("service: {name: ${BAD}}").with("BAD", "hunter2: [");
    let problems = world.problems();
    assert!(
        problems.contains("after variables are substituted"),
        "{problems}"
    );
    assert!(!problems.contains("hunter2"), "{problems}");
}

#[test]
fn dotenv_files_give_values_and_the_environment_wins_du_006() {
    let text = "environment_vars: {include: [.env, ~/more.env]}\ninclude: [sub/a.yaml]\nservice: {name: \"${A}-${B}-${C}\"}";
    let world = World::new(text).with("B", "process");
    world.put(".env", "A=1\nB=dotenv\n");
    world.put("home/more.env", "A=2\nexport C='3'\n");
    world.put("sub/a.yaml", "plugins: {p: {config: {x: \"${C}\"}}}");
    let config = world.config();
    assert_eq!(config.service.name, "1-process-3");
    assert_eq!(config.plugins["p"].config["x"], "3");
    fs::remove_file(world.path(".env")).unwrap();
    let problems = world.problems();
    assert!(
        problems.contains("Error config.yaml:1: cannot read "),
        "{problems}"
    );
    world.put(".env", "A=1\nSECRET hunter2\n");
    let problems = world.problems();
    assert!(
        problems.contains("no KEY=VALUE in lines [2]") && !problems.contains("hunter2"),
        "{problems}"
    );
}

#[test]
fn every_key_has_its_default_du_008() {
    let config = World::new("plugins: {p: , q: {timeouts: {handle: 5m, sync: 1s}}}").config();
    let service = &config.service;
    let day = Duration::from_hours(24);
    assert_eq!(service.name, "ductile");
    assert_eq!(service.tick_interval, Duration::from_mins(1));
    assert_eq!(service.log_level, model::LogLevel::Info);
    assert!(service.log_json);
    assert_eq!(service.dedupe_ttl, day);
    assert_eq!(service.job_log_retention, 30 * day);
    assert_eq!(service.job_queue_retention, day);
    assert_eq!(service.job_transitions_retention, 30 * day);
    assert_eq!(service.job_attempts_retention, 30 * day);
    assert_eq!(service.breaker_transitions_retention, 90 * day);
    assert_eq!(service.max_workers, 3);
    assert_eq!(service.strictness, Strictness::default());
    assert!(!service.allow_symlinks && !service.require_api_auth);
    assert_eq!(service.hook_max_depth, 4);
    assert!(service.plugin_env_passthrough.is_empty());
    assert!(!config.api.enabled && config.api.allowed_origins.is_empty());
    assert_eq!(config.api.listen, "127.0.0.1:8080");
    assert_eq!(config.api.max_concurrent_sync, 10);
    assert_eq!(config.api.max_sync_timeout, Duration::from_mins(5));
    assert!(config.webhooks.is_none() && config.tokens.is_empty());
    let plugin = &config.plugins["p"];
    assert!(plugin.enabled && plugin.uses.is_none() && plugin.config.is_empty());
    assert!(plugin.schedules.is_empty() && plugin.parallelism.is_none());
    assert_eq!(plugin.max_outstanding_polls, 1);
    assert_eq!(plugin.retry.max_attempts, 4);
    assert_eq!(plugin.retry.backoff_base, Duration::from_secs(30));
    assert_eq!(plugin.circuit_breaker.threshold, 3);
    assert_eq!(plugin.circuit_breaker.reset_after, Duration::from_mins(30));
    assert!(!plugin.notify_on_complete);
    let seconds = |plugin: &str, command| config.plugins[plugin].timeouts.of(command).as_secs();
    let commands = ["poll", "handle", "health", "init", "sync"];
    assert_eq!(
        commands.map(|command| seconds("p", command)),
        [60, 120, 10, 30, 60]
    );
    assert_eq!(
        commands.map(|command| seconds("q", command)),
        [60, 300, 10, 30, 1]
    );
}

#[test]
fn the_state_lies_beside_the_configuration_du_009() {
    let world = World::new("");
    assert_eq!(world.config().state_path, world.path("data/state.db"));
    assert_eq!(world.config().plugin_roots, [world.path("plugins")]);
    let state = |config: &str| {
        let world = World::new(config);
        let path = world.config().state_path;
        path.strip_prefix(world.dir.path())
            .map(Path::to_owned)
            .unwrap_or(path)
    };
    assert_eq!(state("database: {path: old.db}"), Path::new("old.db"));
    assert_eq!(
        state("database: {path: old.db}\nstate: {path: new.db}"),
        Path::new("new.db")
    );
    assert_eq!(state("state: {path: ~/s.db}"), Path::new("home/s.db"));
    assert_eq!(state("state: {path: /abs/s.db}"), Path::new("/abs/s.db"));
}

#[test]
fn a_link_is_refused_unless_it_is_allowed() {
    let world = World::new("include: [link.yaml]");
    world.put("real.yaml", "service: {name: linked}");
    std::os::unix::fs::symlink(world.path("real.yaml"), world.path("link.yaml")).unwrap();
    let problems = world.problems();
    assert!(
        problems.contains("Error link.yaml: is a symbolic link"),
        "{problems}"
    );
    world.put("real.yaml", "service: {name: linked, allow_symlinks: true}");
    assert_eq!(world.config().service.name, "linked");
    assert!(world.problems().contains("Notice link.yaml"));
}

#[test]
fn a_file_that_is_too_large_or_no_text_is_refused() {
    let world = World::new("include: [a.yaml]");
    world.put("a.yaml", &"# x\n".repeat(300_000));
    assert!(world.problems().contains("larger than 1048576 bytes"));
    fs::write(world.path("a.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    assert!(
        world
            .problems()
            .contains("Error a.yaml: the file is not UTF-8")
    );
    world.put("a.yaml", "- a\n- list\n");
    assert!(
        world
            .problems()
            .contains("Error a.yaml:1: `the file` must be a map of keys, not a list")
    );
    world.put("a.yaml", "# nothing yet\n");
    assert!(world.load(SealCheck::No).config.is_some());
}

#[test]
fn what_a_variable_filled_in_is_never_shown_du_005() {
    let text = "\
service: {name: \"${NAME}\", max_workers: 3}
plugins:
  p:
    config:
      header: Bearer ${SECRET}
      url: \"https://u:${SECRET}@example.org\"
      list: [plain, \"${SECRET}\"]
      several: [${TWO}]
      inner: {a: ${MORE}}
      count: ${COUNT}
      empty: ${EMPTY}
      beside: 0042
    schedules: [{every: 5m, payload: {auth: \"${SECRET}\", kind: full}}]
  q: {config: ${WHOLE}}
include: [later.yaml]";
    let world = World::new(text)
        .with("NAME", "gatehouse7")
        .with("SECRET", "hunter2")
        .with("TWO", "hunter2, hunter3")
        .with("MORE", "1, hunter2: 2")
        .with("COUNT", "31337")
        .with("EMPTY", "")
        .with("WHOLE", "{hunter2: [hunter2]}");
    world.put("later.yaml", "api: {allowed_origins: [\"${SECRET}\", b]}");
    let config = world.config();
    let shown = config.shown(MASK);
    let given = &shown["plugins"]["p"]["config"];
    for key in ["header", "url", "several", "inner", "count"] {
        assert_eq!(given[key], MASK, "{key}: {shown}");
    }
    assert_eq!(given["list"], serde_json::json!(["plain", MASK]));
    assert_eq!(given["empty"], serde_json::Value::Null);
    assert_eq!(given["beside"], 34, "only what was filled in is hidden");
    assert_eq!(shown["service"]["name"], MASK);
    assert_eq!(shown["service"]["max_workers"], 3);
    let payload = &shown["plugins"]["p"]["schedules"][0]["payload"];
    assert_eq!(*payload, serde_json::json!({"auth": MASK, "kind": "full"}));
    assert_eq!(shown["plugins"]["q"]["config"], MASK);
    assert_eq!(
        shown["api"]["allowed_origins"],
        serde_json::json!([MASK, "b"])
    );
    let all = format!("{shown} {}", config.effective(MASK));
    for value in ["hunter", "31337", "gatehouse7"] {
        assert!(!all.contains(value), "{value}: {all}");
    }
    assert_eq!(get(&config, "service.name"), Some(MASK.into()));
    // The running program still gets the values.
    assert_eq!(config.plugins["p"].config["header"], "Bearer hunter2");
}

#[test]
fn a_problem_names_the_variable_instead_of_its_value_du_005() {
    let text = "\
service: {tick_interval: \"${SECRET}\", dedupe_ttl: \"${SHORT}s\", log_level: \"${SECRET}\"}
routes: [{from: \"x-${SECRET}-y\", to: \"${TICKS}\", event_type: e}]
plugins: {p: {schedules: [{at: \"${SECRET}\"}], ${SECRET}: 1}}";
    let world = World::new(text)
        .with("SECRET", "hunter2")
        .with("SHORT", "abc")
        .with("TICKS", "hun`ter2");
    let loaded = world.load(SealCheck::No);
    let problems = format!("{} {loaded:?}", shown(&loaded.problems));
    for told in [
        "`service.tick_interval`: `${SECRET}` is not a duration",
        "`service.dedupe_ttl`: `${SHORT}s` is not a duration",
        "names `x-${SECRET}-y`, which is not in `plugins`",
        "names `${TICKS}`, which is not in `plugins`",
        "unknown key `plugins.p.${SECRET}`",
    ] {
        assert!(problems.contains(told), "{told}: {problems}");
    }
    for value in ["hunter2", "hun`ter2", "abc"] {
        assert!(!problems.contains(value), "{value}: {problems}");
    }
}

#[test]
fn nothing_secret_shows_in_what_is_printed_du_025() {
    let text =
        "tokens: [{name: t, key: hunter2}]\nplugins: {p: {config: {password: hunter2, url: u}}}";
    let config = World::new(text).config();
    let shown = config.shown(MASK);
    assert_eq!(shown["tokens"][0]["key"], MASK);
    assert_eq!(shown["tokens"][0]["name"], "t");
    assert_eq!(shown["plugins"]["p"]["config"]["url"], "u");
    assert_eq!(
        config.shown("[REDACTED]")["plugins"]["p"]["config"]["password"],
        "[REDACTED]"
    );
    let debugged = format!(
        "{config:?} {:?} {:?} {shown}",
        config.tokens, config.plugins
    );
    assert!(!debugged.contains("hunter2"), "{debugged}");
    assert_eq!(config.secret("t").unwrap().expose(), "hunter2");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    #[test]
    fn any_text_is_loaded_or_refused_with_a_reason(
        lines in proptest::collection::vec(
            r"[ ]{0,4}(service|api|plugins|tokens|webhooks|routes|include|auth|config|schedules|every|[a-z~&*<$]{1,3})?:? ?[-\[\]{},:&*!|>%@`'${}A-Z0-9a-z~.# ]{0,12}",
            0..8,
        ),
    ) {
        let world = World::new(&lines.join("\n")).with("A", "b: [");
        let loaded = world.load(SealCheck::AsConfigured);
        proptest::prop_assert_eq!(
            loaded.config.is_none(),
            loaded.problems.iter().any(|problem| problem.severity == Severity::Error)
        );
    }
}
