//! The automation commands: with a running service, without one, and beside the Intent Protocol.

use std::path::PathBuf;

use consign_testkit::process::{Options, Server};
use serde_json::Value;

use super::automation_world::{OK, World, until};
use super::{PATIENCE, binary, code, text, word};

fn world() -> World {
    let world = World::new();
    world.plugin("echo", OK);
    world.plugin(
        "broken",
        r#"echo broke >> $here/broke; echo '{"status": "error", "error": "no luck", "retry": false}'"#,
    );
    world.config(
        "plugins: {echo: {schedules: [{cron: '0 12 * * *', timezone: UTC}]}, broken: {}}\n\
         pipelines:\n  - name: twice\n    on: twice.start\n    steps:\n      - {id: a, uses: echo}\n",
    );
    world
}

/// Both names of the binary print a table with these words.
fn shows(world: &World, args: &[&str], words: &[&str]) {
    for output in [world.ductile(args), world.consign(args)] {
        assert_eq!(code(&output), 0, "{args:?}: {output:?}");
        let said = text(&output.stdout);
        for word in words {
            assert!(said.contains(word), "{word} in {args:?}: {said}");
        }
    }
}

#[test]
fn a_plugin_is_run_once_without_a_service_and_its_job_can_be_seen_du_124() {
    let world = world();
    let nothing = world.ductile(&["queue"]);
    assert_eq!(code(&nothing), 1);
    assert!(
        text(&nothing.stderr).contains("hint: start the service"),
        "{nothing:?}"
    );
    assert!(!world.path("state").exists(), "a look makes nothing");
    let ran = world.json(&["run", "echo", "--payload", r#"{"a": 1}"#]);
    assert_eq!(ran["status"], "succeeded", "{ran}");
    assert_eq!(ran["result"]["result"], "done");
    let id = word(&ran["job_id"]);
    let job = world.json(&["job", "show", &id]);
    assert_eq!(job["plugin"], "echo");
    assert_eq!(job["attempt"], 1);
    assert_eq!(job["submitted_by"], "cli");
    shows(&world, &["logs", "echo"], &["succeeded", &id]);
    shows(&world, &["job", "list"], &["JOB", "STATUS", &id]);
    shows(&world, &["job", "inspect", &id], &["succeeded", "done"]);
    shows(&world, &["plugins"], &["echo", "broken", "poll"]);
    shows(&world, &["plugin", "show", "echo"], &["handle", "write"]);
    shows(&world, &["pipeline", "list"], &["twice", "twice.start"]);
    shows(&world, &["pipeline", "show", "twice"], &["echo", "STEP"]);
    shows(
        &world,
        &["schedule", "next", "--count", "1"],
        &["T12:00:00Z", "echo"],
    );
    let failed = world.ductile(&["plugin", "run", "broken"]);
    assert_eq!(code(&failed), 1);
    assert!(text(&failed.stdout).contains("no luck"), "{failed:?}");
    let piped = world.json(&["pipeline", "run", "twice"]);
    assert_eq!(piped["status"], "succeeded", "{piped}");
}

#[test]
fn a_pipeline_that_begins_with_several_jobs_is_waited_for_as_a_whole() {
    let world = world();
    world.plugin("slow", &format!("sleep 1; echo x >> $here/slow; {OK}"));
    world.config(
        "plugins: {echo: {}, slow: {}, broken: {}}\n\
         pipelines:\n  - {name: wide, on: w, steps: [{split: [{uses: echo}, {uses: slow}]}]}\n  \
         - {name: bad, on: b, steps: [{split: [{uses: echo}, {uses: broken}]}]}\n",
    );
    let whole = |ran: &Value, count: usize| {
        assert_eq!(ran["job_ids"].as_array().map(Vec::len), Some(2), "{ran}");
        let tree = ran["tree"].as_array().expect("a list");
        assert_eq!(tree.len(), 2, "{ran}");
        assert_eq!(world.read("slow").lines().count(), count, "{ran}");
    };
    whole(&world.json(&["pipeline", "run", "wide"]), 1);
    let _service = world.start();
    whole(&world.json(&["pipeline", "run", "wide", "--wait"]), 2);
    let failed = world.ductile(&["pipeline", "run", "bad", "--wait"]);
    assert_eq!(code(&failed), 1, "one of its jobs failed: {failed:?}");
}

#[test]
fn wrong_usage_is_json_when_that_was_asked_for_with_the_exit_code_of_the_name_du_113() {
    let world = world();
    for args in [
        &["job", "list", "--odd", "--json"][..],
        &["job", "--json"],
        &["plugin", "run", "--json"],
        &["config", "webhook", "add", "--json"],
        &["status", "--json", "--config"],
        &["nothing", "--json"],
    ] {
        let run = |program: &std::path::Path, args: &[&str]| {
            let output = std::process::Command::new(program).args(args).output();
            output.expect("it runs")
        };
        let as_ductile = run(&world.path("ductile"), args);
        assert_eq!(code(&as_ductile), 1, "{args:?}: {as_ductile:?}");
        assert_eq!(text(&as_ductile.stderr), "", "{args:?}");
        let error: Value = serde_json::from_slice(&as_ductile.stdout).expect("JSON");
        assert_eq!(error["code"], "usage", "{args:?}: {error}");
        assert!(!word(&error["error"]).is_empty(), "{args:?}: {error}");
        assert!(!word(&error["context"]["hint"]).is_empty(), "{error}");
        if matches!(args[0], "job" | "plugin" | "status") {
            let as_consign = run(&binary(), args);
            assert_eq!(code(&as_consign), 2, "{args:?}: {as_consign:?}");
            assert_eq!(text(&as_consign.stderr), "", "{args:?}");
            assert!(text(&as_consign.stdout).starts_with('{'), "{args:?}");
        }
    }
    let plain = world.ductile(&["job", "list", "--odd"]);
    assert_eq!(code(&plain), 1);
    assert!(text(&plain.stderr).contains("error: unexpected argument"));
}

#[test]
fn the_running_service_answers_under_both_names_du_113() {
    let world = world();
    world.plugin("slow", &format!("sleep 60; {OK}"));
    world.config("plugins: {echo: {}, slow: {}, broken: {}}\n");
    let mut service = world.start();
    let ran = world.json(&["run", "echo", "--wait"]);
    assert_eq!(ran["status"], "succeeded", "{ran}");
    let slow = word(&world.json(&["plugin", "run", "slow"])["job_id"]);
    until("it runs", || {
        world.json(&["job", "show", &slow])["status"] == "running"
    });
    shows(&world, &["queue"], &[&slow, "running"]);
    let status = world.json(&["status"]);
    assert_eq!(status["healthy"], true, "{status}");
    assert_eq!(status["queue"]["running"], 1);
    for check in ["config_discovery", "config_load", "state_db", "pid_lock"] {
        let checks = status["checks"].as_array().expect("a list");
        let found = checks.iter().find(|one| one["name"] == check);
        assert_eq!(found.expect("it is checked")["ok"], true, "{status}");
    }
    let mut pid = status["checks"].as_array().expect("a list").iter();
    let pid = pid.find_map(|check| check["active_pid"].as_u64());
    assert_eq!(pid, Some(u64::from(service.pid())));

    let would = world.json(&["job", "cancel", &slow, "--dry-run"]);
    assert_eq!(would["dry_run"], true);
    assert_eq!(world.json(&["job", "show", &slow])["status"], "running");
    assert_eq!(code(&world.ductile(&["job", "cancel", &slow])), 0);
    until("it is over", || {
        world.json(&["queue"])["jobs"]
            .as_array()
            .is_some_and(Vec::is_empty)
    });
    let dead = world.json(&["run", "broken", "--wait"]);
    let dead = word(&dead["job_id"]);
    let again = world.json(&["job", "retry", &dead]);
    assert_eq!(again["job_id"], dead.as_str(), "{again}");
    until("it ran again", || world.read("broke").lines().count() == 2);
    let over = word(&ran["job_id"]);
    let refused = world.ductile(&["job", "retry", &over]);
    assert_eq!(code(&refused), 1, "what succeeded is not done again");
    let breaker = world.json(&["system", "breaker", "echo"]);
    assert_eq!(breaker["state"], "closed", "{breaker}");
    assert_eq!(code(&world.ductile(&["system", "reset", "echo"])), 0);
    let reload = world.ductile(&["system", "reload"]);
    assert_eq!(code(&reload), 0, "{reload:?}");
    service.until_logged("the configuration was reloaded");
    service.signal("INT");
    assert!(service.wait().success());
    let status = world.ductile(&["status"]);
    assert_eq!(code(&status), 1);
    assert!(
        text(&status.stdout).contains("no service runs"),
        "{status:?}"
    );
}

#[test]
fn a_schedule_runs_by_the_clock_and_is_paused_resumed_and_run_by_hand_r_15() {
    let world = world();
    world.plugin("tick", &format!("echo tick >> $here/ticks; {OK}"));
    world.config("service: {tick_interval: 1s}\nplugins: {tick: {schedules: [{every: 1s}]}, echo: {schedules: [{cron: '0 0 1 1 *'}]}}\n");
    let _service = world.start();
    until("the clock starts it twice", || {
        world.read("ticks").lines().count() >= 2
    });
    shows(&world, &["schedule", "list"], &["tick", "every", "active"]);
    assert_eq!(code(&world.ductile(&["schedule", "pause", "tick"])), 0);
    let listed = world.json(&["system", "scheduler"]);
    let paused = listed["jobs"].as_array().expect("a list").iter();
    let paused: Vec<String> = paused.map(|one| word(&one["status"])).collect();
    assert_eq!(paused, ["active", "paused_manual"], "{listed}");
    assert_eq!(code(&world.ductile(&["schedule", "resume", "tick"])), 0);
    let ran = world.json(&["schedule", "run", "echo"]);
    let id = word(&ran["job_id"]);
    until("it ran", || {
        world.json(&["job", "show", &id])["status"] == "succeeded"
    });
    let shown = world.json(&["job", "show", &id]);
    assert_eq!(shown["submitted_by"], "cli", "{shown}");
    let refused = world.ductile(&["schedule", "pause", "echo", "other"]);
    assert_eq!(code(&refused), 1);
    assert!(
        text(&refused.stderr).contains("no schedule `other`"),
        "{refused:?}"
    );
}

#[test]
fn failures_say_what_to_do_and_are_json_when_that_was_asked_for_du_113() {
    let world = world();
    world.json(&["run", "echo"]);
    let failed = |args: &[&str], said: &str| {
        let error = world.json(args);
        assert!(word(&error["error"]).contains(said), "{args:?}: {error}");
        assert!(error["code"].is_string() && error["context"].is_object());
        assert_eq!(code(&world.ductile(args)), 1, "{args:?}");
    };
    failed(&["run", "nobody"], "no plugin has the name `nobody`");
    failed(
        &["run", "echo", "--command", "dance"],
        "has no command `dance`",
    );
    failed(&["run", "echo", "--payload", "[1]"], "not a JSON object");
    failed(
        &["run", "nobody", "--dry-run"],
        "no plugin has the name `nobody`",
    );
    failed(
        &["pipeline", "run", "nothing"],
        "no pipeline has the name `nothing`",
    );
    failed(&["job", "show", "x"], "no job has this id");
    failed(&["logs", "nobody"], "no plugin has the name `nobody`");
    let hinted = world.consign(&["run", "nobody"]);
    assert!(
        text(&hinted.stderr).contains("`consign automation config check --verbose`"),
        "{hinted:?}"
    );
    failed(&["job", "list", "--status", "odd"], "status must be");
    failed(&["system", "reload"], "no service runs");
    for noun in [
        "system", "plugin", "job", "pipeline", "schedule", "queue", "logs", "run",
    ] {
        let help = std::process::Command::new(world.path("ductile"))
            .args([noun, "--help"])
            .output()
            .expect("it runs");
        assert_eq!(code(&help), 0, "{noun}");
        assert!(text(&help.stdout).contains("Usage: ductile"), "{noun}");
    }
}

#[test]
fn a_new_plugin_works_from_its_first_moment() {
    let world = world();
    let planned = world.json(&["plugin", "init", "fresh", "--dry-run"]);
    assert_eq!(planned["dry_run"], true, "{planned}");
    assert!(!world.path("plugins/fresh").exists());
    let made = world.ductile(&["plugin", "init", "fresh"]);
    assert_eq!(code(&made), 0, "{made:?}");
    let dir = world.path("plugins/fresh");
    let dir = dir.to_str().expect("plain");
    let valid = world.json(&["plugin", "validate", dir]);
    assert_eq!(valid["valid"], true, "{valid}");
    assert_eq!(valid["plugin"], "fresh");
    let ran = world.json(&["plugin", "run", "fresh"]);
    assert_eq!(ran["status"], "succeeded", "{ran}");
    for (line, said) in [
        ("#!/bin/sh\r\n", "carriage return"),
        ("#!/no/sh\n", "/no/sh"),
        ("#!/usr/bin/env nope\n", "finds no program `nope`"),
    ] {
        std::fs::write(world.path("plugins/fresh/run.sh"), line).expect("it is written");
        let judged = world.json(&["plugin", "validate", dir]);
        assert_eq!(judged["valid"], false, "{judged}");
        assert!(judged["problems"].to_string().contains(said), "{judged}");
    }
    std::fs::write(world.path("plugins/fresh/manifest.yaml"), "name: [").expect("it is written");
    let refused = world.ductile(&["plugin", "validate", dir]);
    assert_eq!(code(&refused), 1, "{refused:?}");
    let twice = world.ductile(&["plugin", "init", "fresh"]);
    assert_eq!(code(&twice), 1, "what is there is left alone");
}

#[test]
fn the_automation_runs_beside_the_intent_protocol_on_its_ledger() {
    let world = world();
    let data: PathBuf = world.path("data");
    let config = world.path("config.yaml");
    let options = Options::new(binary(), data)
        .arg("--config")
        .arg(config.to_str().expect("plain"));
    let mut server = Server::start(&options).expect("the server starts");
    until("the socket is there", || {
        world.path("state/ductile.sock").exists()
    });
    let ran: Value = world.json(&["run", "echo", "--wait"]);
    assert_eq!(ran["status"], "succeeded", "{ran}");
    assert!(
        !world.path("state/ductile.db").exists(),
        "the ledger is the server's"
    );
    assert_eq!(code(&world.ductile(&["status"])), 0);
    let refused = world.refused();
    assert_eq!(code(&refused), 1, "{refused:?}");
    assert!(server.terminate(PATIENCE).expect("it stops").success());
    assert!(!world.path("state/ductile.sock").exists());
    let mut server = Server::start(&options).expect("the server starts");
    let job = world.json(&["job", "show", &word(&ran["job_id"])]);
    assert_eq!(job["status"], "succeeded", "{job}");
    assert!(server.terminate(PATIENCE).expect("it stops").success());
    world.config("plugins: {nobody: {}}\n");
    let refused = consign_testkit::process::serve_until_exit(&options, PATIENCE);
    assert_eq!(code(&refused.expect("it ends")), 78);
}
