//! Which hooks run, what they read, and how they end.

use super::super::*;
use super::world::*;

#[tokio::test]
async fn cm_100_without_its_section_no_script_runs() {
    let world = World::new();
    world.script("on-message", "touch $OUT/ran");
    let without_file = world.load_files(world.options());
    assert!(without_file.hooks.names().is_empty());
    let off = world.load("[on-message]\nenabled = false\n");
    let mut other = world.load("[on-startup]\n");
    world.script("on-startup", "true");
    for hooks in [&without_file.hooks, &off.hooks, &other.hooks] {
        hooks.fire_message(&message(json!({"id": "e1"})));
    }
    other.hooks.fire(HookKind::Startup, &event(json!({})));
    assert_eq!(other.ends(1).await, ["on-startup"]);
    assert!(!world.path("ran").exists());
}

#[tokio::test]
async fn cm_101_each_script_runs_on_its_own_event() {
    let world = World::new();
    let names = [
        "on-message",
        "on-dm",
        "on-mention",
        "on-topic-alerts",
        "on-topic-a%2Fb",
        "on-file-share",
        "on-disconnect",
        "on-reconnect",
        "on-startup",
    ];
    let sections = names.map(|name| {
        world.script(name, "true");
        format!("[\"{name}\"]\n")
    });
    let settings = sections.concat();
    let mut loaded = world.load(&settings);
    loaded.hooks.fire_message(&message(json!({"id": "e1"})));
    assert_eq!(loaded.ends(2).await, ["on-dm", "on-message"]);
    loaded.hooks.fire_message(&post("alerts"));
    assert_eq!(loaded.ends(2).await, ["on-message", "on-topic-alerts"]);
    loaded.hooks.fire_message(&post("a/b"));
    assert_eq!(loaded.ends(2).await, ["on-message", "on-topic-a%2Fb"]);
    loaded.hooks.fire_message(&post("alerts2"));
    assert_eq!(loaded.ends(1).await, ["on-message"]);
    let mut mention = post("alerts2");
    mention.is_mention = true;
    loaded.hooks.fire_message(&mention);
    assert_eq!(loaded.ends(2).await, ["on-mention", "on-message"]);
    for kind in [
        HookKind::FileShare,
        HookKind::Disconnect,
        HookKind::Reconnect,
        HookKind::Startup,
    ] {
        loaded.hooks.fire(kind, &event(json!({"code": 1})));
        assert_eq!(loaded.ends(1).await, [kind.as_str()]);
    }
}

#[tokio::test]
async fn cm_102_a_hook_has_the_listed_variables_and_no_others() {
    let world = World::new();
    // `env` of the shell's own process: the shell adds PWD, SHLVL and `_` itself.
    world.script(
        "on-dm",
        "cat /proc/$$/environ | tr '\\0' '\\n' > $OUT/environment",
    );
    let settings = "[on-dm]\nnetwork_policy = \"allow\"\n";
    let mut loaded = world.load(settings);
    loaded.hooks.fire_message(&message(json!({"id": "e1"})));
    loaded.end().await;
    let text = world.read("environment");
    let mut variables: Vec<&str> = text.lines().collect();
    variables.sort_unstable();
    let socket = format!("CLAUDEMESH_DAEMON_SOCK={}", world.path("sock").display());
    let expected = [
        &socket,
        "CLAUDEMESH_EVENT_ID=e1",
        "CLAUDEMESH_HOOK_NAME=on-dm",
        "CLAUDEMESH_MESH=team",
        "PATH=/usr/bin:/bin",
    ];
    assert_eq!(variables, expected);
    let with_scope = format!("{settings}capability_token_scope = [\"reply:event\"]\n");
    let mut loaded = world.load(&with_scope);
    loaded.hooks.fire_message(&message(json!({"id": "e1"})));
    loaded.end().await;
    let text = world.read("environment");
    assert_eq!(text.lines().count(), 6);
    assert!(text.contains("CLAUDEMESH_CAPABILITY_TOKEN="), "{text}");
}

#[tokio::test]
async fn cm_007_at_most_eight_hooks_run_at_once_and_the_caller_does_not_wait() {
    let world = World::new();
    // Each run adds itself, waits until the test lets it end, and removes itself.
    world.script(
        "on-message",
        "touch $OUT/run.$$; while [ ! -e $OUT/go ]; do sleep 0.02; done; rm $OUT/run.$$",
    );
    let mut loaded = world.load("[on-message]\nnetwork_policy = \"allow\"\n");
    let running = || {
        let entries = std::fs::read_dir(world.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("run.")).count()
    };
    let mut message = message(json!({"id": "e1"}));
    message.is_direct = false;
    let started = Instant::now();
    for _ in 0..20 {
        loaded.hooks.fire_message(&message);
    }
    assert!(started.elapsed() < Duration::from_secs(1));
    until("eight hooks run", || running() >= 8).await;
    // More would start at once, as these did.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(running(), 8);
    std::fs::write(world.path("go"), "").unwrap();
    assert_eq!(loaded.ends(20).await.len(), 20);
}

#[tokio::test]
async fn more_waiting_hooks_than_the_maximum_are_dropped_and_counted() {
    let world = World::new();
    world.script("on-message", "while [ ! -e $OUT/go ]; do sleep 0.05; done");
    let mut options = world.options();
    options.concurrency = 1;
    let loaded = world.load_with(options, "[on-message]\nnetwork_policy = \"allow\"\n");
    let mut message = message(json!({"id": "e1"}));
    message.is_direct = false;
    for _ in 0..WAITING_HOOKS_MAX + 5 {
        loaded.hooks.fire_message(&message);
    }
    // None of them has started yet, because nothing was awaited since.
    assert_eq!(world.logged("hook_dropped").len(), 5);
    std::fs::write(world.path("go"), "").unwrap();
}

#[tokio::test]
async fn cm_105_after_the_timeout_the_group_is_terminated_and_then_killed() {
    let world = World::new();
    // The child ignores TERM; so only KILL, five seconds later, ends it.
    world.script(
        "on-message",
        "trap 'date +%s%3N > $OUT/term' TERM\n\
         sh -c 'trap \"\" TERM; echo $$ > '$OUT'/child; while :; do sleep 0.1; done' &\n\
         date +%s%3N > $OUT/start; wait; wait",
    );
    let mut loaded = world.load("[on-message]\ntimeout_s = 1\n");
    let mut message = message(json!({"id": "e1"}));
    message.is_direct = false;
    let started = Instant::now();
    loaded.hooks.fire_message(&message);
    let run = loaded.end().await;
    let elapsed = started.elapsed();
    assert!(run.audit.timed_out, "{run:?}");
    assert!(elapsed >= Duration::from_secs(6), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
    let time = |name: &str| world.read(name).trim().parse::<u64>().unwrap();
    assert!(time("term") - time("start") >= 900);
    let child = world.read("child");
    let status = format!("/proc/{}/stat", child.trim());
    // A killed child may still wait for its parent to collect it.
    until("the child is gone", || {
        std::fs::read_to_string(&status).map_or(true, |stat| stat.contains(") Z "))
    })
    .await;
    assert_eq!(world.logged("hook_timed_out").len(), 1);
}

#[tokio::test]
async fn a_hook_that_ends_on_term_is_not_waited_for() {
    let world = World::new();
    world.script("on-message", "sleep 60");
    let mut loaded = world.load("[on-message]\ntimeout_s = 1\n");
    let mut message = message(json!({"id": "e1"}));
    message.is_direct = false;
    let started = Instant::now();
    loaded.hooks.fire_message(&message);
    let run = loaded.end().await;
    assert!(run.audit.timed_out && run.audit.exit == 143, "{run:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn cm_106_long_events_and_long_outputs_are_cut() {
    let world = World::new();
    world.script(
        "on-dm",
        "cat > $OUT/input; head -c 100000 /dev/zero | tr '\\0' 'x'; head -c 70000 /dev/zero >&2",
    );
    let mut loaded = world.load("[on-dm]\nnetwork_policy = \"allow\"\n");
    let long = json!({"id": "e1", "body": "é".repeat(200_000)});
    loaded.hooks.fire_message(&message(long));
    let run = loaded.end().await;
    assert_eq!(run.audit.stdout_bytes, 100_000);
    assert_eq!(run.audit.stderr_bytes, 70_000);
    let input = world.read("input");
    assert!(
        input.len() <= 262_144 && input.len() > 200_000,
        "{}",
        input.len()
    );
    let input: Value = serde_json::from_str(&input).unwrap();
    assert_eq!(input["_truncated"], true);
    assert_eq!(world.logged("hook_output_truncated").len(), 1);
}

#[tokio::test]
async fn cm_107_redacted_paths_are_not_in_the_input() {
    let world = World::new();
    world.script("on-dm", "cat > $OUT/input");
    let mut loaded = world.load("[on-dm]\nredact_payload = [\"body\", \"$.meta.key\"]\n");
    let value = json!({"id": "e1", "body": "private", "meta": {"key": "private", "other": 1}});
    loaded.hooks.fire_message(&message(value));
    loaded.end().await;
    let input: Value = serde_json::from_str(&world.read("input")).unwrap();
    assert_eq!(input, json!({"id": "e1", "meta": {"other": 1}}));
}

#[tokio::test]
async fn cm_108_a_reply_is_posted_only_if_it_is_allowed() {
    let world = World::new();
    world.script("on-dm", "echo '{\"reply\": \"pong\"}'");
    let value = json!({"id": "e1", "broker_message_id": "b-1"});
    let mut closed = world.load("[on-dm]\n");
    closed.hooks.fire_message(&message(value.clone()));
    let run = closed.end().await;
    assert!(run.reply.is_none() && !run.audit.replied);
    let mut open = world.load("[on-dm]\nallow_reply = true\n");
    open.hooks.fire_message(&message(value));
    let run = open.end().await;
    let reply = run.reply.unwrap();
    assert!(run.audit.replied);
    assert_eq!(reply.message, "pong");
    let sender = crate::daemon::test_keys::key(2).public_key().to_string();
    assert_eq!(reply.to, sender);
    assert_eq!(reply.reply_to_id.as_deref(), Some("b-1"));
    world.script("on-dm", "echo '{\"reply\": \"pong\"}'; exit 3");
    let mut failed = world.load("[on-dm]\nallow_reply = true\n");
    failed.hooks.fire_message(&message(json!({"id": "e1"})));
    assert!(failed.end().await.reply.is_none());
}

#[tokio::test]
async fn a_reply_to_a_post_goes_to_its_topic() {
    let world = World::new();
    world.script("on-topic-alerts", "echo '{\"reply\": \"seen\"}'");
    let mut loaded = world.load("[on-topic-alerts]\nallow_reply = true\n");
    loaded.hooks.fire_message(&post("alerts"));
    let reply = loaded.end().await.reply.unwrap();
    assert_eq!(reply.to, "#alerts");
}

#[tokio::test]
async fn cm_110_each_run_has_an_audit_line() {
    let world = World::new();
    world.script("on-dm", "printf out; printf error >&2; exit 7");
    let mut loaded = world.load("[on-dm]\n");
    loaded.hooks.fire_message(&message(json!({"id": "e1"})));
    let run = loaded.end().await;
    let line = &world.logged("hook_executed")[0];
    let data = run.audit.to_value();
    for (key, value) in data.as_object().unwrap() {
        if key != "ts" {
            assert_eq!(&line[key], value, "{key}");
        }
    }
    for key in [
        "hook",
        "event_id",
        "exit",
        "duration_ms",
        "stdout_bytes",
        "stderr_bytes",
        "replied",
        "capability_calls",
        "ts",
    ] {
        assert!(line.get(key).is_some(), "{key}");
    }
    assert_eq!(line["exit"], 7);
    assert_eq!(line["stdout_bytes"], 3);
    assert_eq!(line["stderr_bytes"], 5);
    assert_eq!(world.logged("hook_failed")[0]["stderr"], "error");
    let metric = DaemonMetric::HookInvocations;
    assert_eq!(world.metrics.get(metric, &["on-dm", "7"]), 1);
    let mut quiet = world.load("[on-dm]\naudit = false\n");
    quiet.hooks.fire_message(&message(json!({"id": "e1"})));
    quiet.end().await;
    assert_eq!(world.logged("hook_executed").len(), 1);
}

#[tokio::test]
async fn a_script_that_cannot_start_is_reported() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    world.script("on-dm", "true");
    let script = world.path("hooks/on-dm.sh");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut loaded = world.load("[on-dm]\nnetwork_policy = \"allow\"\n");
    loaded.hooks.fire_message(&message(json!({"id": "e1"})));
    assert_eq!(loaded.end().await.audit.exit, 126);
    assert_eq!(world.logged("hook_not_started").len(), 1);
}

#[tokio::test]
async fn settings_are_read_again_and_invalid_ones_are_refused() {
    let world = World::new();
    let loaded = world.load("[on-dm]\n");
    let path = world.path("hooks/hooks.toml");
    std::fs::write(&path, "[on-massage]\n").unwrap();
    loaded.hooks.reload().unwrap_err();
    assert_eq!(loaded.hooks.names(), ["on-dm"]);
    std::fs::write(&path, "[on-startup]\n").unwrap();
    loaded.hooks.reload().unwrap();
    assert_eq!(loaded.hooks.names(), ["on-startup"]);
    assert!(!world.logged("hook_script_missing").is_empty());
}
