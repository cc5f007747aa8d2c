//! The scheduler: checks the entries that are due and queues their jobs. An entry that is due but cannot run is checked again on
//! the next tick.
//!
//! The record of an entry holds its state; the [`DueQueue`] only says when to check it. The queue is rebuilt at start, after a
//! change by the configuration or an operator, and every few minutes to pick up writes of other nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::task::JoinSet;

use super::due_queue::{DueQueue, EntryRef};
use super::lifecycle::RuntimeInner;
use super::live_events::LiveEventKind;
use super::plan;
use super::schedule_check::ScheduleCheck;
use crate::program::Program;

/// The minimum tick; entries that are due within it are checked together.
const TICK_MIN: Duration = Duration::from_millis(50);
const REPLAN_EVERY: Duration = Duration::from_mins(5);
/// The number of plugins that are checked concurrently; the entries of one plugin are checked in order.
const PLUGINS_AT_ONCE: usize = 16;

/// Ticks until the runtime stops.
pub(super) async fn schedule(inner: Arc<RuntimeInner>) {
    let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
    let mut stopping = inner.stopping.subscribe();
    let mut program = inner.program();
    let mut due_queue = DueQueue::default();
    let mut planned: Option<Instant> = None;
    let mut is_start = true;
    while !*stopping.borrow_and_update() {
        let current = inner.program();
        let is_stale = planned.is_none_or(|at| at.elapsed() >= REPLAN_EVERY);
        if is_stale || !Arc::ptr_eq(&program, &current) {
            program = current;
            match plan::plan(&inner, &program, &zone, is_start).await {
                Ok((made, holds)) => {
                    let at = holds.then(Instant::now);
                    (due_queue, planned, is_start) = (made, at, false);
                }
                Err(error) => {
                    planned = None;
                    tracing::warn!(component = "scheduler", %error, "the schedules could not be read; the next tick retries");
                }
            }
        }
        recheck_succeeded(&inner, &program, &mut due_queue);
        tick(&inner, &program, &zone, &mut due_queue).await;
        tokio::select! {
            () = tokio::time::sleep(pause(&inner, &program, &due_queue)) => {}
            () = inner.replan.notified() => planned = None,
            () = inner.recheck.notified() => {}
            _ = stopping.changed() => {}
        }
    }
}

/// Rechecks the schedules whose jobs succeeded, because an interval is counted from the last success.
fn recheck_succeeded(inner: &RuntimeInner, program: &Program, due_queue: &mut DueQueue) {
    let now = inner.wall_time();
    for (plugin, id) in std::mem::take(&mut *inner.succeeded_schedules()) {
        let mut entries = program
            .plugin(&plugin)
            .into_iter()
            .flat_map(|one| &one.schedules);
        let entry = entries
            .position(|entry| entry.id == id)
            .map(|index| EntryRef {
                plugin: Arc::from(plugin),
                index,
            });
        if let Some(number) = entry.and_then(|entry| due_queue.number(&entry)) {
            due_queue.set(number, Some(now));
        }
    }
}

/// Until the next tick, or until an earlier entry is due.
fn pause(inner: &RuntimeInner, program: &Program, due_queue: &DueQueue) -> Duration {
    let tick = program.config().service.tick_interval;
    let until = |first: Timestamp| Duration::try_from(first.duration_since(inner.wall_time()));
    let first = due_queue
        .first()
        .map(|first| until(first).unwrap_or_default());
    first.map_or(tick, |first| first.clamp(TICK_MIN.min(tick), tick))
}

async fn tick(
    inner: &Arc<RuntimeInner>,
    program: &Arc<Program>,
    zone: &TimeZone,
    due_queue: &mut DueQueue,
) {
    let began = Instant::now();
    let now = inner.wall_time();
    let due = due_queue.due(now);
    let looked_at = due.len();
    // An entry that is due but could not run waits for the next tick.
    let later = now.saturating_add(program.config().service.tick_interval);
    let later = later.unwrap_or(Timestamp::MAX);
    let mut checks = JoinSet::new();
    for of_one in due.chunk_by(|(_, a), (_, b)| a.plugin == b.plugin) {
        if checks.len() >= PLUGINS_AT_ONCE {
            requeue_checked(due_queue, checks.join_next().await, (now, later));
        }
        let (inner, program, zone) = (Arc::clone(inner), Arc::clone(program), zone.clone());
        checks.spawn(check_entries(inner, program, zone, of_one.to_vec()));
    }
    while let Some(checked) = checks.join_next().await {
        requeue_checked(due_queue, Some(checked), (now, later));
    }
    let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    inner.emit(LiveEventKind::Tick {
        now,
        entries: due_queue.len(),
        looked_at,
        took_us,
    });
}

type CheckedEntries = Vec<(usize, Option<Timestamp>)>;

fn requeue_checked(
    due_queue: &mut DueQueue,
    checked: Option<Result<CheckedEntries, tokio::task::JoinError>>,
    (now, later): (Timestamp, Timestamp),
) {
    // A check that panicked was logged; its entries return with the next plan.
    for (number, next) in checked.and_then(Result::ok).into_iter().flatten() {
        let next = next.map(|next| if next <= now { later } else { next });
        due_queue.set(number, next);
    }
}

async fn check_entries(
    inner: Arc<RuntimeInner>,
    program: Arc<Program>,
    zone: TimeZone,
    due: Vec<(usize, EntryRef)>,
) -> CheckedEntries {
    let mut checked = Vec::with_capacity(due.len());
    for (number, EntryRef { plugin, index }) in due {
        let found = program.plugin(&plugin);
        let Some((plugin, entry)) = found.and_then(|one| Some((one, one.schedules.get(index)?)))
        else {
            continue;
        };
        let check = ScheduleCheck {
            inner: &inner,
            program: &program,
            plugin,
            entry,
            zone: &zone,
        };
        let next = match check.run().await {
            Ok(next) => next,
            Err(error) => {
                let (plugin, schedule_id) = (&plugin.name, &entry.id);
                tracing::warn!(component = "scheduler", plugin, schedule_id, %error, "a schedule could not be checked; the next tick retries");
                Some(inner.wall_time())
            }
        };
        checked.push((number, next));
    }
    checked
}
