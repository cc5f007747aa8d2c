//! The parts of a configuration on the command line: plugins, routes, webhooks, and the configuration with its defaults.

use serde_json::json;

use super::automation_world::{OK, World};
use super::{code, text, word};

const CONFIG: &str = "\
# Kept.
plugins:
  echo:
    config: {password: hunter2, url: 'http://x'}
    retry: {max_attempts: 2}
  second: {enabled: true}
";

fn world() -> World {
    let world = World::new();
    world.plugin("echo", OK);
    world.plugin("second", OK);
    world.config(CONFIG);
    world
}

#[test]
fn the_effective_configuration_has_every_default_and_no_secret_du_008_du_025() {
    let world = world();
    let shown = world.json(&["config", "show", "--effective"]);
    assert_eq!(shown["service"]["tick_interval"], "1m");
    assert_eq!(shown["service"]["job_log_retention"], "30d");
    assert_eq!(shown["api"]["listen"], "127.0.0.1:8080");
    let echo = &shown["plugins"]["echo"];
    assert_eq!(
        echo["retry"],
        json!({"max_attempts": 2, "backoff_base": "30s"})
    );
    assert_eq!(echo["timeouts"]["handle"], "2m");
    assert_eq!(echo["config"]["url"], "http://x");
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    let plain = world.json(&["config", "show"]);
    assert!(plain.get("api").is_none(), "{plain}");
    let args = ["config", "get", "service.max_workers"];
    let missing = world.ductile(&args);
    assert_eq!(code(&missing), 1);
    assert!(text(&missing.stderr).contains("--effective"), "{missing:?}");
    let found = world.json(&[&args[..], &["--effective"]].concat());
    assert!(found.is_u64(), "{found}");
}

#[test]
fn a_plugin_of_the_configuration_is_listed_shown_and_changed_du_114() {
    let world = world();
    let listed = world.json(&["config", "plugin", "list"]);
    assert_eq!(listed[0]["name"], "echo");
    assert_eq!(listed[1]["enabled"], true);
    let shown = world.json(&["config", "plugin", "show", "second"]);
    assert_eq!(shown["circuit_breaker"]["threshold"], 3);
    let set = ["config", "plugin", "set", "second", "enabled=false"];
    let unsaid = world.json(&set);
    assert!(
        word(&unsaid["error"]).contains("--dry-run is required"),
        "{unsaid}"
    );
    let before = world.read("config.yaml");
    world.json(&[&set[..], &["--dry-run"]].concat());
    assert_eq!(world.read("config.yaml"), before);
    let done = world.json(&[&set[..], &["--apply"]].concat());
    assert_eq!(done["applied"], true, "{done}");
    assert_eq!(
        world.read("config.yaml"),
        before.replace("enabled: true", "enabled: false")
    );
    assert_eq!(world.read("config.yaml.bak"), before);
    let nobody = world.json(&["config", "plugin", "show", "nobody"]);
    assert_eq!(nobody["code"], "failed", "{nobody}");
}

#[test]
fn a_route_is_added_once_and_taken_away_again_du_114() {
    let world = world();
    let before = world.read("config.yaml");
    let route = |verb: &str, event: &str, to: &str, meant: &str| {
        let args = [
            "config",
            "route",
            verb,
            "--from",
            "echo",
            "--event-type",
            event,
        ];
        world.json(&[&args[..], &["--to", to, meant]].concat())
    };
    let missing = route("remove", "made", "second", "--apply");
    assert!(
        word(&missing["error"]).contains("no such route"),
        "{missing}"
    );
    let unknown = route("add", "made", "nobody", "--apply");
    assert!(
        word(&unknown["error"]).contains("no longer be valid"),
        "{unknown}"
    );
    assert!(unknown["context"]["problems"].is_array(), "{unknown}");
    route("add", "made", "second", "--dry-run");
    assert_eq!(world.read("config.yaml"), before);

    for event in ["made", "made: twice"] {
        let done = route("add", event, "second", "--apply");
        assert_eq!(done["applied"], true, "{done}");
    }
    let twice = route("add", "made", "second", "--apply");
    assert!(word(&twice["error"]).contains("already"), "{twice}");
    let listed = world.json(&["config", "route", "list"]);
    let of = |event: &str| json!({"from": "echo", "event_type": event, "to": "second"});
    assert_eq!(listed, json!([of("made: twice"), of("made")]));
    let shown = text(&world.ductile(&["config", "route", "list"]).stdout);
    assert!(shown.contains("FROM"), "{shown}");
    assert!(world.read("config.yaml").contains("# Kept."));

    route("remove", "made", "second", "--apply");
    assert_eq!(
        world.json(&["config", "route", "list"]),
        json!([of("made: twice")])
    );
    let last = route("remove", "made: twice", "second", "--apply");
    assert_eq!(last["applied"], true, "{last}");
    assert_eq!(code(&world.ductile(&["config", "check"])), 0);
    world.config(
        "tokens: [{name: s, key: v}]\nwebhooks:\n  endpoints:\n    - {path: /a, publish: {goal: ship.it}, secret_ref: s, signature_header: X}\n",
    );
    let shown = text(&world.ductile(&["config", "webhook", "list"]).stdout);
    assert!(shown.contains("ship.it"), "{shown}");
}

#[test]
fn a_webhook_is_added_beside_the_others_and_judged_first_du_114() {
    let world = world();
    assert_eq!(world.json(&["config", "webhook", "list"]), json!([]));
    world.config(&format!("{CONFIG}tokens: [{{name: s, key: v}}]\n"));
    let before = world.read("config.yaml");
    let add = |path: &str, more: &[&str]| {
        let args = ["config", "webhook", "add", "--path", path];
        let signed = ["--secret-ref", "s", "--signature-header", "X-Signature"];
        world.json(&[&args[..], &signed[..], more].concat())
    };
    let unsaid = add("/a", &["--plugin", "echo"]);
    assert!(
        word(&unsaid["error"]).contains("--dry-run is required"),
        "{unsaid}"
    );
    let unknown = add("/a", &["--plugin", "nobody", "--apply"]);
    assert!(
        word(&unknown["error"]).contains("no longer be valid"),
        "{unknown}"
    );
    let tried = add("/a", &["--plugin", "echo", "--dry-run"]);
    assert_eq!(tried["applied"], false, "{tried}");
    assert_eq!(world.read("config.yaml"), before);

    let done = add("/a", &["--plugin", "echo", "--apply"]);
    assert_eq!(done["applied"], true, "{done}");
    let publishes = [
        "--goal",
        "ship",
        "--namespace",
        "orders",
        "--name",
        "orders",
    ];
    let done = add(
        "/b",
        &[&publishes[..], &["--max-body-size", "64KB", "--apply"]].concat(),
    );
    assert_eq!(done["applied"], true, "{done}");
    let twice = add("/a", &["--plugin", "second", "--apply"]);
    assert!(word(&twice["error"]).contains("already"), "{twice}");
    assert!(
        world.read("config.yaml").starts_with(&before),
        "the rest is as it was"
    );
    let listed = world.json(&["config", "webhook", "list"]);
    let paths = listed.as_array().expect("a list").iter();
    let paths: Vec<String> = paths.map(|one| word(&one["path"])).collect();
    assert_eq!(paths, ["/b", "/a"], "{listed}");
    assert_eq!(
        listed[0]["publish"],
        json!({"goal": "ship", "namespace": "orders"})
    );
    assert_eq!(code(&world.ductile(&["config", "check"])), 0);

    for section in [
        "webhooks:\n  listen: 127.0.0.1:0\n",
        "webhooks:\n  endpoints:\n  listen: 127.0.0.1:0\n",
        "webhooks:\n",
    ] {
        world.config(&format!(
            "{CONFIG}tokens: [{{name: s, key: v}}]\n{section}service: {{name: x}}\n"
        ));
        let done = add("/c", &["--plugin", "echo", "--apply"]);
        assert_eq!(done["applied"], true, "{section}: {done}");
        let listed = world.json(&["config", "webhook", "list"]);
        assert_eq!(listed[0]["path"], "/c", "{section}: {listed}");
        assert_eq!(world.json(&["config", "get", "service.name"]), "x");
    }
    world.config(&format!(
        "{CONFIG}tokens: [{{name: s, key: v}}]\nwebhooks: {{endpoints: []}}\n"
    ));
    let unfit = add("/d", &["--plugin", "echo", "--apply"]);
    assert!(
        word(&unfit["context"]["hint"]).contains("by hand"),
        "{unfit}"
    );
}
