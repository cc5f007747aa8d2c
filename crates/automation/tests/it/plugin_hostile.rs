//! Processes that try to survive, outrun or flood their parent.

use std::fs;
use std::time::{Duration, Instant};

use consign_automation::plugin::outcome::{FailureReason, PluginOutcome, classify};
use consign_automation::plugin::run::run;
use rustix::process::{Pid, Signal, kill_process};

use crate::plugin_world::{OK, World, chmod, failure, finish, is_soon_dead};

/// Long enough for a script to reach its point on a busy machine.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Moves to the server's process group, where no signal to its own group reaches it.
const LEAVES_ITS_GROUP: &str = "os.setpgid(0, os.getpgid(os.getppid()))\nassert os.getpgrp() != os.getpid()\n\
     os.write(1, str(os.getpid()).encode())\nimport signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
     time.sleep(60)";

#[tokio::test]
async fn a_plugin_that_leaves_its_group_is_ended_all_the_same_du_044() {
    let world = World::new();
    let mut job = world.python(LEAVES_ITS_GROUP);
    job.timeout = PATIENCE;
    let started_at = Instant::now();
    let ended = tokio::time::timeout(Duration::from_secs(10), finish(job)).await;
    let ended = ended.expect("the run waits for a process that nobody kills");
    assert_eq!(classify(&ended), PluginOutcome::TimedOut);
    assert!(is_soon_dead(&ended.stdout.text()).await);
    assert!(started_at.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_plugin_that_left_its_group_does_not_outlive_a_dropped_run_du_044() {
    let world = World::new();
    let mut leader = None;
    let job = world.python(LEAVES_ITS_GROUP);
    let running = run(job, |id| leader = Some(id), std::future::pending());
    assert!(tokio::time::timeout(PATIENCE, running).await.is_err());
    assert!(is_soon_dead(&leader.unwrap().to_string()).await);
}

#[tokio::test]
async fn a_plugin_that_stops_itself_is_ended_at_its_deadline_du_044() {
    let world = World::new();
    let mut job = world.bash("sleep 60 & echo $!\nkill -STOP 0");
    job.timeout = PATIENCE;
    let ended = finish(job).await;
    assert_eq!(classify(&ended), PluginOutcome::TimedOut);
    assert!(ended.elapsed < Duration::from_secs(5), "{ended:?}");
    assert!(is_soon_dead(&ended.stdout.text()).await);
}

#[tokio::test]
async fn a_detached_process_that_prints_forever_holds_nobody_up_du_044() {
    let world = World::new();
    let script = "setsid bash -c 'echo $$ > \"$1\"; exec yes' noise PIDFILE &\n\
                  while [ ! -s PIDFILE ]; do sleep 0.05; done\nexit 0";
    let note = world.path("noise.pid");
    let job = world.bash(&script.replace("PIDFILE", note.to_str().unwrap()));
    let ended = finish(job).await;
    let id = fs::read_to_string(&note).unwrap();
    // Its pipe is closed, so it ends by itself; the kill is a precaution.
    let is_dead = is_soon_dead(&id).await;
    if !is_dead {
        kill_process(
            Pid::from_raw(id.trim().parse().unwrap()).unwrap(),
            Signal::KILL,
        )
        .unwrap();
    }
    assert!(is_dead, "its pipe is still held open");
    assert!(
        ended.elapsed < Duration::from_secs(5),
        "{:?}",
        ended.elapsed
    );
    assert!(ended.stdout.bytes.len() <= 10 << 20);
    assert!(
        matches!(classify(&ended), PluginOutcome::Failed(_)),
        "noise is no answer"
    );
}

#[tokio::test]
async fn a_plugin_that_closes_its_pipes_and_lives_on_is_ended_at_its_deadline_du_044() {
    let world = World::new();
    let mut job = world.bash("exec <&- >&- 2>&-\nsleep 60");
    job.timeout = PATIENCE;
    let ended = finish(job).await;
    assert_eq!(classify(&ended), PluginOutcome::TimedOut);
    assert!(ended.elapsed < Duration::from_secs(5), "{ended:?}");
}

#[tokio::test]
async fn children_that_are_made_without_end_end_with_their_group_du_044() {
    let world = World::new();
    let mut job = world.bash(
        "spawn() { trap '' TERM; sleep 0.02; spawn & wait; }\necho $$\nfor _ in 1 2 3; do spawn & done; wait",
    );
    job.timeout = Duration::from_millis(700);
    let ended = finish(job).await;
    assert_eq!(classify(&ended), PluginOutcome::TimedOut);
    let group: i32 = ended.stdout.text().trim().parse().unwrap();
    let group = Pid::from_raw(group).unwrap();
    for _ in 0..200 {
        if rustix::process::test_kill_process_group(group).is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a child got away");
}

#[tokio::test]
async fn a_plugin_that_is_replaced_while_it_runs_ends_as_what_it_was() {
    let world = World::new();
    let (running, replaced) = (world.path("running"), world.path("replaced"));
    let job = world.bash(&format!(
        "touch {}\nuntil [ -e {} ]; do sleep 0.05; done\necho '{{\"status\":\"ok\",\"result\":\"old\"}}'",
        running.display(),
        replaced.display()
    ));
    let next = job.clone();
    let update = async {
        while !running.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let script = "#!/bin/sh\necho '{\"status\":\"ok\",\"result\":\"new\"}'\n";
        let new = world.file("new", script, 0o755);
        fs::rename(new, &next.entrypoint).unwrap();
        fs::write(&replaced, "").unwrap();
    };
    let (ended, ()) = tokio::join!(finish(job), update);
    assert!(matches!(classify(&ended), PluginOutcome::Succeeded(old) if old.result == "old"));
    let ended = finish(next.clone()).await;
    assert!(matches!(classify(&ended), PluginOutcome::Succeeded(new) if new.result == "new"));
    chmod(&next.entrypoint, 0o644);
    assert_eq!(
        failure(&finish(next).await).reason,
        FailureReason::SpawnError
    );
}

#[tokio::test]
async fn answers_that_are_deep_doubled_or_full_of_nothing_are_refused_du_038() {
    let world = World::new();
    for body in [
        "print('[' * 200_000)",
        "print('{\"a\":' * 200_000)",
        "print('{\"status\":\"ok\",\"result\":\"r\"}' * 2)",
        "sys.stdout.buffer.write(b'\\0' * 100_000)",
        "print('{\"status\":\"ok\",\"result\":\"\\\\ud800\"}')",
        "print('{\"status\":\"ok\",\"result\":\"r\",\"state_updates\":{\"n\":1e999}}')",
        "print('\\ufeff{\"status\":\"ok\",\"result\":\"r\"}')",
    ] {
        let failure = failure(&finish(world.python(body)).await);
        assert_eq!(
            failure.reason,
            FailureReason::Protocol,
            "{body}: {failure:?}"
        );
        assert!(failure.error.len() < 2_000, "{body}");
    }
    let ended = finish(world.bash(OK)).await;
    assert!(matches!(classify(&ended), PluginOutcome::Succeeded(_)));
}
