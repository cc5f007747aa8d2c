//! The clock of the service: the entries whose time has come are looked at, and what is due becomes a job. What is due and could not run
//! is looked at again on the next tick.
//!
//! What an entry is stands in its record; the [`Agenda`] only says when to look. It is made anew at start, when the configuration or an
//! operator changed something, and every few minutes, so that what another node wrote is noticed here too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;
use tokio::task::JoinSet;

use super::agenda::{Agenda, Slot};
use super::look::Look;
use super::plan;
use super::service::Inner;
use crate::program::Program;

/// Entries that are due within this time of each other are looked at together.
const BREATH: Duration = Duration::from_millis(50);
const REPLAN_EVERY: Duration = Duration::from_mins(5);
/// Plugins whose entries are looked at beside each other; those of one plugin are looked at in their order.
const PLUGINS_AT_ONCE: usize = 16;

/// Ticks until the service stops.
pub(super) async fn schedule(inner: Arc<Inner>) {
    let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
    let mut stopping = inner.stopping.subscribe();
    let mut program = inner.program();
    let mut agenda = Agenda::default();
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
                    (agenda, planned, is_start) = (made, at, false);
                }
                Err(error) => {
                    planned = None;
                    tracing::warn!(component = "scheduler", %error, "the schedules could not be read; the next tick tries again");
                }
            }
        }
        look_again(&inner, &program, &mut agenda);
        tick(&inner, &program, &zone, &mut agenda).await;
        tokio::select! {
            () = tokio::time::sleep(pause(&inner, &program, &agenda)) => {}
            () = inner.replan.notified() => planned = None,
            () = inner.look_again.notified() => {}
            _ = stopping.changed() => {}
        }
    }
}

/// An interval is counted from its last success, which is known now.
fn look_again(inner: &Inner, program: &Program, agenda: &mut Agenda) {
    let now = inner.instant();
    for (plugin, id) in std::mem::take(&mut *inner.succeeded()) {
        let mut entries = program
            .plugin(&plugin)
            .into_iter()
            .flat_map(|one| &one.schedules);
        let slot = entries.position(|entry| entry.id == id).map(|index| Slot {
            plugin: Arc::from(plugin),
            index,
        });
        if let Some(number) = slot.and_then(|slot| agenda.number(&slot)) {
            agenda.set(number, Some(now));
        }
    }
}

/// Until the next tick, or until an entry is due before it.
fn pause(inner: &Inner, program: &Program, agenda: &Agenda) -> Duration {
    let tick = program.config().service.tick_interval;
    let until = |first: Timestamp| Duration::try_from(first.duration_since(inner.instant()));
    let first = agenda.first().map(|first| until(first).unwrap_or_default());
    first.map_or(tick, |first| first.clamp(BREATH.min(tick), tick))
}

async fn tick(inner: &Arc<Inner>, program: &Arc<Program>, zone: &TimeZone, agenda: &mut Agenda) {
    let began = Instant::now();
    let now = inner.instant();
    let due = agenda.due(now);
    let looked_at = due.len();
    // What is due already and could not run waits for the next tick.
    let later = now.saturating_add(program.config().service.tick_interval);
    let later = later.unwrap_or(Timestamp::MAX);
    let mut looks = JoinSet::new();
    for of_one in due.chunk_by(|(_, a), (_, b)| a.plugin == b.plugin) {
        if looks.len() >= PLUGINS_AT_ONCE {
            take_back(agenda, looks.join_next().await, (now, later));
        }
        let (inner, program, zone) = (Arc::clone(inner), Arc::clone(program), zone.clone());
        looks.spawn(look_at(inner, program, zone, of_one.to_vec()));
    }
    while let Some(looked) = looks.join_next().await {
        take_back(agenda, Some(looked), (now, later));
    }
    let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    let entries = agenda.len();
    inner.tell(
        "scheduler.tick",
        json!({"at": format!("{now:.9}"), "entries": entries, "looked_at": looked_at, "took_us": took_us}),
    );
}

type Looked = Vec<(usize, Option<Timestamp>)>;

fn take_back(
    agenda: &mut Agenda,
    looked: Option<Result<Looked, tokio::task::JoinError>>,
    (now, later): (Timestamp, Timestamp),
) {
    // One that panicked has said so, and comes back with the next plan.
    for (number, next) in looked.and_then(Result::ok).into_iter().flatten() {
        let next = next.map(|next| if next <= now { later } else { next });
        agenda.set(number, next);
    }
}

async fn look_at(
    inner: Arc<Inner>,
    program: Arc<Program>,
    zone: TimeZone,
    due: Vec<(usize, Slot)>,
) -> Looked {
    let mut looked = Vec::with_capacity(due.len());
    for (number, Slot { plugin, index }) in due {
        let found = program.plugin(&plugin);
        let Some((plugin, entry)) = found.and_then(|one| Some((one, one.schedules.get(index)?)))
        else {
            continue;
        };
        let look = Look {
            inner: &inner,
            program: &program,
            plugin,
            entry,
            zone: &zone,
        };
        let next = match look.look().await {
            Ok(next) => next,
            Err(error) => {
                let (plugin, schedule_id) = (&plugin.name, &entry.id);
                tracing::warn!(component = "scheduler", plugin, schedule_id, %error, "a schedule could not be looked at; the next tick tries again");
                Some(inner.instant())
            }
        };
        looked.push((number, next));
    }
    looked
}
