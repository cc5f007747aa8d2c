//! Reloads of the configuration.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use consign_automation::runtime::reads::ServiceCheck;
use consign_automation::runtime::{ReloadError, Runtime, records};
use consign_kernel::ids::IntentId;
use consign_kernel::state::State;
use serde_json::{Value, json};

use crate::world::{OK, PATIENCE, WAITS, World, run};

const TICK: &str = "service: {tick_interval: 100ms}\n";
/// While it runs, all other jobs wait.
const ONE_WORKER: &str = "service: {tick_interval: 100ms, max_workers: 1}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_jobs_of_a_removed_plugin_die_and_running_ones_go_on_du_118() {
    let world = World::new();
    let body = format!("{WAITS}{OK}");
    world.plugin("mail", &body);
    world.plugin("note", OK);
    let with = format!("{TICK}plugins: {{mail: {{parallelism: 1, config: {{a: 1}}}}, note: {{}}}}");
    let runtime = world.start(&with).await;
    let running = run(&runtime, "mail", "poll", Value::Null).await;
    world.until(running, |_| world.path("began").exists()).await;
    let mut waiting = Vec::new();
    // More than one batch.
    for _ in 0..450 {
        waiting.push(run(&runtime, "mail", "poll", Value::Null).await);
    }
    let without = format!("{TICK}plugins: {{mail: {{enabled: false}}, note: {{}}}}");
    let reloaded = runtime.reload(world.program(&without)).await.unwrap();
    assert_eq!(
        (reloaded.ended_jobs, reloaded.removed),
        (450, vec!["mail".to_owned()])
    );
    for id in [waiting[0], waiting[449]] {
        let dead = world.intent(id).await;
        assert_eq!(dead.state, State::DeadLetter);
        let reason = "its plugin was removed or disabled";
        assert_eq!(dead.last_error.as_deref(), Some(reason));
    }
    assert_eq!(world.intent(running).await.state, State::Dispatched);
    std::fs::write(world.path("go"), "").unwrap();
    assert_eq!(world.ended(running).await.state, State::Acked);
    let refused = runtime.run_plugin(
        "mail",
        "poll",
        Value::Null,
        "",
        consign_automation::runtime::SubmittedBy::Api,
    );
    assert!(refused.await.is_err(), "none new");
    let reloaded = runtime.reload(world.program(&with)).await.unwrap();
    assert_eq!(reloaded.added, ["mail"]);
    let id = run(&runtime, "mail", "poll", Value::Null).await;
    assert_eq!(world.ended(id).await.state, State::Acked, "it is back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_jobs_of_a_plugin_that_is_only_left_out_wait_for_it_du_118() {
    let world = World::new();
    world.plugin("first", &format!("{WAITS}{OK}"));
    for name in ["bare", "broken", "needy"] {
        world.plugin(name, OK);
    }
    let manifest = |name: &str| world.path(&format!("plugins/{name}/manifest.yaml"));
    // The name of a plugin may differ from that of its directory.
    let renamed = world.path("plugins/elsewhere");
    std::fs::rename(world.path("plugins/broken"), &renamed).unwrap();
    let config = format!("{ONE_WORKER}plugins: {{bare: {{}}, other: {{uses: bare}}}}");
    let runtime = world.start(&config).await;
    let first = run(&runtime, "first", "poll", Value::Null).await;
    world.until(first, |_| world.path("began").exists()).await;
    let names = ["bare", "broken", "needy", "other"];
    let mut waiting = Vec::new();
    for name in names {
        waiting.push(run(&runtime, name, "poll", Value::Null).await);
    }
    let program = world.path("plugins/bare/run");
    let may_run = |may: bool| {
        let mode = std::fs::Permissions::from_mode(if may { 0o755 } else { 0o644 });
        std::fs::set_permissions(&program, mode).unwrap();
    };
    may_run(false);
    let whole = std::fs::read_to_string(renamed.join("manifest.yaml")).unwrap();
    std::fs::write(renamed.join("manifest.yaml"), "name: [").unwrap();
    let needs = std::fs::read_to_string(manifest("needy")).unwrap();
    let needs_key = format!("{needs}config_keys: {{required: [key]}}\n");
    std::fs::write(manifest("needy"), needs_key).unwrap();
    let reloaded = runtime.reload(world.program(&config)).await.unwrap();
    assert_eq!(reloaded.removed, [""; 0]);
    assert_eq!(reloaded.left_out, names);
    assert_eq!(reloaded.ended_jobs, 0);
    std::fs::write(world.path("go"), "").unwrap();
    // More than one housekeeping round.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for id in &waiting {
        assert_eq!(world.intent(*id).await.state, State::Queued);
    }
    may_run(true);
    std::fs::write(renamed.join("manifest.yaml"), whole).unwrap();
    std::fs::write(manifest("needy"), needs).unwrap();
    let reloaded = runtime.reload(world.program(&config)).await.unwrap();
    assert_eq!(reloaded.added, names);
    for id in waiting {
        assert_eq!(world.ended(id).await.state, State::Acked);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_is_gone_from_the_configuration_and_the_disk_takes_its_jobs_along_du_118() {
    let world = World::new();
    world.plugin("first", &format!("{WAITS}{OK}"));
    world.plugin("mail", OK);
    let config = format!("{ONE_WORKER}plugins: {{other: {{uses: first}}}}");
    let runtime = world.start(&config).await;
    let first = run(&runtime, "first", "poll", Value::Null).await;
    world.until(first, |_| world.path("began").exists()).await;
    let mut waiting = Vec::new();
    for name in ["mail", "other"] {
        waiting.push(run(&runtime, name, "poll", Value::Null).await);
    }
    std::fs::remove_dir_all(world.path("plugins/mail")).unwrap();
    let reloaded = runtime.reload(world.program(ONE_WORKER)).await.unwrap();
    assert_eq!(reloaded.removed, ["mail", "other"]);
    for id in waiting {
        assert_eq!(world.intent(id).await.state, State::DeadLetter);
    }
    std::fs::write(world.path("go"), "").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_fails_after_its_plugin_was_removed_does_not_wait_for_ever_du_118() {
    let world = World::new();
    world.plugin("mail", &format!("{WAITS}exit 1"));
    let config =
        format!("{TICK}plugins: {{mail: {{retry: {{max_attempts: 9, backoff_base: 10ms}}}}}}");
    let runtime = world.start(&config).await;
    let id = run(&runtime, "mail", "poll", Value::Null).await;
    world.until(id, |_| world.path("began").exists()).await;
    let without = format!("{TICK}plugins: {{mail: {{enabled: false}}}}");
    runtime.reload(world.program(&without)).await.unwrap();
    std::fs::write(world.path("go"), "").unwrap();
    assert_eq!(world.ended(id).await.state, State::DeadLetter);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_opened_at_start_cannot_change_and_the_old_one_stays_du_117_du_118() {
    let world = World::new();
    world.plugin("mail", OK);
    let runtime = world.start(TICK).await;
    let before = runtime.program();
    for (config, key) in [
        ("state: {path: other.db}", "state.path"),
        (
            "api: {enabled: true, auth: {tokens: [{token: a-token-long-enough, scopes: ['*']}]}}",
            "api.enabled",
        ),
        ("api: {listen: '127.0.0.1:9999'}", "api.listen"),
        (
            "webhooks: {listen: '127.0.0.1:9998', endpoints: []}",
            "webhooks.listen",
        ),
    ] {
        let refused = runtime.reload(world.program(config)).await;
        assert!(
            matches!(refused, Err(ReloadError::NeedsRestart(found)) if found == key),
            "{key}"
        );
        assert!(std::sync::Arc::ptr_eq(&runtime.program(), &before));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_routes_and_plugin_configuration_hold_from_then_on_du_117() {
    let world = World::new();
    world.python("mail", "", "open(here + '/seen', 'a').write(json.dumps(request['config']) + '\\n')\nok(events=[{'type': 'e', 'payload': {}}])");
    let runtime = world
        .start(&format!("{TICK}plugins: {{mail: {{config: {{a: 1}}}}}}"))
        .await;
    let id = run(&runtime, "mail", "poll", Value::Null).await;
    world.ended(id).await;
    world.python(
        "note",
        "  init: {type: write}\n",
        "open(here + '/noted', 'a').write(request['command'] + '\\n')\nok()",
    );
    let config = format!(
        "{TICK}plugins: {{mail: {{config: {{a: 2}}, schedules: [{{every: 1h, command: work}}]}}, note: {{}}}}\n\
         routes: [{{from: mail, event_type: e, to: note}}]"
    );
    let reloaded = runtime.reload(world.program(&config)).await.unwrap();
    assert_eq!(reloaded.added, ["note"]);
    let jobs = world.jobs_are("mail", 2).await;
    assert_eq!(jobs[1].0.schedule_id.as_deref(), Some("default"));
    world.tree(jobs[1].1.id).await;
    let seen: Vec<Value> = world
        .read("seen")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(seen, [json!({"a": 1}), json!({"a": 2})]);
    assert_eq!(
        world.read("noted"),
        "init\nhandle\n",
        "a new plugin is set up first"
    );
    runtime.stop(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_cannot_end_all_jobs_holds_and_says_so_and_the_rest_ends_later_du_118() {
    let world = World::new();
    world.plugin("first", &format!("{WAITS}{OK}"));
    world.plugin("mail", OK);
    let runtime = world.start(ONE_WORKER).await;
    let first = run(&runtime, "first", "poll", Value::Null).await;
    world.until(first, |_| world.path("began").exists()).await;
    let waiting = run(&runtime, "mail", "poll", Value::Null).await;
    world.obstacles.refuse_ends(true);
    let without = format!("{ONE_WORKER}plugins: {{mail: {{enabled: false}}}}");
    let reloaded = runtime.reload(world.program(&without)).await.unwrap();
    assert!(reloaded.unfinished);
    assert_eq!(reloaded.ended_jobs, 0);
    assert!(runtime.program().plugin("mail").is_none(), "it holds");
    world.obstacles.refuse_ends(false);
    assert_eq!(world.ended(waiting).await.state, State::DeadLetter);
    std::fs::write(world.path("go"), "").unwrap();
}

/// A job of `mail` that waits while no service runs.
async fn left_waiting(world: &World) -> IntentId {
    world.plugin("mail", OK);
    let idle = world.idle("");
    run(&idle, "mail", "poll", Value::Null).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_ends_what_waits_for_a_disabled_plugin_du_116_du_118() {
    let world = World::new();
    let waiting = left_waiting(&world).await;
    let runtime = world
        .start(&format!("{TICK}plugins: {{mail: {{enabled: false}}}}"))
        .await;
    assert_eq!(world.ended(waiting).await.state, State::DeadLetter);
    assert_eq!(stranded(&runtime).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_was_cut_off_is_gone_on_with_at_the_next_start_du_116_du_118() {
    let world = World::new();
    world.plugin("first", &format!("{WAITS}{OK}"));
    world.plugin("mail", OK);
    let mortal = world.start_mortal(ONE_WORKER);
    let first = run(&mortal.runtime, "first", "poll", Value::Null).await;
    world.until(first, |_| world.path("began").exists()).await;
    let waiting = run(&mortal.runtime, "mail", "poll", Value::Null).await;
    std::fs::remove_dir_all(world.path("plugins/mail")).unwrap();
    world.obstacles.refuse_ends(true);
    let program = world.program(ONE_WORKER);
    let reloaded = mortal.runtime.reload(program).await.unwrap();
    assert_eq!(reloaded.removed, ["mail"]);
    assert!(reloaded.unfinished);
    mortal.die();
    assert_eq!(world.intent(waiting).await.state, State::Queued);
    world.obstacles.refuse_ends(false);
    std::fs::write(world.path("go"), "").unwrap();
    let runtime = world.start(ONE_WORKER).await;
    assert_eq!(world.ended(waiting).await.state, State::DeadLetter);
    // Nothing is left to do, so a job that is queued in another way is not cancelled.
    let note = records::removal_key("here", "mail");
    let began = Instant::now();
    while world.record(note.clone()).await.is_some() {
        assert!(began.elapsed() < PATIENCE, "the note stays");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    runtime.stop(Duration::from_secs(5)).await;
}

/// The check of the jobs of `mail`, which is the same in status and doctor.
async fn stranded(runtime: &Runtime) -> Option<ServiceCheck> {
    let of = |checks: &[ServiceCheck]| {
        let mut checks = checks.iter();
        checks.find(|check| check.name == "jobs of mail").cloned()
    };
    let status = runtime.status().await.unwrap();
    let told = of(&status.checks);
    assert_eq!(of(&runtime.doctor().await.unwrap()), told);
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_plugin_that_means_nothing_here_wait_and_are_told_du_116() {
    let world = World::new();
    let waiting = left_waiting(&world).await;
    let aside = world.path("aside");
    std::fs::rename(world.path("plugins/mail"), &aside).unwrap();
    let runtime = world.start(TICK).await;
    let told = stranded(&runtime).await.unwrap();
    assert!(!told.ok);
    let detail = told.detail.unwrap();
    for part in [
        "cannot run: 1;",
        "no plugin has the name `mail`",
        "job cancel",
    ] {
        assert!(detail.contains(part), "{detail}");
    }
    assert!(!runtime.status().await.unwrap().is_healthy());
    // More than one housekeeping round.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(world.intent(waiting).await.state, State::Queued);
    std::fs::rename(aside, world.path("plugins/mail")).unwrap();
    runtime.reload(world.program(TICK)).await.unwrap();
    assert_eq!(world.ended(waiting).await.state, State::Acked);
    assert_eq!(stranded(&runtime).await, None);
}
