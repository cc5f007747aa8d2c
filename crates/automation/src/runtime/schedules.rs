//! Schedules for operators: their state, and pause, resume and run.

use consign_engine::Error;
use consign_kernel::error::Refusal;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::job::{Job, SubmittedBy};
use super::lifecycle::Runtime;
use super::plan;
use super::records::{self, ScheduleStatus};
use super::trigger::Enqueued;
use crate::breaker::{Breaker, BreakerPolicy, BreakerState};
use crate::program::Program;
use crate::schedule::ScheduleEntry;

/// How many coming runs are listed.
const COMING: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleInfo {
    pub plugin: String,
    pub schedule_id: String,
    pub command: String,
    /// `every`, `cron`, `at` or `after`; empty for an entry that is no longer configured.
    pub mode: &'static str,
    pub status: ScheduleStatus,
    pub reason: Option<String>,
    pub timezone: Option<String>,
    /// Not before the breaker lets a run through, if it is open.
    pub next_run_at: Option<Timestamp>,
    pub last_fired_at: Option<Timestamp>,
    pub last_success_at: Option<Timestamp>,
    pub last_success_job_id: Option<String>,
    /// The coming runs, if each succeeds at once.
    pub next: Vec<Timestamp>,
}

#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error("the plugin `{plugin}` has no schedule `{id}`")]
    NoSchedule { plugin: String, id: String },
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Runtime {
    /// All entries, by plugin and in the order of the file; entries that are no longer configured come last.
    pub async fn schedules(&self) -> Result<Vec<ScheduleInfo>, Error> {
        let program = self.program();
        let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
        let now = self.inner.wall_time();
        let mut found = Vec::new();
        for plugin in program.plugins() {
            let mut stored = plan::load_schedules(self.engine(), &plugin.name).await?;
            let circuits = self.breakers(&plugin.name).await?;
            for entry in &plugin.schedules {
                let known = stored.remove(&entry.id);
                let known = known.and_then(|record| plan::parse_record(&record));
                let breaker = circuits.get(&entry.command).map(|circuit| &circuit.breaker);
                let refused_until = breaker.and_then(|one| refused_until(one, plugin.breaker, now));
                found.push(configured_schedule_info(
                    &plugin.name,
                    entry,
                    known,
                    (now, refused_until),
                    &zone,
                ));
            }
            let gone = stored.values().filter_map(|record| {
                let known = plan::parse_record(record)?;
                Some(schedule_info(&plugin.name, &record.key.name, "", known))
            });
            found.extend(gone);
        }
        Ok(found)
    }

    /// Stops creating jobs until the schedule is resumed, even after a restart.
    pub async fn pause_schedule(&self, plugin: &str, id: &str) -> Result<(), ScheduleError> {
        self.set_status(plugin, id, ScheduleStatus::PausedManual)
            .await
    }

    pub async fn resume_schedule(&self, plugin: &str, id: &str) -> Result<(), ScheduleError> {
        self.set_status(plugin, id, ScheduleStatus::Active).await
    }

    /// Queues the job of the entry now. The entry and its breaker are not affected.
    pub async fn run_schedule(
        &self,
        plugin: &str,
        id: &str,
        submitted_by: SubmittedBy,
    ) -> Result<Enqueued, ScheduleError> {
        let program = self.program();
        let entry = entry(&program, plugin, id)?;
        let payload = Value::Object(entry.payload.clone());
        let job = Job::root(plugin, &entry.command, submitted_by, payload);
        Ok(self.enqueue(job, None).await?)
    }

    async fn set_status(
        &self,
        plugin: &str,
        id: &str,
        wanted: ScheduleStatus,
    ) -> Result<(), ScheduleError> {
        let program = self.program();
        let entry = entry(&program, plugin, id)?;
        let change = |record: &mut Option<records::ScheduleRecord>| {
            let Some(value) = record else {
                // Configured, but not planned yet.
                return Err(Error::Refused(Refusal::NotFound));
            };
            let now = self.inner.wall_time();
            if value.status == ScheduleStatus::PausedManual && wanted == ScheduleStatus::Active {
                let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
                let draw = (self.engine().entropy().draw() >> 64) as u64;
                entry.resumed(&mut value.state, now, &zone, draw);
            }
            value.status = match value.state.next_run_at {
                // An exhausted entry stays exhausted.
                None => ScheduleStatus::Exhausted,
                Some(_) => wanted,
            };
            value.reason = None;
            value.updated_at = now;
            Ok(())
        };
        let key = records::schedule_key(plugin, id);
        self.engine().update(key, change).await?;
        self.inner.replan.notify_one();
        Ok(())
    }
}

fn entry<'p>(
    program: &'p Program,
    plugin: &str,
    id: &str,
) -> Result<&'p ScheduleEntry, ScheduleError> {
    let mut entries = program
        .plugin(plugin)
        .into_iter()
        .flat_map(|one| &one.schedules);
    entries
        .find(|entry| entry.id == id)
        .ok_or_else(|| ScheduleError::NoSchedule {
            plugin: plugin.to_owned(),
            id: id.to_owned(),
        })
}

fn configured_schedule_info(
    plugin: &str,
    entry: &ScheduleEntry,
    known: Option<records::ScheduleRecord>,
    (now, refused_until): (Timestamp, Option<Timestamp>),
    zone: &TimeZone,
) -> ScheduleInfo {
    let mut known = known.unwrap_or_else(|| records::ScheduleRecord {
        command: entry.command.clone(),
        rule: entry.rule(),
        status: ScheduleStatus::Active,
        reason: None,
        state: entry.initial_state(now, zone, 0),
        last_success_job_id: None,
        updated_at: now,
    });
    let is_active = known.status == ScheduleStatus::Active;
    if let (Some(next), Some(refused_until)) = (&mut known.state.next_run_at, refused_until) {
        *next = refused_until.max(*next);
    }
    let next = if is_active {
        entry.coming(&known.state, now, zone, COMING)
    } else {
        Vec::new()
    };
    let timezone = entry.timezone.as_ref().and_then(TimeZone::iana_name);
    ScheduleInfo {
        timezone: timezone.map(str::to_owned),
        next,
        ..schedule_info(plugin, &entry.id, entry.mode_word(), known)
    }
}

/// Until when a breaker that is not closed refuses runs; never in the past.
fn refused_until(breaker: &Breaker, policy: BreakerPolicy, now: Timestamp) -> Option<Timestamp> {
    let is_closed = breaker.state == BreakerState::Closed;
    let probes_at = breaker.probes_at(policy).unwrap_or(now);
    (!is_closed).then_some(probes_at.max(now))
}

fn schedule_info(
    plugin: &str,
    id: &str,
    mode: &'static str,
    known: records::ScheduleRecord,
) -> ScheduleInfo {
    ScheduleInfo {
        plugin: plugin.to_owned(),
        schedule_id: id.to_owned(),
        command: known.command,
        mode,
        status: known.status,
        reason: known.reason,
        timezone: None,
        next_run_at: known.state.next_run_at,
        last_fired_at: known.state.last_fired_at,
        last_success_at: known.state.last_success_at,
        last_success_job_id: known.last_success_job_id,
        next: Vec::new(),
    }
}
