//! Scheduled jobs.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use consign_automation::runtime::SubmittedBy;
use consign_automation::runtime::records::{self, ScheduleStatus};
use consign_kernel::state::State;
use jiff::{SignedDuration, Timestamp, ToSpan};
use serde_json::{Value, json};

use crate::world::{World, job_events, live_events, run, told};

const OK: &str = r#"date +%s.%N >> $here/ran; echo '{"status":"ok","result":"done"}'"#;
const TICK: &str = "service: {tick_interval: 100ms, max_workers: 4}\n";

/// Several ticks.
async fn a_while() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

fn scheduled(plugin: &str, schedules: &str) -> String {
    format!("{TICK}plugins: {{{plugin}: {{schedules: [{schedules}]}}}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interval_begins_at_start_and_is_counted_from_each_success_du_061_du_073() {
    let world = World::new();
    world.plugin(
        "mail",
        &format!("echo \"$request\" > $here/asked.new; mv $here/asked.new $here/asked\n{OK}"),
    );
    let runtime = world
        .start(&scheduled("mail", "{every: 600ms, payload: {box: 3}}"))
        .await;
    let jobs = world.jobs_are("mail", 3).await;
    let (job, _) = &jobs[0];
    assert_eq!(job.submitted_by, SubmittedBy::Scheduler);
    assert_eq!(job.dedupe_key.as_deref(), Some("mail:poll:default"));
    for pair in jobs.windows(2) {
        let ended = world.ended(pair[0].1.id).await;
        let apart_us = pair[1].1.created_at.0 - ended.settled_at.unwrap().0;
        // The event is published slightly before the end is in the ledger; a tick is at most slightly late.
        assert!((550_000..1_500_000).contains(&apart_us), "{apart_us}");
    }
    let asked: Value = serde_json::from_str(&world.read("asked")).unwrap();
    assert_eq!(asked["payload"], json!({"box": 3}));
    let id = consign_automation::runtime::job_id(jobs[0].1.id);
    let events = job_events(&runtime).await.into_iter();
    let of_job: Vec<_> = events.filter(|(_, data)| data["job_id"] == id).collect();
    let kinds: Vec<_> = of_job.iter().map(|(kind, _)| *kind).collect();
    let expected = [
        "scheduler.scheduled",
        "job.enqueued",
        "job.started",
        "job.completed",
    ];
    assert_eq!(kinds, expected);
    for (_, data) in &of_job[..2] {
        assert_eq!(data["schedule_id"], "default");
        assert_eq!(data["submitted_by"], "scheduler");
    }
    runtime.stop(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interval_does_not_wait_for_the_tick_du_061() {
    let world = World::new();
    world.plugin("mail", OK);
    let config = "service: {tick_interval: 1h}\nplugins: {mail: {schedules: [{every: 300ms}]}}";
    let runtime = world.start(config).await;
    let jobs = world.jobs_are("mail", 4).await;
    for pair in jobs.windows(2) {
        let apart_us = pair[1].1.created_at.0 - pair[0].1.created_at.0;
        assert!((300_000..2_000_000).contains(&apart_us), "{apart_us}");
    }
    runtime.stop(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cron_slot_fires_once_and_missed_ones_coalesce_du_062() {
    let world = World::new();
    world.plugin("mail", OK);
    let runtime = world.start(&scheduled("mail", "{cron: '0 3 1 1 *'}")).await;
    let mut known = world.schedule_is("mail", "default", |_| true).await;
    let next = known.state.next_run_at.unwrap();
    assert!(next > Timestamp::now(), "{next}");
    a_while().await;
    assert_eq!(world.jobs("mail").await.len(), 0);
    known.state.next_run_at = Some(Timestamp::now() - 800.hours());
    world
        .put(records::schedule_key("mail", "default"), &known)
        .await;
    runtime.resume_schedule("mail", "default").await.unwrap();
    world.jobs_are("mail", 1).await;
    a_while().await;
    assert_eq!(world.jobs("mail").await.len(), 1);
    let after = world.schedule("mail", "default").await;
    assert_eq!(
        after.state.next_run_at,
        Some(next),
        "the next slot from now"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_shots_fire_once_also_across_restarts_du_063_du_064() {
    let world = World::new();
    world.plugin("mail", OK);
    world.plugin("note", OK);
    let config = format!(
        "{TICK}plugins: {{mail: {{schedules: [{{at: '2026-01-01T00:00:00Z'}}]}}, note: {{schedules: [{{after: 400ms}}]}}}}"
    );
    let began = Instant::now();
    let first = world.start(&config).await;
    world.jobs_are("mail", 1).await;
    assert_eq!(world.jobs("note").await.len(), 0);
    world.jobs_are("note", 1).await;
    assert!(began.elapsed() >= Duration::from_millis(400));
    first.stop(Duration::from_secs(5)).await;
    let _second = world.start(&config).await;
    a_while().await;
    for plugin in ["mail", "note"] {
        assert_eq!(world.jobs(plugin).await.len(), 1, "{plugin}");
        let known = world.schedule(plugin, "default").await;
        assert_eq!(known.status, ScheduleStatus::Exhausted);
        assert_eq!(known.state.next_run_at, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jitter_is_drawn_once_per_run_du_065() {
    let world = World::new();
    world.plugin("mail", OK);
    let runtime = world
        .start(&scheduled("mail", "{every: 10s, jitter: 100s}"))
        .await;
    let known = world
        .schedule_is("mail", "default", |known| {
            known.state.last_success_at.is_some()
        })
        .await;
    let wait = |known: &records::ScheduleRecord| {
        let next = known.state.next_run_at.unwrap();
        next.duration_since(known.state.last_success_at.unwrap())
    };
    let drawn = wait(&known);
    assert!(drawn >= SignedDuration::from_secs(10) && drawn < SignedDuration::from_secs(110));
    a_while().await;
    assert_eq!(wait(&world.schedule("mail", "default").await), drawn);
    runtime.stop(Duration::from_secs(5)).await;
    let _again = world
        .start(&scheduled("mail", "{every: 10s, jitter: 100s}"))
        .await;
    a_while().await;
    assert_eq!(
        wait(&world.schedule("mail", "default").await),
        drawn,
        "nor by a restart"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_hours_and_days_hold_back_what_stays_due_du_066_du_067() {
    let world = World::new();
    for plugin in ["hours", "days", "open"] {
        world.plugin(plugin, OK);
    }
    let now = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let later = |hours: i64| (&now + hours.hours()).strftime("%H:%M").to_string();
    let (away, near) = ((later(2), later(3)), (later(-1), later(1)));
    let today = now.strftime("%A").to_string();
    let config = format!(
        "{TICK}plugins:\n  hours: {{schedules: [{{every: 1h, only_between: '{}-{}'}}]}}\n  days: {{schedules: [{{every: 1h, not_on: [{today}]}}]}}\n  open: {{schedules: [{{every: 1h, only_between: '{}-{}'}}]}}\n",
        away.0, away.1, near.0, near.1
    );
    let runtime = world.start(&config).await;
    world.jobs_are("open", 1).await;
    for (plugin, reason) in [
        ("hours", "outside_time_window"),
        ("days", "outside_day_constraint"),
    ] {
        let skipped = told(&runtime, "scheduler.skipped", |data| {
            data["plugin"] == plugin
        })
        .await;
        assert_eq!(skipped["reason"], reason);
        assert_eq!(world.jobs(plugin).await.len(), 0);
        let known = world.schedule(plugin, "default").await;
        assert!(
            known.state.next_run_at.unwrap() <= Timestamp::now(),
            "it stays due"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missed_runs_are_made_up_for_as_the_entry_says_du_068() {
    let world = World::new();
    let plugins = [("skip", "skip"), ("once", "run_once"), ("all", "run_all")];
    let mut config = format!("{TICK}plugins:\n");
    for (plugin, catch_up) in plugins {
        world.plugin(plugin, OK);
        let entry = format!("{{every: 1h, catch_up: {catch_up}}}");
        writeln!(config, "  {plugin}: {{schedules: [{entry}]}}").unwrap();
    }
    let first = world.start(&config).await;
    let succeeded = |known: &records::ScheduleRecord| known.last_success_job_id.is_some();
    for (plugin, _) in plugins {
        world.schedule_is(plugin, "default", succeeded).await;
        assert_eq!(
            world.jobs(plugin).await.len(),
            1,
            "{plugin}: nothing to make up for"
        );
    }
    first.stop(Duration::from_secs(5)).await;
    for (plugin, _) in plugins {
        let mut known = world.schedule(plugin, "default").await;
        // As if the service had been down for half a day. Earlier runs are deleted; otherwise they would make the new ones
        // duplicates.
        known.state.last_fired_at = Some(Timestamp::now() - 330.minutes());
        known.state.next_run_at = Some(Timestamp::now() - 270.minutes());
        world
            .put(records::schedule_key(plugin, "default"), &known)
            .await;
    }
    world
        .engine
        .purge(
            consign_engine::Operator::vouched(),
            consign_kernel::profile::Face::Automation,
            None,
        )
        .await
        .unwrap();
    let _second = world.start(&config).await;
    world.jobs_are("all", 5).await;
    a_while().await;
    let all = world.jobs("all").await;
    assert_eq!(all.len(), 5);
    for (job, _) in &all {
        let key = job.dedupe_key.as_deref().unwrap();
        assert!(key.starts_with("all:poll:default:catchup:20"), "{key}");
    }
    assert_eq!(world.jobs("once").await.len(), 1);
    assert_eq!(
        world.jobs("skip").await.len(),
        1,
        "what is due now is no make-up"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_under_way_holds_back_lets_pass_or_gives_way_du_069_du_070() {
    let world = World::new();
    let slow =
        "trap 'echo ended >> $here/ended; exit 1' TERM; echo began >> $here/began; sleep 60 & wait";
    for plugin in ["skip", "queue", "full", "cancel"] {
        world.plugin(plugin, slow);
    }
    let entry =
        |if_running: &str| format!("schedules: [{{after: 300ms, if_running: {if_running}}}]");
    let config = format!(
        "{TICK}plugins:\n  skip: {{{}}}\n  queue: {{max_outstanding_polls: 2, parallelism: 1, {}}}\n  full: {{{}}}\n  cancel: {{{}}}\n",
        entry("skip"),
        entry("queue"),
        entry("queue"),
        entry("cancel")
    );
    let runtime = world.start(&config).await;
    let mut first = Vec::new();
    for plugin in ["skip", "queue", "full", "cancel"] {
        let id = run(&runtime, plugin, "poll", Value::Null).await;
        first.push(id);
    }
    for (plugin, reason) in [("skip", "already_running"), ("full", "outstanding_limit")] {
        let skipped = told(&runtime, "scheduler.skipped", |data| {
            data["plugin"] == plugin
        })
        .await;
        assert_eq!(skipped["reason"], reason);
        assert_eq!(world.jobs(plugin).await.len(), 1);
    }
    let queued = world.jobs_are("queue", 2).await;
    assert_eq!(queued[1].1.state, State::Queued, "behind the one that runs");
    let cancelled = world.jobs_are("cancel", 2).await;
    let dead = world.ended(first[3]).await;
    assert_eq!(dead.state, State::DeadLetter);
    let reason = "cancelled by scheduler (if_running=cancel)";
    assert_eq!(dead.last_error.as_deref(), Some(reason));
    world
        .until(dead.id, |_| world.read("ended").lines().count() == 1)
        .await;
    let running = |job: &consign_kernel::intent::Intent| job.state == State::Dispatched;
    world.until(cancelled[1].1.id, running).await;
    for plugin in ["skip", "queue", "full", "cancel"] {
        for (_, job) in world.jobs(plugin).await {
            let _ = runtime.cancel(job.id, "the test is over").await;
        }
    }
    runtime.stop(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_queued_behind_the_one_before_it_and_no_more_than_allowed_du_069_du_070() {
    let world = World::new();
    world.plugin(
        "mail",
        &format!("while [ ! -e $here/go ]; do sleep 0.02; done; {OK}"),
    );
    let config = format!(
        "{TICK}plugins: {{mail: {{max_outstanding_polls: 2, schedules: [{{cron: '0 3 1 1 *', if_running: queue}}]}}}}"
    );
    let runtime = world.start(&config).await;
    for count in 1..=3 {
        // As if the next slot were due.
        let mut known = world.schedule_is("mail", "default", |_| true).await;
        known.state.next_run_at = Some(Timestamp::now() - 1.minute());
        world
            .put(records::schedule_key("mail", "default"), &known)
            .await;
        runtime.resume_schedule("mail", "default").await.unwrap();
        if count < 3 {
            let fired =
                |known: &records::ScheduleRecord| known.state.next_run_at > Some(Timestamp::now());
            world.schedule_is("mail", "default", fired).await;
            assert_eq!(world.jobs("mail").await.len(), count);
        }
    }
    let skipped = told(&runtime, "scheduler.skipped", |_| true).await;
    assert_eq!(skipped["reason"], "outstanding_limit");
    let jobs = world.jobs("mail").await;
    assert_eq!(jobs.len(), 2);
    world
        .until(jobs[0].1.id, |job| job.state == State::Dispatched)
        .await;
    assert_eq!(world.intent(jobs[1].1.id).await.state, State::Queued);
    std::fs::write(world.path("go"), "").unwrap();
    for (_, job) in jobs {
        assert_eq!(world.ended(job.id).await.state, State::Acked);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_one_command_share_the_guard_and_others_do_not_care_du_070_du_072() {
    let world = World::new();
    world.plugin("mail", &format!("sleep 0.7; {OK}"));
    let entries = "{id: a, every: 1h}, {id: b, every: 1h}, {id: c, every: 1h, command: work}";
    let runtime = world.start(&scheduled("mail", entries)).await;
    a_while().await;
    let ids = |jobs: Vec<(consign_automation::runtime::Job, _)>| {
        let ids = jobs.into_iter().map(|(job, _)| job.schedule_id.unwrap());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids(world.jobs("mail").await), ["a", "c"]);
    assert_eq!(ids(world.jobs_are("mail", 3).await), ["a", "c", "b"]);
    runtime.stop(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_fire_each_slot_once() {
    let world = World::new();
    world.plugin("mail", OK);
    let config = scheduled(
        "mail",
        "{every: 300ms}, {id: once, after: 200ms, command: work}",
    );
    let one = world.start_as("one", &config).await;
    let two = world.start_as("two", &config).await;
    let jobs = world.jobs_are("mail", 8).await;
    for node in [one, two] {
        node.stop(Duration::from_secs(5)).await;
    }
    let is_shot = |job: &consign_automation::runtime::Job| job.command == "work";
    assert_eq!(jobs.iter().filter(|(job, _)| is_shot(job)).count(), 1);
    let polls: Vec<_> = jobs.iter().filter(|(job, _)| !is_shot(job)).collect();
    for pair in polls.windows(2) {
        let apart_us = pair[1].1.created_at.0 - pair[0].1.created_at.0;
        assert!(apart_us > 250_000, "{apart_us}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_rests_while_it_is_paused_and_runs_when_it_is_told() {
    let world = World::new();
    world.plugin("mail", OK);
    let config = scheduled("mail", "{every: 300ms, payload: {a: 1}}");
    let runtime = world.start(&config).await;
    world.jobs_are("mail", 1).await;
    runtime.pause_schedule("mail", "default").await.unwrap();
    a_while().await;
    let before = world.jobs("mail").await.len();
    a_while().await;
    assert_eq!(world.jobs("mail").await.len(), before, "paused");
    runtime.stop(Duration::from_secs(5)).await;
    let runtime = world.start(&config).await;
    a_while().await;
    assert_eq!(
        world.jobs("mail").await.len(),
        before,
        "also after a restart"
    );
    let info = &runtime.schedules().await.unwrap()[0];
    assert_eq!(
        (info.mode, info.status),
        ("every", ScheduleStatus::PausedManual)
    );
    assert!(info.next.is_empty());
    let by_hand = runtime
        .run_schedule("mail", "default", SubmittedBy::Cli)
        .await
        .unwrap();
    assert_eq!(world.ended(by_hand.id).await.state, State::Acked);
    runtime.resume_schedule("mail", "default").await.unwrap();
    world.jobs_are("mail", before + 2).await;
    assert_eq!(runtime.schedules().await.unwrap()[0].next.len(), 5);
    assert!(runtime.pause_schedule("mail", "other").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_pass_while_an_entry_is_paused_are_not_made_up_for() {
    let world = World::new();
    world.plugin("mail", OK);
    let runtime = world.start(&scheduled("mail", "{cron: '0 3 1 1 *'}")).await;
    let next = world.schedule_is("mail", "default", |_| true).await;
    runtime.pause_schedule("mail", "default").await.unwrap();
    let mut paused = world.schedule("mail", "default").await;
    paused.state.next_run_at = Some(Timestamp::now() - 1.hour());
    world
        .put(records::schedule_key("mail", "default"), &paused)
        .await;
    runtime.resume_schedule("mail", "default").await.unwrap();
    a_while().await;
    assert_eq!(world.jobs("mail").await.len(), 0);
    let after = world.schedule("mail", "default").await;
    assert_eq!(after.state.next_run_at, next.state.next_run_at);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_back_does_not_silence_an_entry() {
    let world = World::new();
    world.plugin("mail", OK);
    let config = scheduled(
        "mail",
        "{every: 400ms}, {id: slot, cron: '* * * * *', command: work}",
    );
    let runtime = world.start(&config).await;
    let succeeded = |known: &records::ScheduleRecord| known.last_success_job_id.is_some();
    for id in ["default", "slot"] {
        world.schedule_is("mail", id, succeeded).await;
    }
    runtime.stop(Duration::from_secs(5)).await;
    // Both were set while the clock was a year ahead.
    for id in ["default", "slot"] {
        let mut known = world.schedule("mail", id).await;
        known.state.next_run_at = Some(Timestamp::now() + 8_760.hours());
        world.put(records::schedule_key("mail", id), &known).await;
    }
    let count = world.jobs("mail").await.len();
    let _again = world.start(&config).await;
    world.jobs_are("mail", count + 1).await;
    let slot = world
        .schedule("mail", "slot")
        .await
        .state
        .next_run_at
        .unwrap();
    assert!(slot <= Timestamp::now() + 1.minute(), "{slot}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_entries_that_are_not_due_cost_a_tick_nothing() {
    let world = World::new();
    // In several files, because of the size limit per file.
    let mut config = format!("{TICK}include: [");
    for number in 0..4 {
        let plugin = format!("mail{number}");
        world.plugin(&plugin, OK);
        let entries: Vec<String> = (0..2_500)
            .map(|id| format!("{{id: e{id}, at: '2999-01-01T00:00:00Z'}}"))
            .collect();
        let entries = entries.join(",");
        let text = format!("plugins: {{{plugin}: {{schedules: [{entries}]}}}}");
        std::fs::write(world.path(&format!("{plugin}.yaml")), text).unwrap();
        write!(config, "{plugin}.yaml,").unwrap();
    }
    let runtime = world.start(&format!("{config}]")).await;
    let idle = told(&runtime, "scheduler.tick", |data| data["entries"] == 10_000).await;
    assert_eq!(idle["looked_at"], 0);
    // The fastest of several runs, because the machine is busy.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ticks = live_events(&runtime).into_iter();
    let ticks = ticks.filter(|(kind, _)| *kind == "scheduler.tick");
    let took_us = ticks
        .map(|(_, data)| data["took_us"].as_u64().unwrap())
        .min();
    assert!(took_us.unwrap() < 1_000, "{took_us:?}");
    assert_eq!(runtime.schedules().await.unwrap().len(), 10_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_left_rests_and_goes_on_when_it_comes_back() {
    let world = World::new();
    world.plugin("mail", OK);
    let both = scheduled("mail", "{every: 1h}, {id: shot, after: 1ms, command: work}");
    let runtime = world.start(&both).await;
    world.jobs_are("mail", 2).await;
    runtime.adopt(world.program(TICK));
    let gone = |known: &records::ScheduleRecord| known.status == ScheduleStatus::PausedInvalid;
    let known = world.schedule_is("mail", "default", gone).await;
    assert_eq!(known.reason.as_deref(), Some("not_configured"));
    runtime.adopt(world.program(&both));
    let back = |known: &records::ScheduleRecord| known.status == ScheduleStatus::Active;
    world.schedule_is("mail", "default", back).await;
    a_while().await;
    assert_eq!(world.jobs("mail").await.len(), 2, "neither begins anew");
    let other = scheduled(
        "mail",
        "{every: 200ms}, {id: shot, after: 1ms, command: work}",
    );
    runtime.adopt(world.program(&other));
    world.jobs_are("mail", 3).await;
}
