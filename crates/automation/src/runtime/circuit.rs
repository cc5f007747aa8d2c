//! Circuit breakers: applies the result of a scheduled job, and lets operators read and reset a breaker.
//!
//! Every end other than success counts as a failure, including cancellation: a run that an operator had to stop is no sign of
//! health.

use consign_engine::{Engine, Error, UnitOfWork, Versioned};
use consign_kernel::limits::RECORD_LIFE_US;
use consign_kernel::record::Kind;
use jiff::Timestamp;

use super::attempt::{Attempt, AttemptReport};
use super::job::Job;
use super::lifecycle::{Runtime, RuntimeInner};
use super::live_events::LiveEventKind;
use super::records;
use crate::breaker::{BreakerState, BreakerTransition};

/// The state of a breaker and its history.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerInfo {
    pub plugin: String,
    pub command: String,
    pub state: BreakerState,
    pub failure_count: u32,
    pub opened_at: Option<Timestamp>,
    pub last_failure_at: Option<Timestamp>,
    pub last_job_id: Option<String>,
    pub updated_at: Option<Timestamp>,
    /// Newest first.
    pub transitions: Vec<records::BreakerChange>,
}

impl Runtime {
    /// `None` for a plugin or command that does not exist and never had a breaker.
    pub async fn breaker(
        &self,
        plugin: &str,
        command: &str,
        limit: u32,
    ) -> Result<Option<BreakerInfo>, Error> {
        let engine = self.engine();
        let key = records::breaker_key(plugin, command);
        let record: Versioned<records::BreakerRecord> = engine.load_or_default(key).await?;
        if record.version == 0 && self.program().command(plugin, command).is_none() {
            return Ok(None);
        }
        let history = format!("{plugin}/{command}");
        let history = engine.last_records(Kind::BreakerChange, &history, "", limit);
        let transitions = history.await?.into_iter().filter_map(|record| {
            // One unreadable line must not hide the others.
            serde_json::from_str(&record.value).ok()
        });
        let records::BreakerRecord {
            breaker,
            last_failure_at,
            updated_at,
        } = record.value;
        Ok(Some(BreakerInfo {
            plugin: plugin.to_owned(),
            command: command.to_owned(),
            state: breaker.state,
            failure_count: breaker.failures,
            opened_at: breaker.opened_at,
            last_failure_at,
            last_job_id: breaker.last_job_id,
            updated_at,
            transitions: transitions.collect(),
        }))
    }

    /// Closes a breaker on request of an operator; scheduled jobs continue with the next tick.
    pub async fn reset_breaker(&self, plugin: &str, command: &str) -> Result<(), Error> {
        let inner = &self.inner;
        let engine = &inner.engine;
        let reset = |record: &mut Versioned<records::BreakerRecord>, unit: &mut UnitOfWork| {
            let now = inner.wall_time();
            let transition = record.value.breaker.reset(now);
            record.value.updated_at = Some(now);
            write_history(engine, record, transition.clone(), None, unit);
            Ok::<_, Error>(transition)
        };
        let key = records::breaker_key(plugin, command);
        let transition = engine.update_with(key, reset).await?;
        inner.emit_transition(plugin, command, &transition);
        inner.replan.notify_one();
        Ok(())
    }
}

/// Writes the breaker and the line of its history that explains the change.
pub(super) fn write_transition(
    engine: &Engine,
    record: &Versioned<records::BreakerRecord>,
    transition: BreakerTransition,
    job_id: Option<String>,
    unit: &mut UnitOfWork,
) {
    write_history(engine, record, transition, job_id, unit);
    unit.replace(record);
}

/// Writes the line of the history for a breaker that is written in the same commit.
fn write_history(
    engine: &Engine,
    record: &Versioned<records::BreakerRecord>,
    transition: BreakerTransition,
    job_id: Option<String>,
    unit: &mut UnitOfWork,
) {
    let (plugin, command) = (&record.key.owner, &record.key.name);
    let until = engine.now().plus(RECORD_LIFE_US);
    let line = records::BreakerChange {
        command: command.clone(),
        transition,
        job_id,
    };
    let key = records::breaker_change_key(plugin, command, record.version + 1);
    unit.put_until(key, &line, until);
}

/// Updates the breaker and the schedule after a scheduled job ended.
pub(super) async fn record_result(
    engine: &Engine,
    attempt: &Attempt,
    succeeded: bool,
    ended: &AttemptReport,
    unit: &mut UnitOfWork,
) -> Result<Option<BreakerTransition>, Error> {
    let Job {
        plugin, command, ..
    } = &attempt.job;
    let Some(configured) = attempt.program.plugin(plugin) else {
        return Ok(None);
    };
    let now = ended.completed_at;
    let key = records::breaker_key(plugin, command);
    let mut record: Versioned<records::BreakerRecord> = engine.load_or_default(key).await?;
    let circuit = &mut record.value;
    let id = attempt.job_id();
    let transition = circuit
        .breaker
        .observe(&id, succeeded, configured.breaker, now);
    circuit.updated_at = Some(now);
    if !succeeded {
        circuit.last_failure_at = Some(now);
    }
    match &transition {
        Some(transition) => {
            let (transition, job_id) = (transition.clone(), Some(id.clone()));
            write_transition(engine, &record, transition, job_id, unit);
        }
        None => unit.replace(&record),
    }
    let entry = attempt.job.schedule_id.as_ref().and_then(|id| {
        let mut entries = configured.schedules.iter();
        entries.find(|entry| entry.id == *id)
    });
    if let (Some(entry), true) = (entry, succeeded) {
        let key = records::schedule_key(plugin, &entry.id);
        if let Some(mut record) = engine.load::<records::ScheduleRecord>(key).await? {
            let draw = (engine.entropy().draw() >> 64) as u64;
            entry.succeeded(&mut record.value.state, now, draw);
            record.value.last_success_job_id = Some(id);
            record.value.updated_at = now;
            unit.replace(&record);
        }
    }
    Ok(transition)
}

impl RuntimeInner {
    pub(super) fn emit_transition(&self, plugin: &str, command: &str, change: &BreakerTransition) {
        let BreakerTransition { from, to, .. } = change;
        tracing::warn!(
            component = "scheduler",
            plugin,
            command,
            from = from.as_str(),
            to = to.as_str(),
            reason = change.reason.as_str(),
            "a circuit breaker changed its state"
        );
        self.emit(LiveEventKind::BreakerChanged {
            plugin: plugin.to_owned(),
            command: command.to_owned(),
            transition: change.clone(),
        });
    }
}
