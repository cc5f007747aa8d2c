//! Entries checked tick by tick, with artificial times.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const UTC: TimeZone = TimeZone::UTC;

fn entry(value: &Value) -> ScheduleEntry {
    ScheduleEntry::from_json(value).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn every_fires_at_once_and_then_an_interval_after_its_success_du_061() {
    let entry = entry(&json!({"every": "15m"}));
    let start = at("2026-01-05T10:00:00Z");
    let mut state = entry.initial_state(start, &UTC, 0);
    assert_eq!(entry.due(&state, start), DueDecision::Fire);
    entry.fired(&mut state, start, &UTC, 0);
    let tick = at("2026-01-05T10:01:00Z");
    assert_eq!(
        entry.due(&state, tick),
        DueDecision::Fire,
        "a failure leaves it due"
    );
    entry.succeeded(&mut state, at("2026-01-05T10:01:30Z"), 0);
    let next = at("2026-01-05T10:16:30Z");
    assert_eq!(entry.due(&state, tick), DueDecision::NotDue(next));
    assert_eq!(entry.due(&state, next), DueDecision::Fire);
    entry.deduplicated(&mut state, next, &UTC, 0);
    assert_eq!(state.next_run_at, Some(at("2026-01-05T10:31:30Z")));
}

#[test]
fn cron_fires_in_its_minute_once_and_missed_slots_become_one_du_062() {
    let entry = entry(&json!({"cron": "*/5 * * * *"}));
    let inside = at("2026-01-05T10:05:40Z");
    let mut state = entry.initial_state(inside, &UTC, 0);
    assert_eq!(entry.due(&state, inside), DueDecision::Fire);
    entry.fired(&mut state, inside, &UTC, 0);
    let next = at("2026-01-05T10:10:00Z");
    assert_eq!(entry.due(&state, inside), DueDecision::NotDue(next));
    let late = at("2026-01-05T11:02:00Z");
    assert_eq!(entry.due(&state, late), DueDecision::Fire);
    entry.fired(&mut state, late, &UTC, 0);
    assert_eq!(state.next_run_at, Some(at("2026-01-05T11:05:00Z")));
}

#[test]
fn cron_follows_its_own_zone_before_the_systems_du_062() {
    consign_testkit::plants::from_environment();
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let noon = at("2026-01-05T12:00:00Z");
    let plain = entry(&json!({"cron": "0 9 * * *"}));
    let state = plain.initial_state(noon, &berlin, 0);
    assert_eq!(state.next_run_at, Some(at("2026-01-06T08:00:00Z")));
    let zoned = entry(&json!({"cron": "0 9 * * *", "timezone": "America/New_York"}));
    let state = zoned.initial_state(noon, &berlin, 0);
    assert_eq!(state.next_run_at, Some(at("2026-01-05T14:00:00Z")));
}

#[test]
fn at_fires_once_and_stays_exhausted_du_063() {
    let entry = entry(&json!({"at": "2026-01-05T10:00:00+01:00"}));
    let mut state = entry.initial_state(at("2026-01-05T08:00:00Z"), &UTC, 0);
    let due = at("2026-01-05T09:00:00Z");
    assert_eq!(
        entry.due(&state, at("2026-01-05T08:59:59Z")),
        DueDecision::NotDue(due)
    );
    assert_eq!(entry.due(&state, due), DueDecision::Fire);
    entry.fired(&mut state, due, &UTC, 0);
    assert_eq!(
        entry.due(&state, at("2027-01-05T09:00:00Z")),
        DueDecision::Exhausted
    );
    entry.succeeded(&mut state, due, 0);
    assert_eq!(entry.due(&state, due), DueDecision::Exhausted);
}

#[test]
fn after_counts_from_first_sight_and_fires_once_du_064() {
    let entry = entry(&json!({"after": "10m"}));
    let mut state = entry.initial_state(at("2026-01-05T10:00:00Z"), &UTC, 0);
    let due = at("2026-01-05T10:10:00Z");
    assert_eq!(
        entry.due(&state, at("2026-01-05T10:09:59Z")),
        DueDecision::NotDue(due)
    );
    assert_eq!(entry.due(&state, due), DueDecision::Fire);
    entry.fired(&mut state, due, &UTC, 0);
    assert_eq!(entry.due(&state, due), DueDecision::Exhausted);
}

#[test]
fn closed_hours_hold_a_due_entry_back_without_using_it_up_du_066() {
    let entry =
        entry(&json!({"every": "1h", "only_between": "08:00-10:00", "not_on": ["sat", "sun"]}));
    let state = entry.initial_state(at("2026-01-02T09:00:00Z"), &UTC, 0);
    let monday = at("2026-01-05T08:00:00Z");
    assert_eq!(
        entry.due(&state, at("2026-01-02T10:00:00Z")),
        DueDecision::Outside(DelayReason::Hours, monday)
    );
    assert_eq!(
        entry.due(&state, at("2026-01-03T09:00:00Z")),
        DueDecision::Outside(DelayReason::Weekday, monday)
    );
    assert_eq!(entry.due(&state, monday), DueDecision::Fire);
    let words = [
        "2026-01-02T10:00:00Z",
        "2026-01-03T09:00:00Z",
        "2026-01-05T08:00:00Z",
    ]
    .map(|now| entry.due(&state, at(now)).skip().map(Skip::as_str));
    assert_eq!(
        words,
        [
            Some("outside_time_window"),
            Some("outside_day_constraint"),
            None
        ]
    );
}

#[test]
fn missed_runs_are_made_up_for_as_the_policy_says_du_068() {
    let last = at("2026-01-05T10:00:00Z");
    let state = ScheduleState {
        last_fired_at: Some(last),
        last_success_at: None,
        next_run_at: Some(last),
    };
    let jobs = |policy: &str, now: &str| {
        let entry = entry(&json!({"every": "1h", "catch_up": policy}));
        entry.catch_up(&state, "p", at(now))
    };
    let now = "2026-01-05T13:30:00Z";
    assert_eq!(jobs("skip", now), []);
    let once = jobs("run_once", now);
    assert_eq!(once.len(), 1);
    assert_eq!(once[0].dedupe_key, "p:poll:default");
    let keys: Vec<String> = jobs("run_all", now)
        .into_iter()
        .map(|job| job.dedupe_key)
        .collect();
    assert_eq!(
        keys,
        ["11", "12", "13"].map(|hour| format!("p:poll:default:catchup:2026-01-05T{hour}:00:00Z"))
    );
    assert_eq!(
        jobs("run_all", "2026-01-05T10:59:59Z"),
        [],
        "no whole interval"
    );
    assert_eq!(
        jobs("run_all", "2026-01-05T09:00:00Z"),
        [],
        "a clock set back"
    );
    let many = jobs("run_all", "2026-02-05T10:00:00Z");
    assert_eq!(many.len(), SLOTS_MAX);
    assert_eq!(many[99].slot, at("2026-02-05T10:00:00Z"));
    let fresh = ScheduleState {
        last_fired_at: None,
        ..state.clone()
    };
    let all = entry(&json!({"every": "1h", "catch_up": "run_all"}));
    assert_eq!(all.catch_up(&fresh, "p", at(now)), []);
    let succeeded = ScheduleState {
        last_success_at: Some(last),
        ..fresh
    };
    assert_eq!(all.catch_up(&succeeded, "p", at(now)).len(), 3);
}

#[test]
fn overlap_is_skipped_queued_or_cancelled_du_069() {
    let with = |policy: &str| entry(&json!({"every": "1h", "if_running": policy}));
    for policy in ["skip", "queue", "cancel"] {
        assert_eq!(with(policy).overlap(0, 1), Overlap::Enqueue);
    }
    assert_eq!(
        with("skip").overlap(1, 5),
        Overlap::Skip(Skip::AlreadyRunning)
    );
    assert_eq!(with("cancel").overlap(1, 1), Overlap::CancelThenEnqueue);
}

#[test]
fn never_more_polls_than_allowed_are_outstanding_du_070() {
    let queue = entry(&json!({"every": "1h", "if_running": "queue"}));
    assert_eq!(queue.overlap(1, 1), Overlap::Skip(Skip::OutstandingLimit));
    assert_eq!(queue.overlap(1, 2), Overlap::Enqueue);
    assert_eq!(queue.overlap(2, 2), Overlap::Skip(Skip::OutstandingLimit));
}

proptest! {
    #[test]
    fn jitter_is_drawn_once_and_stays_within_its_bound_du_065(
        jitter_ms in 1u64..3_600_000, draw: u64, second in 1_700_000_000i64..1_800_000_000,
    ) {
        let bound = Duration::from_millis(jitter_ms);
        let jitter = format!("{jitter_ms}ms");
        let now = Timestamp::from_second(second).unwrap();
        let every = entry(&json!({"every": "1h", "jitter": jitter}));
        let mut state = every.initial_state(now, &UTC, draw);
        every.succeeded(&mut state, now, draw);
        let next = state.next_run_at.unwrap();
        let least = now + Duration::from_hours(1);
        prop_assert!(next >= least && next < least + bound);
        // Checking again, as each tick does, draws nothing.
        prop_assert_eq!(every.due(&state, now), DueDecision::NotDue(next));
        let cron = entry(&json!({"cron": "0 * * * *", "jitter": jitter}));
        let mut state = cron.initial_state(now, &UTC, draw);
        cron.fired(&mut state, now, &UTC, draw);
        let next = state.next_run_at.unwrap();
        let plain = entry(&json!({"cron": "0 * * * *"}));
        plain.fired(&mut state, now, &UTC, draw);
        let slot = state.next_run_at.unwrap();
        prop_assert!(next >= slot && next < slot + bound);
    }

    #[test]
    fn a_state_always_names_the_instant_at_which_it_is_due_du_061(
        mode in 0usize..4, draw: u64, second in 1_700_000_000i64..1_800_000_000,
    ) {
        let modes = [json!({"every": "90s"}), json!({"cron": "7 */3 * * mon"}), json!({"after": "1d"}),
            json!({"at": "2026-01-05T10:00:00Z"})];
        let entry = entry(&modes[mode]);
        let state = entry.initial_state(Timestamp::from_second(second).unwrap(), &UTC, draw);
        let next = state.next_run_at.unwrap();
        prop_assert_eq!(entry.due(&state, next), DueDecision::Fire);
        let before = next - Duration::from_nanos(1);
        prop_assert_eq!(entry.due(&state, before), DueDecision::NotDue(next));
    }
}

#[test]
fn what_is_stored_keeps_its_shape_du_063() {
    let state = ScheduleState {
        last_fired_at: Some("2026-03-01T09:00:00.5+02:00".parse().unwrap()),
        last_success_at: Some("2026-03-01T07:00:00.123456789Z".parse().unwrap()),
        next_run_at: None,
    };
    let stored = r#"{"last_fired_at":"2026-03-01T07:00:00.500000000Z","last_success_at":"2026-03-01T07:00:00.123456789Z","next_run_at":null}"#;
    assert_eq!(serde_json::to_string(&state).unwrap(), stored);
    assert_eq!(
        serde_json::from_str::<ScheduleState>(stored).unwrap(),
        state
    );
    assert!(
        serde_json::from_str::<ScheduleState>(&stored.replace("2026-03-01T07", "soon")).is_err()
    );
}
