//! Builds the due queue from records and configuration: new entries start, changed entries restart, and removed entries are
//! paused.

use std::collections::BTreeMap;
use std::sync::Arc;

use consign_engine::{Engine, Error, Versioned};
use consign_kernel::command::Command;
use consign_kernel::error::Refusal;
use consign_kernel::plant::{self, Plant};
use consign_kernel::record::{Kind, Record};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::due_queue::DueQueue;
use super::lifecycle::RuntimeInner;
use super::records::{self, ScheduleStatus};
use super::schedule_check::ScheduleCheck;
use crate::program::Program;
use crate::schedule::CatchUp;

const PAGE_RECORDS: u32 = 500;
/// The reason of an entry that is paused because the configuration does not have it.
const NOT_CONFIGURED: &str = "not_configured";

/// With `is_start`, makes up for runs that were missed while the service was down. Returns the queue, and whether it is still
/// valid: if another node wrote a record meanwhile, it must be built again.
pub(super) async fn plan(
    inner: &RuntimeInner,
    program: &Program,
    zone: &TimeZone,
    is_start: bool,
) -> Result<(DueQueue, bool), Error> {
    let mut due_queue = DueQueue::default();
    let mut writes = Vec::new();
    let mut late_checks = Vec::new();
    let now = inner.wall_time();
    for plugin in program.plugins() {
        let mut stored = load_schedules(&inner.engine, &plugin.name).await?;
        let name: Arc<str> = Arc::from(plugin.name.as_str());
        for (index, entry) in plugin.schedules.iter().enumerate() {
            let check = ScheduleCheck {
                inner,
                program,
                plugin,
                entry,
                zone,
            };
            let record = stored.remove(&entry.id);
            let version = record.as_ref().map_or(0, |record| record.version);
            let known = record.as_ref().and_then(parse_record);
            let is_known = known.is_some();
            let (value, is_new) = updated_record(&check, known, now);
            if is_new {
                let key = records::schedule_key(&plugin.name, &entry.id);
                let record = Versioned {
                    version,
                    ..Versioned::new(key, &value)
                };
                writes.push(Command::Put(record.put()));
            }
            let is_active = value.status == ScheduleStatus::Active;
            let next = value.state.next_run_at.filter(|_| is_active);
            due_queue.add(&name, index, next);
            if is_known && entry.catch_up != CatchUp::Skip {
                late_checks.push(check);
            }
        }
        writes.extend(
            stored
                .values()
                .filter_map(|record| pause_unconfigured(record, now)),
        );
    }
    let configured = program.config().plugins.keys();
    for name in configured.filter(|name| program.plugin(name).is_none()) {
        let stored = load_schedules(&inner.engine, name).await?;
        writes.extend(
            stored
                .values()
                .filter_map(|record| pause_unconfigured(record, now)),
        );
    }
    let holds = write_records(&inner.engine, writes).await?;
    if is_start {
        for check in late_checks {
            check.catch_up().await?;
        }
    }
    Ok((due_queue, holds))
}

/// The new state of the entry, and whether it must be written.
fn updated_record(
    check: &ScheduleCheck<'_>,
    known: Option<records::ScheduleRecord>,
    now: Timestamp,
) -> (records::ScheduleRecord, bool) {
    let ScheduleCheck { entry, zone, .. } = check;
    let Some(mut value) = known else {
        return (check.initial_state(now), true);
    };
    let was = value.clone();
    if value.rule != entry.rule() {
        value.rule = entry.rule();
        entry.changed(&mut value.state, now, zone, check.draw());
        if value.status == ScheduleStatus::Exhausted {
            value.status = ScheduleStatus::Active;
        }
    } else if entry.is_too_far(&value.state, now, zone) {
        entry.deduplicated(&mut value.state, now, zone, check.draw());
    }
    if value.status == ScheduleStatus::Exhausted && plant::on(Plant::SpentShotFires) {
        return (check.initial_state(now), true);
    }
    if value.status == ScheduleStatus::PausedInvalid {
        (value.status, value.reason) = (ScheduleStatus::Active, None);
    }
    if value.status == ScheduleStatus::Active && value.state.next_run_at.is_none() {
        value.status = ScheduleStatus::Exhausted;
    }
    value.command.clone_from(&entry.command);
    let is_new = value != was;
    if is_new {
        value.updated_at = now;
    }
    (value, is_new)
}

/// An entry that is no longer configured keeps its state, in case it comes back.
fn pause_unconfigured(record: &Record, now: Timestamp) -> Option<Command> {
    let mut value = parse_record(record).filter(|value| value.status == ScheduleStatus::Active)?;
    value.status = ScheduleStatus::PausedInvalid;
    value.reason = Some(NOT_CONFIGURED.to_owned());
    value.updated_at = now;
    let paused = Versioned {
        version: record.version,
        ..Versioned::new(record.key.clone(), value)
    };
    Some(Command::Put(paused.put()))
}

pub(super) fn parse_record(record: &Record) -> Option<records::ScheduleRecord> {
    let (plugin, schedule_id) = (&record.key.owner, &record.key.name);
    serde_json::from_str(&record.value)
        .inspect_err(|error| tracing::error!(component = "scheduler", plugin, schedule_id, %error, "the record of a schedule is unreadable"))
        .ok()
}

/// All stored entries of a plugin, by id.
pub(super) async fn load_schedules(
    engine: &Engine,
    plugin: &str,
) -> Result<BTreeMap<String, Record>, Error> {
    let mut found: BTreeMap<String, Record> = BTreeMap::new();
    loop {
        let after = found
            .last_key_value()
            .map_or("", |(name, _)| name)
            .to_owned();
        let page = engine.records(Kind::Schedule, plugin, &after, PAGE_RECORDS);
        let page = page.await?;
        let is_last = page.len() < PAGE_RECORDS as usize;
        found.extend(
            page.into_iter()
                .map(|record| (record.key.name.clone(), record)),
        );
        if is_last {
            return Ok(found);
        }
    }
}

/// Returns whether all records still had the version that was read.
async fn write_records(engine: &Engine, writes: Vec<Command>) -> Result<bool, Error> {
    let mut holds = true;
    for piece in writes.chunks(PAGE_RECORDS as usize) {
        for answer in engine.execute(None, piece.to_vec()).await? {
            match answer {
                Ok(_) => {}
                Err(Refusal::VersionMismatch) => holds = false,
                Err(refusal) => return Err(refusal.into()),
            }
        }
    }
    Ok(holds)
}
