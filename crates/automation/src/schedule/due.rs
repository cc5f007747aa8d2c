//! Decides whether an entry is due, and when it is due next.

use std::time::Duration;

use consign_kernel::plant::{self, Plant};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::entry::{CatchUp, IfRunning, ScheduleEntry, ScheduleMode};
use super::fraction_of;
use super::window::DelayReason;

/// The maximum number of missed runs to make up for; the newest ones are kept.
pub const SLOTS_MAX: usize = 100;

/// The stored state of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleState {
    #[serde(with = "crate::instant::maybe")]
    pub last_fired_at: Option<Timestamp>,
    #[serde(with = "crate::instant::maybe")]
    pub last_success_at: Option<Timestamp>,
    /// The next run including jitter; `None` once the entry is exhausted.
    #[serde(with = "crate::instant::maybe")]
    pub next_run_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueDecision {
    Fire,
    NotDue(Timestamp),
    /// Due, but outside of its hours or weekdays until the given time.
    Outside(DelayReason, Timestamp),
    Exhausted,
}

impl DueDecision {
    /// Why a tick creates no job for the entry.
    pub fn skip(self) -> Option<Skip> {
        match self {
            Self::Fire => None,
            Self::NotDue(_) => Some(Skip::NotDue),
            Self::Outside(DelayReason::Hours, _) => Some(Skip::OutsideTimeWindow),
            Self::Outside(DelayReason::Weekday, _) => Some(Skip::OutsideDayConstraint),
            Self::Exhausted => Some(Skip::Exhausted),
        }
    }
}

/// Why a tick created no job, in the words of the event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    NotDue,
    AlreadyRunning,
    OutstandingLimit,
    CircuitOpen,
    OutsideTimeWindow,
    OutsideDayConstraint,
    Exhausted,
    PausedManual,
}

impl Skip {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotDue => "not_due",
            Self::AlreadyRunning => "already_running",
            Self::OutstandingLimit => "outstanding_limit",
            Self::CircuitOpen => "circuit_open",
            Self::OutsideTimeWindow => "outside_time_window",
            Self::OutsideDayConstraint => "outside_day_constraint",
            Self::Exhausted => "schedule_exhausted",
            Self::PausedManual => "schedule_paused_manual",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    Enqueue,
    /// Cancel the queued and running jobs, then enqueue.
    CancelThenEnqueue,
    Skip(Skip),
}

/// A job for a run that was missed while the service was down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUpJob {
    pub slot: Timestamp,
    pub dedupe_key: String,
}

impl ScheduleEntry {
    /// The state of a new entry. A one-shot delay starts here, so the caller must store the state at once.
    pub fn initial_state(
        &self,
        now: Timestamp,
        system_zone: &TimeZone,
        draw: u64,
    ) -> ScheduleState {
        let next_run_at = match &self.mode {
            ScheduleMode::Every(_) => Some(now),
            // The current minute still counts.
            ScheduleMode::Cron(_) => self.slot(minute_of(now), true, system_zone, draw),
            ScheduleMode::At(at) => Some(*at),
            ScheduleMode::After(delay) => Some(later(now, *delay)),
        };
        ScheduleState {
            last_fired_at: None,
            last_success_at: None,
            next_run_at,
        }
    }

    pub fn due(&self, state: &ScheduleState, now: Timestamp) -> DueDecision {
        let Some(next) = state.next_run_at else {
            return DueDecision::Exhausted;
        };
        if now < next {
            return DueDecision::NotDue(next);
        }
        let zone = self.timezone.clone().unwrap_or(TimeZone::UTC);
        match self.window.closed(now, &zone) {
            Some((reason, opens_at)) => DueDecision::Outside(reason, opens_at),
            None => DueDecision::Fire,
        }
    }

    /// A job was enqueued. It covers slots that were missed meanwhile. An `every` entry stays due until a run succeeds.
    pub fn fired(
        &self,
        state: &mut ScheduleState,
        now: Timestamp,
        system_zone: &TimeZone,
        draw: u64,
    ) {
        state.last_fired_at = Some(now);
        match &self.mode {
            ScheduleMode::Every(_) => {}
            ScheduleMode::Cron(_) => state.next_run_at = self.slot(now, false, system_zone, draw),
            ScheduleMode::At(_) | ScheduleMode::After(_) => state.next_run_at = None,
        }
    }

    /// The entry was paused and continues. Cron slots of the pause are dropped; an interval or a time that has passed is due now.
    pub fn resumed(
        &self,
        state: &mut ScheduleState,
        now: Timestamp,
        system_zone: &TimeZone,
        draw: u64,
    ) {
        if matches!(self.mode, ScheduleMode::Cron(_)) {
            state.next_run_at = self.slot(now, false, system_zone, draw);
        }
    }

    /// A job of this entry succeeded.
    pub fn succeeded(&self, state: &mut ScheduleState, completed_at: Timestamp, draw: u64) {
        state.last_success_at = Some(completed_at);
        self.postpone(state, completed_at, draw);
    }

    /// The job was a duplicate: an interval restarts as if it had just succeeded.
    pub fn deduplicated(
        &self,
        state: &mut ScheduleState,
        now: Timestamp,
        system_zone: &TimeZone,
        draw: u64,
    ) {
        match &self.mode {
            ScheduleMode::Every(_) => self.postpone(state, now, draw),
            ScheduleMode::Cron(_) => state.next_run_at = self.slot(now, false, system_zone, draw),
            ScheduleMode::At(_) | ScheduleMode::After(_) => state.next_run_at = None,
        }
    }

    /// The next runs, if each succeeds at once and only hours and weekdays delay it.
    pub fn coming(
        &self,
        state: &ScheduleState,
        now: Timestamp,
        system_zone: &TimeZone,
        count: usize,
    ) -> Vec<Timestamp> {
        let zone = self.timezone.clone().unwrap_or(TimeZone::UTC);
        let mut found = Vec::with_capacity(count);
        let mut next = state.next_run_at;
        while let Some(at) = next.map(|at| at.max(now)).filter(|_| found.len() < count) {
            let closed = self.window.closed(at, &zone);
            let at = closed.map_or(at, |(_, opens_at)| opens_at);
            found.push(at);
            next = match &self.mode {
                ScheduleMode::Every(every) => Some(later(at, *every)),
                ScheduleMode::Cron(_) => self.slot(at, false, system_zone, 0),
                ScheduleMode::At(_) | ScheduleMode::After(_) => None,
            };
        }
        found
    }

    /// The rule changed: the history is kept, and the new rule sets the next run.
    pub fn changed(
        &self,
        state: &mut ScheduleState,
        now: Timestamp,
        system_zone: &TimeZone,
        draw: u64,
    ) {
        state.next_run_at = match (&self.mode, state.last_success_at) {
            (ScheduleMode::Every(every), Some(last)) => Some(later(last, *every)),
            _ => self.initial_state(now, system_zone, draw).next_run_at,
        };
    }

    /// Whether the next run is further away than this entry ever sets it, which means that the clock was set back.
    pub fn is_too_far(
        &self,
        state: &ScheduleState,
        now: Timestamp,
        system_zone: &TimeZone,
    ) -> bool {
        let next = match &self.mode {
            ScheduleMode::Every(every) => Some(later(now, *every)),
            ScheduleMode::Cron(_) => self.slot(now, false, system_zone, 0),
            ScheduleMode::At(_) | ScheduleMode::After(_) => None,
        };
        let latest = next.map(|next| later(next, self.jitter));
        latest.is_some_and(|latest| state.next_run_at.is_some_and(|next| next > latest))
    }

    /// The jobs to create at start for whole intervals without a run.
    pub fn catch_up(&self, state: &ScheduleState, plugin: &str, now: Timestamp) -> Vec<CatchUpJob> {
        let ScheduleMode::Every(every) = self.mode else {
            return Vec::new();
        };
        let Some(last) = state.last_fired_at.or(state.last_success_at) else {
            return Vec::new();
        };
        let passed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
        let missed = passed.as_nanos() / every.as_nanos().max(1);
        let wanted = match self.catch_up {
            CatchUp::Skip => 0,
            CatchUp::RunOnce => 1,
            CatchUp::RunAll => SLOTS_MAX as u128,
        };
        let plain_key = self.dedupe_key(plugin);
        let slots = (missed.saturating_sub(wanted) + 1..=missed).map(|number| {
            let offset = Duration::from_nanos_u128(every.as_nanos() * number);
            let slot = later(last, offset);
            let dedupe_key = match self.catch_up {
                CatchUp::RunAll => format!("{plain_key}:catchup:{slot}"),
                CatchUp::Skip | CatchUp::RunOnce => plain_key.clone(),
            };
            CatchUpJob { slot, dedupe_key }
        });
        slots.collect()
    }

    /// What to do while `outstanding` jobs of the same plugin and command are queued or running. This also limits polls: there
    /// are never more than `outstanding_max` of them at once.
    pub fn overlap(&self, outstanding: u32, outstanding_max: u32) -> Overlap {
        match self.if_running {
            _ if outstanding == 0 => Overlap::Enqueue,
            IfRunning::Skip => Overlap::Skip(Skip::AlreadyRunning),
            IfRunning::Queue if outstanding >= outstanding_max => {
                Overlap::Skip(Skip::OutstandingLimit)
            }
            IfRunning::Queue => Overlap::Enqueue,
            IfRunning::Cancel => Overlap::CancelThenEnqueue,
        }
    }

    fn postpone(&self, state: &mut ScheduleState, from: Timestamp, draw: u64) {
        if let ScheduleMode::Every(every) = self.mode {
            let wait = every.saturating_add(fraction_of(self.jitter, draw));
            state.next_run_at = Some(later(from, wait));
        }
    }

    fn slot(
        &self,
        from: Timestamp,
        inclusive: bool,
        system_zone: &TimeZone,
        draw: u64,
    ) -> Option<Timestamp> {
        let ScheduleMode::Cron(cron) = &self.mode else {
            return None;
        };
        let own = self.timezone.as_ref();
        let own = own.filter(|_| !plant::on(Plant::OtherZone));
        let zone = own.unwrap_or(system_zone);
        let slot = cron.next(from, inclusive, zone)?;
        Some(later(slot, fraction_of(self.jitter, draw)))
    }
}

fn later(from: Timestamp, wait: Duration) -> Timestamp {
    from.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

fn minute_of(now: Timestamp) -> Timestamp {
    let second = now.as_second();
    Timestamp::from_second(second - second.rem_euclid(60)).unwrap_or(now)
}

#[cfg(test)]
mod tests;
