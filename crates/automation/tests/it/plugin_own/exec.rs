//! `exec` with commands that succeed and fail.

use std::time::{Duration, Instant};

use consign_automation::plugin::outcome::FailureReason;
use serde_json::{Value, json};

use super::{ask, refused, run};
use crate::plugin_world::{World, failure, is_soon_dead};

fn handle(config: &Value, payload: &Value) -> Value {
    json!({"config": config, "event": {"type": "t", "payload": payload}})
}

fn bash(script: &str) -> Value {
    json!({"command": ["bash", "-c", script]})
}

/// The output of the command and its exit status.
async fn completed(config: Value, payload: Value) -> Value {
    let response = ask("exec", "handle", handle(&config, &payload)).await;
    assert_eq!(response.events[0].kind, "exec.completed");
    response.events[0].payload.clone()
}

#[tokio::test]
async fn the_payload_is_on_standard_input_and_nothing_of_it_is_executed() {
    let world = World::new();
    let trap = world.path("trap");
    let evil = format!("$(touch {0}); touch {0}; `touch {0}`", trap.display());
    let payload = json!({"name": evil, "command": ["touch", trap]});
    let seen = completed(json!({"command": ["cat"]}), payload.clone()).await;
    let stdout: Value = serde_json::from_str(seen["stdout"].as_str().unwrap()).unwrap();
    assert_eq!(stdout, payload);
    let literal = completed(
        json!({"command": ["printf", "%s", "$HOME; true"]}),
        json!({}),
    )
    .await;
    assert_eq!(literal["stdout"], "$HOME; true");
    assert!(!trap.exists());

    let scheduled = json!({"config": {"command": ["cat"]}, "payload": {"a": 1}});
    let polled = ask("exec", "poll", scheduled).await;
    assert_eq!(polled.events[0].payload["stdout"], "{\"a\": 1}\n");
}

#[tokio::test]
async fn a_payload_adds_only_arguments_that_are_listed() {
    let command = json!({"command": ["echo"]});
    let wanted = json!({"args": ["-n", "hello"]});
    let told = refused("exec", "handle", handle(&command, &wanted)).await;
    assert!(told.contains("config.payload_args"), "{told}");
    let listed = json!({"command": ["echo"], "payload_args": ["-n", "hello"]});
    assert_eq!(completed(listed.clone(), wanted).await["stdout"], "hello");
    for args in [
        json!(["-n", "other"]),
        json!(["hello "]),
        json!("-n"),
        json!([["-n"]]),
    ] {
        refused("exec", "handle", handle(&listed, &json!({"args": args}))).await;
    }
}

#[tokio::test]
async fn an_exit_code_fails_the_job_or_is_told() {
    let script = bash("echo out; echo because >&2; exit 3");
    let failed = failure(&run("exec", "handle", handle(&script, &json!({}))).await);
    assert_eq!(failed.reason, FailureReason::PluginError);
    assert!(failed.error.contains("code 3: because"), "{failed:?}");
    let mut once = script.clone();
    once["retry"] = json!(false);
    let failed = failure(&run("exec", "handle", handle(&once, &json!({}))).await);
    assert_eq!(failed.reason, FailureReason::PluginRetryFalse);
    let mut told = script;
    told["fail_on_nonzero"] = json!(false);
    let told = completed(told, json!({})).await;
    assert_eq!(
        (&told["exit_code"], &told["stdout"]),
        (&json!(3), &json!("out\n"))
    );
}

#[tokio::test]
async fn output_is_cut_and_a_large_payload_is_no_deadlock() {
    let script =
        "import sys; sys.stdout.write('x' * 20_000_000); sys.stderr.buffer.write(b'\\xff')";
    let config = json!({"command": ["python3", "-c", script], "output_bytes_max": 1000});
    let payload = json!({"much": "y".repeat(3_000_000)});
    let seen = completed(config, payload).await;
    assert_eq!(seen["stdout"].as_str().unwrap().len(), 1000);
    assert_eq!(
        (&seen["truncated"], &seen["stderr"]),
        (&json!(true), &json!("\u{fffd}"))
    );
}

#[tokio::test]
async fn a_command_that_hangs_or_leaves_children_is_ended() {
    let started = Instant::now();
    let mut hanging = bash("trap '' TERM; sleep 60 & echo $! >&2; wait; sleep 60");
    hanging["timeout_seconds"] = json!(0.5);
    let failed = failure(&run("exec", "handle", handle(&hanging, &json!({}))).await);
    assert!(
        failed.error.contains("did not end within 0.5 s"),
        "{failed:?}"
    );
    let child = failed.error.rsplit(' ').next().unwrap();
    assert!(is_soon_dead(child).await);
    let leaving = completed(bash("sleep 60 & echo $!"), json!({})).await;
    assert!(is_soon_dead(leaving["stdout"].as_str().unwrap()).await);
    assert!(started.elapsed() < Duration::from_secs(12));
}

#[tokio::test]
async fn a_command_must_be_a_list_of_texts_and_its_program_must_be_there() {
    for command in [
        json!("rm -rf /"),
        json!([]),
        json!([""]),
        json!(["echo", 7]),
        json!(["a\u{0}b"]),
        json!({}),
    ] {
        let told = refused("exec", "poll", json!({"config": {"command": command}})).await;
        assert!(told.contains("config.command must be"), "{command}: {told}");
    }
    let missing = json!({"config": {"command": ["/no/such/program"]}});
    assert!(
        refused("exec", "poll", missing.clone())
            .await
            .contains("/no/such/program")
    );
    let health = failure(&run("exec", "health", missing).await);
    assert_eq!(health.reason, FailureReason::PluginRetryFalse);
    let there = ask("exec", "health", json!({"config": {"command": ["cat"]}})).await;
    assert!(there.result.contains("/cat"));
}
