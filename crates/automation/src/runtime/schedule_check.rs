//! Checks one schedule entry: whether it is due, whether it may run, and then queues the job.
//!
//! The job and the new state of the entry are one commit, which expects the versions of the entry and the breaker that were read.
//! Each firing also writes the breaker, so only one of several nodes that fire jobs of the same command succeeds at a time.

use std::time::Duration;

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::command::{Command, Operate};
use consign_kernel::error::Refusal;
use consign_kernel::ids::IntentId;
use consign_kernel::profile::Face;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::circuit;
use super::job::{Job, SubmittedBy, job_id};
use super::lifecycle::RuntimeInner;
use super::live_events::LiveEventKind;
use super::records::{self, ScheduleStatus};
use crate::breaker::{Admission, BreakerState, BreakerTransition};
use crate::program::{Plugin, Program};
use crate::schedule::{DueDecision, IfRunning, Overlap, ScheduleEntry, ScheduleMode, Skip};

/// How often a check restarts after a conflict before it waits for the next tick. The bound is low, because the next tick is near.
const TRIES_MAX: u32 = 5;
/// The maximum number of open jobs that are read, and cancelled if configured.
const OPEN_MAX: u32 = 1_000;
const CANCELLED: &str = "cancelled by scheduler (if_running=cancel)";

pub(super) struct ScheduleCheck<'l> {
    pub(super) inner: &'l RuntimeInner,
    pub(super) program: &'l Program,
    pub(super) plugin: &'l Plugin,
    pub(super) entry: &'l ScheduleEntry,
    pub(super) zone: &'l TimeZone,
}

/// The entry and the breaker as read.
struct CheckedRecords {
    entry: Versioned<records::ScheduleRecord>,
    breaker: Versioned<records::BreakerRecord>,
    change: Option<BreakerTransition>,
}

impl ScheduleCheck<'_> {
    /// Runs the check. Returns when to check again; `None` if only a new plan brings the entry back.
    pub(super) async fn run(&self) -> Result<Option<Timestamp>, Error> {
        for _ in 0..TRIES_MAX {
            match self.try_run().await {
                // Another node wrote a record, or a job to be cancelled has ended.
                Err(Error::Refused(
                    Refusal::VersionMismatch | Refusal::IllegalState | Refusal::NotFound,
                )) => {}
                checked => return checked,
            }
        }
        Ok(Some(self.inner.wall_time()))
    }

    async fn try_run(&self) -> Result<Option<Timestamp>, Error> {
        let (engine, now) = (&self.inner.engine, self.inner.wall_time());
        let key = records::schedule_key(&self.plugin.name, &self.entry.id);
        let Some(entry) = engine.load::<records::ScheduleRecord>(key.clone()).await? else {
            let first = Versioned::new(key, self.initial_state(now));
            engine.put(first.put()).await?;
            return Ok(first.value.state.next_run_at);
        };
        match entry.value.status {
            ScheduleStatus::Active => {}
            ScheduleStatus::PausedManual => return Ok(self.skip(Skip::PausedManual, None)),
            // The next plan corrects it if the configuration has the entry.
            ScheduleStatus::PausedInvalid | ScheduleStatus::Exhausted => return Ok(None),
        }
        let decision = self.entry.due(&entry.value.state, now);
        match decision {
            DueDecision::Fire => {}
            DueDecision::NotDue(next) => return Ok(Some(next)),
            DueDecision::Exhausted => return Ok(None),
            DueDecision::Outside(_, opens_at) => {
                let skip = decision.skip().unwrap_or(Skip::OutsideTimeWindow);
                return Ok(self.skip(skip, Some(opens_at)));
            }
        }
        let key = records::breaker_key(&self.plugin.name, &self.entry.command);
        let breaker: Versioned<records::BreakerRecord> = engine.load_or_default(key).await?;
        let loaded = CheckedRecords {
            entry,
            breaker,
            change: None,
        };
        self.fire_if_allowed(loaded, now).await
    }

    /// The entry is due; fires it if the breaker and the open jobs allow it.
    async fn fire_if_allowed(
        &self,
        mut loaded: CheckedRecords,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Error> {
        let (plugin, command) = (&self.plugin.name, &self.entry.command);
        // After reading the breaker: any concurrent firing writes it.
        let engine = &self.inner.engine;
        let open = engine.open_jobs(plugin, Some(command), OPEN_MAX).await?;
        let policy = self.plugin.breaker;
        let breaker = &mut loaded.breaker.value.breaker;
        let (admission, change) = breaker.admit(!open.is_empty(), policy, now);
        let probes_at = breaker.probes_at(policy);
        loaded.change = change;
        if admission == Admission::Refused {
            self.save_transition(loaded, now).await?;
            return Ok(self.skip(Skip::CircuitOpen, Some(probes_at.unwrap_or(now).max(now))));
        }
        let outstanding = u32::try_from(open.len()).unwrap_or(u32::MAX);
        let outstanding_max = u32::try_from(self.plugin.max_outstanding_polls).unwrap_or(u32::MAX);
        let cancelled = match self.entry.overlap(outstanding, outstanding_max) {
            Overlap::Enqueue => Vec::new(),
            Overlap::CancelThenEnqueue => open.iter().map(|job| job.id).collect(),
            Overlap::Skip(skip) => {
                self.save_transition(loaded, now).await?;
                return Ok(self.skip(skip, Some(now)));
            }
        };
        let key = self.entry.dedupe_key(plugin);
        let job = self.job(key);
        self.fire(loaded, now, vec![job], &cancelled).await
    }

    /// Writes the transition of a breaker that refused the run.
    async fn save_transition(
        &self,
        mut loaded: CheckedRecords,
        now: Timestamp,
    ) -> Result<(), Error> {
        let Some(change) = loaded.change else {
            return Ok(());
        };
        let mut unit = UnitOfWork::default();
        loaded.breaker.value.updated_at = Some(now);
        let (engine, line) = (&self.inner.engine, change.clone());
        circuit::write_transition(engine, &loaded.breaker, line, None, &mut unit);
        engine.commit(unit).await?;
        self.emit_transition(&change);
        Ok(())
    }

    async fn fire(
        &self,
        mut loaded: CheckedRecords,
        now: Timestamp,
        jobs: Vec<Job>,
        cancelled: &[IntentId],
    ) -> Result<Option<Timestamp>, Error> {
        let engine = &self.inner.engine;
        let entry = &mut loaded.entry.value;
        self.entry
            .fired(&mut entry.state, now, self.zone, self.draw());
        if entry.state.next_run_at.is_none() {
            entry.status = ScheduleStatus::Exhausted;
        }
        entry.updated_at = now;
        loaded.breaker.value.updated_at = Some(now);
        let mut unit = UnitOfWork::default();
        unit.replace(&loaded.entry);
        match &loaded.change {
            Some(change) => {
                let line = change.clone();
                circuit::write_transition(engine, &loaded.breaker, line, None, &mut unit);
            }
            None => unit.replace(&loaded.breaker),
        }
        for id in cancelled {
            unit.require(Command::Cancel(Operate {
                id: *id,
                face: Face::Automation,
                reason: CANCELLED.to_owned(),
            }));
        }
        let window = Some(self.window());
        let items = jobs.iter().map(|job| {
            let mut intent = job.intent(self.program, None, window);
            if let Some(unless) = &mut intent.unless {
                unless.open = !self.queues_behind_itself();
            }
            intent
        });
        let admitted = unit.admit(items.collect());
        let admitted = engine.commit(unit).await?.get(admitted)?;
        for id in cancelled {
            self.inner.cancel_signals().cancel(*id);
            self.inner.unreported_ends.notify_one();
        }
        if let Some(change) = &loaded.change {
            self.emit_transition(change);
        }
        let mut any = false;
        for (job, admitted) in jobs.iter().zip(&admitted) {
            any |= !admitted.replayed;
            if admitted.replayed {
                self.log_duplicate(job, admitted.id);
            }
        }
        if !any && matches!(self.entry.mode, ScheduleMode::Every(_)) {
            return self.postpone(loaded.entry, now).await;
        }
        // An interval stays due until a run succeeds.
        Ok(loaded.entry.value.state.next_run_at)
    }

    /// Restarts the interval, because a run that just succeeded made this one a duplicate.
    async fn postpone(
        &self,
        mut record: Versioned<records::ScheduleRecord>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Error> {
        let draw = self.draw();
        self.entry
            .deduplicated(&mut record.value.state, now, self.zone, draw);
        record.version += 1;
        let mut unit = UnitOfWork::default();
        unit.replace(&record);
        self.inner.engine.commit(unit).await?;
        Ok(record.value.state.next_run_at)
    }

    /// At start, fires the runs that were missed while no service ran.
    pub(super) async fn catch_up(&self) -> Result<(), Error> {
        let (engine, now) = (&self.inner.engine, self.inner.wall_time());
        let (plugin, command) = (&self.plugin.name, &self.entry.command);
        let key = records::schedule_key(plugin, &self.entry.id);
        let Some(entry) = engine.load::<records::ScheduleRecord>(key).await? else {
            return Ok(());
        };
        let is_due = self.entry.due(&entry.value.state, now) == DueDecision::Fire;
        let key = records::breaker_key(plugin, command);
        let breaker: Versioned<records::BreakerRecord> = engine.load_or_default(key).await?;
        let is_closed = breaker.value.breaker.state == BreakerState::Closed;
        if entry.value.status != ScheduleStatus::Active || !is_due || !is_closed {
            return Ok(());
        }
        let missed = self.entry.catch_up(&entry.value.state, plugin, now);
        let jobs: Vec<Job> = missed
            .into_iter()
            .map(|missed| self.job(missed.dedupe_key))
            .collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let loaded = CheckedRecords {
            entry,
            breaker,
            change: None,
        };
        match self.fire(loaded, now, jobs, &[]).await {
            // Another node made up for them.
            Err(Error::Refused(Refusal::VersionMismatch)) => Ok(()),
            fired => fired.map(|_| ()),
        }
    }

    pub(super) fn initial_state(&self, now: Timestamp) -> records::ScheduleRecord {
        records::ScheduleRecord {
            command: self.entry.command.clone(),
            rule: self.entry.rule(),
            status: ScheduleStatus::Active,
            reason: None,
            state: self.entry.initial_state(now, self.zone, self.draw()),
            last_success_job_id: None,
            updated_at: now,
        }
    }

    fn job(&self, dedupe_key: String) -> Job {
        let payload = Value::Object(self.entry.payload.clone());
        Job {
            dedupe_key: Some(dedupe_key),
            schedule_id: Some(self.entry.id.clone()),
            ..Job::root(
                &self.plugin.name,
                &self.entry.command,
                SubmittedBy::Scheduler,
                payload,
            )
        }
    }

    /// The time within which a success makes another run a duplicate. It is one tick shorter than the interval, because the time
    /// in the ledger is slightly later than the start of the interval, and a run on time is no duplicate.
    fn window(&self) -> Duration {
        let tick = self.program.config().service.tick_interval;
        self.entry.dedupe_ttl(tick).saturating_sub(tick)
    }

    /// A cron slot that queues behind the previous one is no duplicate of it. An interval is one, because it stays due until a
    /// run succeeds.
    fn queues_behind_itself(&self) -> bool {
        let is_interval = matches!(self.entry.mode, ScheduleMode::Every(_));
        self.entry.if_running == IfRunning::Queue && !is_interval
    }

    pub(super) fn draw(&self) -> u64 {
        (self.inner.engine.entropy().draw() >> 64) as u64
    }

    /// Reports why there is no job, and returns when to check again.
    fn skip(&self, skip: Skip, next: Option<Timestamp>) -> Option<Timestamp> {
        self.inner.emit(LiveEventKind::Skipped {
            plugin: self.plugin.name.clone(),
            schedule_id: self.entry.id.clone(),
            command: self.entry.command.clone(),
            reason: skip,
            next_run_at: next,
        });
        next
    }

    fn emit_transition(&self, change: &BreakerTransition) {
        let (plugin, command) = (&self.plugin.name, &self.entry.command);
        self.inner.emit_transition(plugin, command, change);
    }

    fn log_duplicate(&self, job: &Job, existing: IntentId) {
        let (id, plugin, schedule_id) = (job_id(existing), &job.plugin, &self.entry.id);
        let dedupe_key = job.dedupe_key.as_deref();
        tracing::info!(
            component = "scheduler",
            plugin,
            schedule_id,
            dedupe_key,
            existing_job_id = id,
            "a duplicate job was not queued"
        );
    }
}
