//! Schedules and breakers. A member without a value is null.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::timestamp_json;
use crate::runtime::records::BreakerChange;
use crate::runtime::{BreakerInfo, ScheduleInfo};

pub fn schedules(schedules: &[ScheduleInfo]) -> Value {
    let shown: Vec<Value> = schedules.iter().map(schedule).collect();
    json!({"schedules": shown})
}

pub fn schedule(schedule: &ScheduleInfo) -> Value {
    let next: Vec<Value> = schedule.next.iter().copied().map(timestamp_json).collect();
    json!({
        "plugin": schedule.plugin,
        "schedule_id": schedule.schedule_id,
        "command": schedule.command,
        "mode": schedule.mode,
        "status": schedule.status,
        "reason": schedule.reason,
        "timezone": schedule.timezone,
        "next_run_at": or_null(schedule.next_run_at),
        "last_fired_at": or_null(schedule.last_fired_at),
        "last_success_at": or_null(schedule.last_success_at),
        "last_success_job_id": schedule.last_success_job_id,
        "next": next,
    })
}

pub fn breaker(breaker: &BreakerInfo) -> Value {
    let transitions: Vec<Value> = breaker.transitions.iter().map(transition).collect();
    json!({
        "plugin": breaker.plugin,
        "command": breaker.command,
        "state": breaker.state.as_str(),
        "failure_count": breaker.failure_count,
        "opened_at": or_null(breaker.opened_at),
        "last_failure_at": or_null(breaker.last_failure_at),
        "last_job_id": breaker.last_job_id,
        "updated_at": or_null(breaker.updated_at),
        "transitions": transitions,
    })
}

fn transition(change: &BreakerChange) -> Value {
    let transition = &change.transition;
    json!({
        "command": change.command,
        "from": transition.from.as_str(),
        "to": transition.to.as_str(),
        "reason": transition.reason.as_str(),
        "failures": transition.failures,
        "at": timestamp_json(transition.at),
        "job_id": change.job_id,
    })
}

fn or_null(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, timestamp_json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breaker::{BreakerState, BreakerTransition, TransitionReason};
    use crate::runtime::records::ScheduleStatus;

    const AT: &str = "2026-11-16T06:11:50.890979000Z";

    fn at() -> Timestamp {
        AT.parse().expect("it is a timestamp")
    }

    #[test]
    fn a_schedule_has_all_members() {
        let mut info = ScheduleInfo {
            plugin: "echo".to_owned(),
            schedule_id: "often".to_owned(),
            command: "poll".to_owned(),
            mode: "cron",
            status: ScheduleStatus::PausedManual,
            reason: Some("by hand".to_owned()),
            timezone: Some("Europe/Berlin".to_owned()),
            next_run_at: Some(at()),
            last_fired_at: Some(at()),
            last_success_at: Some(at()),
            last_success_job_id: Some("job".to_owned()),
            next: vec![at()],
        };
        let mut expected = json!({
            "plugin": "echo", "schedule_id": "often", "command": "poll", "mode": "cron", "status": "paused_manual",
            "reason": "by hand", "timezone": "Europe/Berlin", "next_run_at": AT, "last_fired_at": AT,
            "last_success_at": AT, "last_success_job_id": "job", "next": [AT],
        });
        assert_eq!(schedule(&info), expected);
        info.next_run_at = None;
        info.reason = None;
        expected["next_run_at"] = Value::Null;
        expected["reason"] = Value::Null;
        assert_eq!(schedule(&info), expected, "absent values are null");
    }

    #[test]
    fn a_breaker_has_all_members_and_its_history() {
        let change = BreakerChange {
            command: "poll".to_owned(),
            transition: BreakerTransition {
                from: BreakerState::Closed,
                to: BreakerState::HalfOpen,
                reason: TransitionReason::CooldownElapsed,
                failures: 3,
                at: at(),
            },
            job_id: Some("job".to_owned()),
        };
        let expected = json!({
            "command": "poll", "from": "closed", "to": "half_open", "reason": "cooldown_elapsed", "failures": 3, "at": AT,
            "job_id": "job",
        });
        let stored = serde_json::to_value(&change).expect("it is JSON");
        assert_eq!(stored, expected, "the history is shown as it is stored");
        let info = BreakerInfo {
            plugin: "echo".to_owned(),
            command: "poll".to_owned(),
            state: BreakerState::Open,
            failure_count: 3,
            opened_at: Some(at()),
            last_failure_at: None,
            last_job_id: None,
            updated_at: Some(at()),
            transitions: vec![change],
        };
        let expected = json!({
            "plugin": "echo", "command": "poll", "state": "open", "failure_count": 3, "opened_at": AT,
            "last_failure_at": null, "last_job_id": null, "updated_at": AT, "transitions": [expected],
        });
        assert_eq!(breaker(&info), expected);
    }
}
