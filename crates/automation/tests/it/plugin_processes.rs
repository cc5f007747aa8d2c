//! Real processes that succeed and fail.

use std::time::{Duration, Instant};

use consign_automation::plugin::environment::{PluginVariables, for_plugins};
use consign_automation::plugin::outcome::{FailureReason, PluginOutcome, classify, warnings};
use consign_automation::plugin::run::{ExitKind, run};
use rustix::process::{Pid, Signal, kill_process};

use crate::plugin_world::{OK, World, environment, failure, finish, is_alive, is_soon_dead};

/// Long enough for a script to reach its point on a busy machine.
const PATIENCE: Duration = Duration::from_millis(1_500);

fn is_success(outcome: &PluginOutcome) -> bool {
    matches!(outcome, PluginOutcome::Succeeded(response) if response.result == "done")
}

#[tokio::test]
async fn a_plugin_that_hangs_is_ended_with_its_children_du_044() {
    let world = World::new();
    let mut job = world.bash("sleep 60 & echo $!\nwait");
    job.timeout = PATIENCE;
    job.limits.grace = Duration::from_secs(5);
    let ended = finish(job).await;
    assert_eq!(classify(&ended), PluginOutcome::TimedOut);
    assert_eq!(classify(&ended).reason(), Some(FailureReason::Timeout));
    assert!(ended.elapsed < Duration::from_secs(5), "{ended:?}");
    assert!(is_soon_dead(&ended.stdout.text()).await);
}

#[tokio::test]
async fn sigterm_comes_first_and_an_answer_after_the_deadline_rescues_nothing_du_044() {
    let world = World::new();
    let mut job = world.bash(&format!(
        "late() {{ echo asked >&2; {OK}; exit 0; }}\ntrap late TERM\nsleep 60 & wait"
    ));
    job.timeout = PATIENCE;
    job.limits.grace = Duration::from_secs(5);
    let ended = finish(job).await;
    assert_eq!(classify(&ended), PluginOutcome::TimedOut);
    assert_eq!(ended.stderr.text(), "asked\n");
    assert!(ended.stdout.text().contains("done"));
    assert!(ended.elapsed < Duration::from_secs(5), "{ended:?}");
}

#[tokio::test]
async fn what_a_plugin_started_has_the_grace_too_though_the_plugin_ends_at_once_du_044() {
    let world = World::new();
    let tidied = world.path("tidied");
    let child = format!(
        "trap \"sleep 0.5; echo yes > {}; exit\" TERM; while :; do sleep 0.05; done",
        tidied.display()
    );
    let mut job = world.bash(&format!(
        "trap 'exit 0' TERM\nbash -c '{child}' >/dev/null 2>&1 &\nwait"
    ));
    job.timeout = PATIENCE;
    job.limits.grace = Duration::from_secs(5);
    let ended = finish(job).await;
    assert_eq!(classify(&ended), PluginOutcome::TimedOut);
    assert_eq!(std::fs::read_to_string(tidied).unwrap(), "yes\n");
    assert!(ended.elapsed < Duration::from_secs(5), "{ended:?}");
}

#[tokio::test]
async fn a_plugin_that_ignores_sigterm_is_killed_after_the_grace_du_044() {
    let world = World::new();
    let mut job = world.bash("trap '' TERM\nsleep 60 & echo $!\nwhile :; do sleep 60; done");
    job.timeout = PATIENCE;
    let ended = finish(job).await;
    assert_eq!(classify(&ended), PluginOutcome::TimedOut);
    assert!(
        ended.elapsed >= PATIENCE + Duration::from_millis(400),
        "{ended:?}"
    );
    assert!(ended.elapsed < Duration::from_secs(5), "{ended:?}");
    assert!(is_soon_dead(&ended.stdout.text()).await);
}

#[tokio::test]
async fn what_a_plugin_leaves_in_its_group_is_killed_after_its_end_du_044() {
    let world = World::new();
    let ended = finish(world.bash(&format!("sleep 60 & echo $! >&2\n{OK}"))).await;
    assert!(is_success(&classify(&ended)), "{ended:?}");
    assert!(ended.elapsed < Duration::from_secs(5), "{ended:?}");
    assert!(is_soon_dead(&ended.stderr.text()).await);
}

#[tokio::test]
async fn a_detached_process_that_holds_the_pipes_holds_nobody_up_du_044() {
    let world = World::new();
    let script = format!("setsid bash -c 'echo $$ >&2; exec sleep 60' &\nsleep 0.3\n{OK}");
    let ended = finish(world.bash(&script)).await;
    let detached = ended.stderr.text().trim().parse().unwrap();
    let was_alive = is_alive(&ended.stderr.text());
    kill_process(Pid::from_raw(detached).unwrap(), Signal::KILL).unwrap();
    assert!(was_alive, "it did not get away, so nothing was tried");
    assert!(is_success(&classify(&ended)), "{ended:?}");
    assert!(ended.elapsed < Duration::from_secs(5), "{ended:?}");
}

#[tokio::test]
async fn output_over_the_limit_fails_with_its_beginning_kept_du_042() {
    let world = World::new();
    let job =
        world.python("sys.stdout.write('x' * 20_000_000); sys.stdout.flush(); os.write(2, b'end')");
    let ended = finish(job).await;
    let failure = failure(&ended);
    assert_eq!(failure.reason, FailureReason::OutputTooLong);
    assert!(failure.is_retryable());
    assert_eq!(ended.stdout.bytes.len(), 10 << 20);
    assert!(ended.stdout.bytes.iter().all(|byte| *byte == b'x'));
    assert_eq!(ended.stderr.text(), "end", "the child was held up");
}

#[tokio::test]
async fn standard_error_is_kept_to_its_limit_and_fails_nothing_du_043() {
    let world = World::new();
    let job = world.python(
        "os.write(2, b'first'); sys.stderr.write('e' * 1_000_000); sys.stderr.flush()\n\
         print(json.dumps({'status': 'ok', 'result': 'done'}))",
    );
    let ended = finish(job).await;
    assert!(is_success(&classify(&ended)), "{ended:?}");
    assert_eq!(ended.stderr.bytes.len(), 64 << 10);
    assert!(ended.stderr.text().starts_with("first") && ended.stderr.is_truncated);
    assert!(warnings(&ended)[0].contains("65536 bytes"));
}

#[tokio::test]
async fn endless_standard_error_only_lasts_until_the_deadline_du_043() {
    let world = World::new();
    let mut job = world.bash("while :; do echo noise >&2; done");
    job.timeout = PATIENCE;
    let ended = finish(job).await;
    assert_eq!(classify(&ended), PluginOutcome::TimedOut);
    assert_eq!(ended.stderr.bytes.len(), 64 << 10);
    assert!(ended.elapsed < Duration::from_secs(5));
}

#[tokio::test]
async fn a_broken_answer_fails_with_all_output_kept_du_038() {
    let world = World::new();
    for (body, reason) in [
        (r#"echo '{"status":"ok","resu'"#, FailureReason::Protocol),
        ("echo Starting; echo '{}'", FailureReason::Protocol),
        ("printf '\\xff\\xfe'", FailureReason::Protocol),
        ("echo", FailureReason::NilResponse),
        ("exit 3", FailureReason::NilResponse),
    ] {
        let ended = finish(world.bash(&format!("echo because >&2\n{body}"))).await;
        let failure = failure(&ended);
        assert_eq!(failure.reason, reason, "{body}: {failure:?}");
        assert!(failure.is_retryable() && failure.error.contains("because"));
        assert_eq!(ended.stderr.text(), "because\n");
        assert_eq!(ended.stdout.bytes.is_empty(), body == "exit 3");
    }
}

#[tokio::test]
async fn an_exit_code_other_than_78_leaves_the_word_to_the_answer_du_040() {
    let world = World::new();
    let ended = finish(world.bash(&format!("{OK}; exit 3"))).await;
    assert!(is_success(&classify(&ended)), "{ended:?}");
    assert_eq!(warnings(&ended), ["the plugin exited with code 3"]);

    let refused = r#"echo '{"status":"error","error":"no network"}'; exit 1"#;
    let failure = failure(&finish(world.bash(refused)).await);
    assert_eq!(
        (failure.reason, failure.error.as_str()),
        (FailureReason::PluginError, "no network")
    );
}

#[tokio::test]
async fn exit_code_78_is_final_whatever_was_answered_du_039() {
    let world = World::new();
    for body in [
        OK,
        "echo no api key >&2",
        r#"echo '{"status":"error","error":"no api key"}'"#,
    ] {
        let failure = failure(&finish(world.bash(&format!("{body}; exit 78"))).await);
        assert_eq!(failure.reason, FailureReason::ExitCode78);
        assert!(!failure.is_retryable());
        assert!(
            body == OK || failure.error.contains("no api key"),
            "{failure:?}"
        );
    }
}

#[tokio::test]
async fn a_plugin_need_not_read_its_request_du_047() {
    let world = World::new();
    for body in [
        format!("exec <&-; {OK}"),
        OK.to_owned(),
        format!("sleep 0.2; {OK}"),
    ] {
        let mut job = world.bash(&body);
        job.request = vec![b' '; 5_000_000];
        let ended = finish(job).await;
        assert!(is_success(&classify(&ended)), "{ended:?}");
    }
}

#[tokio::test]
async fn a_plugin_may_write_before_it_reads_a_large_request_du_047() {
    let world = World::new();
    let mut job = world.python(
        "sys.stdout.write(' ' * 1_000_000); sys.stdout.flush()\n\
         asked = sys.stdin.read()\n\
         print(json.dumps({'status': 'ok', 'result': str(len(asked))}))",
    );
    job.request = vec![b' '; 5_000_000];
    let ended = finish(job).await;
    let PluginOutcome::Succeeded(response) = classify(&ended) else {
        panic!("{ended:?}");
    };
    assert_eq!(response.result, "5000000");
}

#[tokio::test]
async fn a_plugin_that_kills_its_group_kills_nobody_else_du_038() {
    let world = World::new();
    let failure = failure(&finish(world.bash("kill -9 0; sleep 60")).await);
    assert_eq!(failure.reason, FailureReason::NilResponse);
    assert!(
        failure.error.contains("was killed by signal 9"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_program_that_cannot_start_says_why_du_038() {
    let world = World::new();
    for (program, part) in [
        (
            world.file("odd", "#!/no/such/interpreter\n", 0o755),
            "interpreter",
        ),
        (
            world.file("foreign", "#!/bin/sh\r\n", 0o755),
            "carriage return",
        ),
        (world.file("locked", "#!/bin/sh\n", 0o644), "chmod +x"),
        (world.path("gone"), "install the plugin again"),
        (
            world.file("bare", "echo hello\n", 0o755),
            "needs a first line",
        ),
    ] {
        let mut job = world.bash(OK);
        job.entrypoint = program;
        let ended = finish(job).await;
        assert!(matches!(ended.how, ExitKind::NotStarted(_)));
        let failure = failure(&ended);
        assert_eq!(failure.reason, FailureReason::SpawnError);
        assert!(
            failure.is_retryable() && failure.error.contains(part),
            "{failure:?}"
        );
    }
    let failure = failure(&finish(world.job("#!/usr/bin/env no-such-interpreter\n")).await);
    assert_eq!(failure.reason, FailureReason::NilResponse);
    assert!(failure.error.contains("127") && failure.error.contains("no-such-interpreter"));
}

#[tokio::test]
async fn no_arguments_little_environment_and_our_directory_du_046() {
    let world = World::new();
    let mut server = environment();
    server.extend(PluginVariables::from([
        ("HOME".into(), "/home/x".into()),
        ("LC_TIME".into(), "C".into()),
        ("MINE".into(), "yes".into()),
        ("SECRET".into(), "hidden".into()),
        ("PATHOLOGY".into(), "hidden".into()),
    ]));
    let mut job = world.python(
        "print(json.dumps({'status': 'ok', 'result': json.dumps([sys.argv[1:], sorted(os.environ), \
         os.getcwd(), os.getpid() == os.getpgrp(), os.getpid()])}))",
    );
    job.environment = for_plugins(&server, &["MINE".to_owned(), "ABSENT".to_owned()]);
    let mut told = None;
    let ended = run(job, |id| told = Some(id), std::future::pending()).await;
    let PluginOutcome::Succeeded(response) = classify(&ended) else {
        panic!("{ended:?}");
    };
    let seen: serde_json::Value = serde_json::from_str(&response.result).unwrap();
    assert_eq!(seen[0], serde_json::json!([]));
    let mut names: Vec<_> = seen[1].as_array().unwrap().clone();
    // Python adds this one itself.
    names.retain(|name| name != "LC_CTYPE");
    assert_eq!(names, ["HOME", "LC_TIME", "MINE", "PATH"]);
    assert_eq!(seen[2], std::env::current_dir().unwrap().to_str().unwrap());
    assert_eq!(seen[3], true);
    assert_eq!(seen[4], told.unwrap());
}

#[tokio::test]
async fn a_cancelled_run_ends_its_group_with_grace() {
    let world = World::new();
    let job = world.bash("trap 'echo asked >&2; exit 0' TERM\nsleep 60 & echo $!\nwait");
    let cancel = tokio::time::sleep(PATIENCE);
    let ended = tokio::spawn(run(job, |_| (), cancel)).await.unwrap();
    assert_eq!(classify(&ended), PluginOutcome::Cancelled);
    assert_eq!(ended.stderr.text(), "asked\n");
    assert!(is_soon_dead(&ended.stdout.text()).await);
}

#[tokio::test]
async fn a_dropped_run_leaves_no_process_behind() {
    let world = World::new();
    let job = world.bash("trap '' TERM\nsleep 60 & wait");
    let mut leader = None;
    let running = run(job, |id| leader = Some(id), std::future::pending());
    let started_at = Instant::now();
    let given_up = tokio::time::timeout(PATIENCE, running).await;
    assert!(given_up.is_err() && started_at.elapsed() < Duration::from_secs(5));
    let group = Pid::from_raw(i32::try_from(leader.unwrap()).unwrap()).unwrap();
    for _ in 0..200 {
        if rustix::process::test_kill_process_group(group).is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("somebody of the group lives, or was never waited for");
}
