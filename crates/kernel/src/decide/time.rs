//! Passed deadlines: delays end, leases run out, lives and retentions end.
//!
//! Sweep and observe never take a row from a waiting worker: a lapsed lease stays claimable at once.
//! Only the cleanup pass requeues lapsed leases with a delay, and removes rows.

use super::settle::{back_off, failed_attempt, out_of_attempts, requeue_at};
use super::{Cx, Decision, FactSource, Needs, Write, finish, step};
use crate::command::{Answer, Clean, Cleaned, Prune, Sweep};
use crate::ids::Micros;
use crate::intent::{Intent, Shelf};
use crate::limits;
use crate::plant::{self, Plant};
use crate::profile::{Expiry, LifeClock, LifeEnd, Unconsented};
use crate::record::{Key, Kind, Record};
use crate::state::{Cause, State, Verb};

/// The error of an intent that died without one from its worker.
const EXHAUSTED: &str = "Max retries exceeded";
const LAPSED: &str = "Lease expired. Backing off.";

pub(super) fn sweep_needs(sweep: Sweep, now: Micros) -> Needs<'static> {
    let leased = if plant::on(Plant::SweepLiveLease) {
        Micros::MAX
    } else {
        now
    };
    let shelves = vec![
        (Shelf::Leased, leased),
        (Shelf::Delayed, now),
        (Shelf::Ready, now),
        (Shelf::Lapsed, now),
    ];
    Needs::Due {
        shelves,
        face: None,
        limit: sweep.limit,
    }
}

pub(super) fn clean_needs(clean: Clean, now: Micros) -> Needs<'static> {
    // Deadlines are set for the retention of the profile; the pass may ask for less.
    let kept_us = clean.face.retention_us().unwrap_or(limits::RETENTION_US);
    let shelves = vec![
        (Shelf::Leased, now),
        (Shelf::Lapsed, Micros::MAX),
        (Shelf::Delayed, now),
        (Shelf::Ready, now),
        (Shelf::Parked, Micros::MAX),
        (Shelf::Done, now.plus(kept_us - clean.retention_us)),
    ];
    Needs::Due {
        shelves,
        face: Some(clean.face),
        limit: clean.limit,
    }
}

/// What ends by an instant: the deadlines of rows that nothing but their end waits for.
pub(super) fn prune_needs(prune: Prune) -> Needs<'static> {
    Needs::Due {
        shelves: vec![(Shelf::Delayed, prune.until), (Shelf::Ready, prune.until)],
        face: Some(prune.face),
        limit: prune.limit,
    }
}

pub(super) fn prune(rows: Vec<Intent>, prune: Prune) -> Decision {
    let full = u32::try_from(rows.len()).is_ok_and(|found| found >= prune.limit);
    let over = |row: &Intent| is_over(row, prune.until);
    let over: Vec<Intent> = rows.into_iter().filter(over).collect();
    let guarded = |row: &&Intent| row.profile.profile().dedupe.is_some();
    let messages = over.iter().filter(guarded).count() as u64;
    let others = over.len() as u64 - messages;
    Decision {
        answer: Answer::Pruned {
            messages,
            others,
            more: full && !over.is_empty(),
        },
        writes: over.into_iter().map(Write::Remove).collect(),
    }
}

pub(super) fn sweep(rows: Vec<Intent>, sweep: Sweep, cx: &mut Cx<'_>) -> Decision {
    let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let writes = rows.into_iter().flat_map(|row| on_time(row, cx)).collect();
    Decision {
        writes,
        answer: Answer::Swept {
            rows: count,
            more: count >= sweep.limit,
        },
    }
}

pub(super) fn observe(row: Option<Intent>, cx: &mut Cx<'_>) -> Decision {
    let Some(row) = row else {
        return Decision {
            writes: Vec::new(),
            answer: Answer::Observed(None),
        };
    };
    let writes = on_time(row.clone(), cx);
    let seen = writes.iter().rev().find_map(|write| match write {
        Write::Change { intent, .. } => Some(intent.clone()),
        Write::New(_)
        | Write::Remove(_)
        | Write::RemoveFacts { .. }
        | Write::Fact(_)
        | Write::Once(_)
        | Write::Put(_)
        | Write::Delete(_) => None,
    });
    Decision {
        writes,
        answer: Answer::Observed(Some(Box::new(seen.unwrap_or(row)))),
    }
}

/// Applies a passed deadline to one row. A row whose deadline lies ahead stays as it is.
pub(crate) fn on_time(mut intent: Intent, cx: &mut Cx<'_>) -> Vec<Write> {
    let mut writes = Vec::new();
    let planted = plant::on(Plant::SweepLiveLease) && intent.shelf == Shelf::Leased;
    if intent.wake_at > cx.now && !planted || intent.shelf == Shelf::Done {
        return writes;
    }
    match intent.shelf {
        Shelf::Leased => lease_ran_out(intent, cx, &mut writes),
        Shelf::Delayed if intent.is_unconsented() && intent.state == State::DeadLetter => {
            remove_whole(intent, &mut writes);
        }
        Shelf::Delayed | Shelf::Ready | Shelf::Lapsed if is_over(&intent, cx.now) => {
            writes.push(Write::Remove(intent));
        }
        Shelf::Delayed | Shelf::Ready | Shelf::Lapsed if life_ended(&intent, cx) => {
            end_life(intent, cx, &mut writes);
        }
        Shelf::Delayed | Shelf::Ready => {
            intent.reshelve(cx.now);
            // Engine time may reach the end of a life before the wall clock does.
            until_end(&mut intent, cx);
            writes.push(Write::Change {
                was: intent.state,
                intent,
            });
        }
        Shelf::Lapsed => {
            (intent.shelf, intent.wake_at) = (Shelf::Parked, Micros::MAX);
            writes.push(Write::Change {
                was: intent.state,
                intent,
            });
        }
        Shelf::Parked | Shelf::Done => {}
    }
    writes
}

/// Whether its life is over at this instant and the profile then removes it.
fn is_over(intent: &Intent, at: Micros) -> bool {
    intent.profile.profile().life_end == LifeEnd::Remove && intent.removed_at() <= at
}

/// Whether its life is over and the profile makes that an end of its own.
fn life_ended(intent: &Intent, cx: &Cx<'_>) -> bool {
    let profile = intent.profile.profile();
    matches!(profile.life_end, LifeEnd::Dead { .. })
        && intent.expires_at <= cx.life_now(intent)
        && profile.allows(intent.state, Verb::Expire, State::DeadLetter)
}

fn end_life(mut intent: Intent, cx: &mut Cx<'_>, writes: &mut Vec<Write>) {
    let was = intent.state;
    let reason = match intent.profile.profile().life_end {
        LifeEnd::Dead { reason } => reason.map(str::to_owned),
        LifeEnd::Never | LifeEnd::Park | LifeEnd::Remove => None,
    };
    if reason.is_some() {
        intent.last_error.clone_from(&reason);
    }
    finish(&mut intent, State::DeadLetter, Cause::Expired, cx.now);
    end_unconsented(&mut intent, was, cx);
    let source = FactSource::by_time(Verb::Expire).with(reason);
    step(writes, was, intent, source, cx);
}

/// A life may end by the wall clock, while deadlines are in engine time: the row is looked at when as much engine time has
/// passed as is left on the wall clock, and again if the wall clock was set back meanwhile.
pub(super) fn until_end(intent: &mut Intent, cx: &Cx<'_>) {
    if intent.profile.profile().life_clock == LifeClock::Wall
        && matches!(intent.state, State::Received | State::Validated)
    {
        intent.wake_at = on_the_wall(intent.expires_at, cx);
    }
}

/// When engine time reaches this instant of the wall clock, if both clocks run alike.
fn on_the_wall(at: Micros, cx: &Cx<'_>) -> Micros {
    cx.now.plus(at.0.saturating_sub(cx.wall.0).max(0))
}

/// A row that ends without consent is removed some time after the end of its life, also if it was cancelled before: until
/// then the same cannot be admitted again.
pub(super) fn end_unconsented(intent: &mut Intent, was: State, cx: &Cx<'_>) {
    let profile = intent.profile.profile();
    if let (Unconsented::Removed { after_us, .. }, State::Received) = (profile.unconsented, was) {
        let gone_at = intent.expires_at.plus(after_us);
        let wake_at = match profile.life_clock {
            LifeClock::Engine => gone_at,
            LifeClock::Wall => on_the_wall(gone_at, cx),
        };
        (intent.shelf, intent.wake_at) = (Shelf::Delayed, wake_at);
    }
}

/// The row, its record and its facts: nothing refers to them.
fn remove_whole(intent: Intent, writes: &mut Vec<Write>) {
    if let Unconsented::Removed { record, .. } = intent.profile.profile().unconsented {
        writes.push(Write::Delete(Key {
            kind: record,
            owner: String::new(),
            name: intent.goal.clone(),
        }));
    }
    if let Some(last) = intent.last_fact {
        writes.push(Write::RemoveFacts {
            owner: intent.owner.clone(),
            last,
        });
    }
    writes.push(Write::Remove(intent));
}

fn lease_ran_out(mut intent: Intent, cx: &mut Cx<'_>, writes: &mut Vec<Write>) {
    match intent.profile.profile().expiry {
        Expiry::TakeOver if out_of_attempts(&intent) => die(intent, cx, writes),
        Expiry::TakeOver | Expiry::StayLeased => {
            // No fact yet: the next claim writes both, that the lease expired and that the row was claimed.
            (intent.shelf, intent.wake_at) = if intent.expires_at > cx.now {
                (Shelf::Lapsed, intent.expires_at)
            } else {
                (Shelf::Parked, Micros::MAX)
            };
            writes.push(Write::Change {
                was: intent.state,
                intent,
            });
        }
        Expiry::DueNow | Expiry::DueIn { .. } if life_ended(&intent, cx) => {
            end_life(intent, cx, writes);
        }
        Expiry::DueNow => due_in(intent, 0, cx, writes),
        Expiry::InPlace => {
            let run_at = intent.run_at;
            due_at(intent, run_at, cx, writes);
        }
        Expiry::DueIn { ms } => due_in(intent, i64::from(ms) * 1_000, cx, writes),
        expiry @ (Expiry::FailAttempt | Expiry::Fail) => {
            let source = FactSource::by_time(Verb::Expire).of_worker(intent.worker.as_deref());
            let again = expiry == Expiry::FailAttempt;
            let failed = failed_attempt(intent, Cause::TimedOut, source, again, cx);
            // A profile with this expiry has the steps for it.
            writes.extend(failed.into_iter().flat_map(|decision| decision.writes));
        }
        // Such a row is never leased.
        Expiry::NoLease => {}
    }
}

fn die(mut intent: Intent, cx: &mut Cx<'_>, writes: &mut Vec<Write>) {
    let was = intent.state;
    let reason = intent
        .last_error
        .get_or_insert_with(|| EXHAUSTED.to_owned())
        .clone();
    finish(&mut intent, State::DeadLetter, Cause::Exhausted, cx.now);
    let source = FactSource::by_time(Verb::Expire)
        .of_worker(intent.worker.as_deref())
        .with(reason);
    step(writes, was, intent, source, cx);
}

fn due_in(intent: Intent, delay_us: i64, cx: &mut Cx<'_>, writes: &mut Vec<Write>) {
    let run_at = cx.now.plus(delay_us);
    due_at(intent, run_at, cx, writes);
}

fn due_at(mut intent: Intent, run_at: Micros, cx: &mut Cx<'_>, writes: &mut Vec<Write>) {
    let was = intent.state;
    let source = FactSource::by_time(Verb::Expire).of_worker(intent.worker.as_deref());
    requeue_at(&mut intent, Cause::LeaseExpired, run_at, cx.now);
    step(writes, was, intent, source, cx);
}

pub(super) fn clean(rows: Vec<Intent>, clean: Clean, cx: &mut Cx<'_>) -> Decision {
    let mut cleaned = Cleaned {
        more: u32::try_from(rows.len()).is_ok_and(|n| n >= clean.limit),
        ..Cleaned::default()
    };
    let mut writes = Vec::with_capacity(rows.len());
    for row in rows {
        clean_one(row, cx, &mut writes, &mut cleaned);
    }
    let past: Vec<Write> = writes
        .iter()
        .filter_map(|write| past_id(write, cx.now))
        .collect();
    writes.extend(past);
    Decision {
        writes,
        answer: Answer::Cleaned(cleaned),
    }
}

/// Facts that outlive a row refer to it by its number alone.
fn past_id(write: &Write, now: Micros) -> Option<Write> {
    let row = match write {
        Write::Remove(row) if row.profile.profile().keeps_past_id => row,
        Write::Remove(_)
        | Write::RemoveFacts { .. }
        | Write::New(_)
        | Write::Change { .. }
        | Write::Fact(_)
        | Write::Once(_)
        | Write::Put(_)
        | Write::Delete(_) => return None,
    };
    let ended_at = row.settled_at.unwrap_or(now);
    Some(Write::Put(Record {
        key: Key {
            kind: Kind::PastJob,
            owner: String::new(),
            name: format!("{:020}", row.seq.0),
        },
        version: 1,
        value: row.id.to_string(),
        expires_at: Some(ended_at.plus(limits::RECORD_LIFE_US)),
    }))
}

fn clean_one(mut row: Intent, cx: &mut Cx<'_>, writes: &mut Vec<Write>, cleaned: &mut Cleaned) {
    match row.state {
        // The cleanup pass requeues leases only where claims take over; elsewhere the end of the lease did.
        State::Dispatched if row.profile.profile().expiry != Expiry::TakeOver => {
            writes.extend(on_time(row, cx));
        }
        State::Dispatched if out_of_attempts(&row) => {
            cleaned.leases_dead += 1;
            die(row, cx, writes);
        }
        State::Dispatched => {
            cleaned.leases_requeued += 1;
            let reason = row
                .last_error
                .get_or_insert_with(|| LAPSED.to_owned())
                .clone();
            let source = FactSource::by_time(Verb::Expire)
                .of_worker(row.worker.as_deref())
                .with(reason);
            back_off(&mut row, Cause::LeaseExpired, cx.now, cx);
            step(writes, State::Dispatched, row, source, cx);
        }
        State::Queued
            if row.expires_at <= cx.now && row.profile.profile().life_end == LifeEnd::Park =>
        {
            cleaned.expired_deleted += 1;
            writes.push(Write::Remove(row));
        }
        State::Acked => {
            cleaned.done_deleted += 1;
            writes.push(Write::Remove(row));
        }
        // A failure at rest is an end. If it were kept, every later pass would load it.
        State::Failed if row.profile.profile().is_terminal(State::Failed) => {
            cleaned.dead_deleted += 1;
            writes.push(Write::Remove(row));
        }
        // Its removal may not be due, and includes its record.
        State::DeadLetter if row.is_unconsented() => writes.extend(on_time(row, cx)),
        State::DeadLetter => {
            cleaned.dead_deleted += 1;
            writes.push(Write::Remove(row));
        }
        State::Queued | State::Received | State::Validated | State::Delivered | State::Failed => {
            let acted = on_time(row, cx);
            let removed = acted
                .iter()
                .filter(|write| matches!(write, Write::Remove(_)));
            cleaned.expired_deleted += removed.count() as u64;
            writes.extend(acted);
        }
    }
}
