//! What time does to rows: delays end, leases run out, lives and retentions end.
//!
//! Looking (sweep, observe) never takes anything from a waiting worker: a lapsed lease stays claimable at once.
//! Only the cleanup pass sends lapsed leases back with a delay, and removes what is over.

use super::settle::{back_off, failed_attempt, out_of_attempts};
use super::{Cx, Decision, FactSource, Needs, Write, finish, step};
use crate::command::{Answer, Clean, Cleaned, Sweep};
use crate::ids::Micros;
use crate::intent::{Intent, Shelf};
use crate::limits;
use crate::plant::{self, Plant};
use crate::profile::{Expiry, ProfileId};
use crate::record::{Key, Kind, Record};
use crate::state::{Cause, State, Verb};

/// Why an intent died whose worker never said anything.
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
    let shelves = vec![
        (Shelf::Leased, now),
        (Shelf::Lapsed, Micros::MAX),
        (Shelf::Delayed, now),
        (Shelf::Ready, now),
        (Shelf::Parked, Micros::MAX),
        (
            Shelf::Done,
            now.plus(limits::RETENTION_US - clean.retention_us),
        ),
    ];
    Needs::Due {
        shelves,
        face: Some(clean.face),
        limit: clean.limit,
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

/// Lets time act on one row. A row whose deadline has not come stays as it is.
pub fn on_time(mut intent: Intent, cx: &mut Cx<'_>) -> Vec<Write> {
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
        Shelf::Delayed if life_ended(&intent, cx) => {
            let was = intent.state;
            finish(&mut intent, State::DeadLetter, Cause::Expired, cx.now);
            end_unconsented(&mut intent, was, cx);
            step(
                &mut writes,
                was,
                intent,
                FactSource::by_time(Verb::Expire),
                cx,
            );
        }
        Shelf::Delayed | Shelf::Ready => {
            intent.reshelve(cx.now, limits::RETENTION_US);
            // Engine time came to the end of a permission before the wall clock did.
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

/// Whether it waited for a word that can no longer come. What was queued is parked instead, and cleaned away.
fn life_ended(intent: &Intent, cx: &Cx<'_>) -> bool {
    let ends = |verb| {
        let profile = intent.profile.profile();
        profile.allows(intent.state, verb, State::DeadLetter)
    };
    matches!(intent.state, State::Received | State::Validated)
        && intent.expires_at <= cx.life_now(intent)
        && ends(Verb::Expire)
}

/// A permission ends by the wall clock, and deadlines are in engine time: the row is looked at when as much of that has passed
/// as is left on the wall, and again if the wall clock was set back meanwhile.
pub(super) fn until_end(intent: &mut Intent, cx: &Cx<'_>) {
    if intent.profile == ProfileId::AtpPermission
        && matches!(intent.state, State::Received | State::Validated)
    {
        intent.wake_at = on_the_wall(intent.expires_at, cx);
    }
}

/// When engine time will be there, if both clocks go on as they should.
fn on_the_wall(at: Micros, cx: &Cx<'_>) -> Micros {
    cx.now.plus(at.0.saturating_sub(cx.wall.0).max(0))
}

/// What nobody consented to is removed some time after its end, also if it was withdrawn before: until then nobody can present
/// the same again.
pub(super) fn end_unconsented(intent: &mut Intent, was: State, cx: &Cx<'_>) {
    if intent.profile == ProfileId::AtpPermission && was == State::Received {
        let gone_at = intent.expires_at.plus(limits::UNCONSENTED_RETENTION_US);
        (intent.shelf, intent.wake_at) = (Shelf::Delayed, on_the_wall(gone_at, cx));
    }
}

/// The row, its record and its history: nothing rests on them.
fn remove_whole(intent: Intent, writes: &mut Vec<Write>) {
    writes.push(Write::Delete(Key {
        kind: Kind::Permission,
        owner: String::new(),
        name: intent.goal.clone(),
    }));
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
            // No fact: whoever claims it next tells both, that it expired and that it was claimed.
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
        Expiry::DueNow => due_in(intent, 0, cx, writes),
        Expiry::DueIn { ms } => due_in(intent, i64::from(ms) * 1_000, cx, writes),
        Expiry::FailAttempt => {
            let source = FactSource::by_time(Verb::Expire);
            let failed = failed_attempt(intent, Cause::TimedOut, source, true, cx);
            // A profile with this expiry has the steps for it.
            writes.extend(failed.into_iter().flat_map(|decision| decision.writes));
        }
        // Nobody holds such a row, so it is never on the leased shelf.
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
    step(
        writes,
        was,
        intent,
        FactSource::by_time(Verb::Expire).with(reason),
        cx,
    );
}

fn due_in(mut intent: Intent, delay_us: i64, cx: &mut Cx<'_>, writes: &mut Vec<Write>) {
    let was = intent.state;
    intent.state = State::Queued;
    intent.cause = Cause::LeaseExpired;
    intent.run_at = cx.now.plus(delay_us);
    intent.holder = None;
    intent.release();
    intent.reshelve(cx.now, limits::RETENTION_US);
    step(writes, was, intent, FactSource::by_time(Verb::Expire), cx);
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
        .filter_map(|write| past_job(write, cx.now))
        .collect();
    writes.extend(past);
    Decision {
        writes,
        answer: Answer::Cleaned(cleaned),
    }
}

/// Facts outlive their job, and know it by its number alone.
fn past_job(write: &Write, now: Micros) -> Option<Write> {
    let row = match write {
        Write::Remove(row) if row.profile == ProfileId::Automation => row,
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
        // Only where claims take over does a cleanup send leases back; elsewhere expiry itself has said what follows.
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
            back_off(&mut row, Cause::LeaseExpired, cx);
            let source = FactSource::by_time(Verb::Expire).with(reason);
            step(writes, State::Dispatched, row, source, cx);
        }
        State::Queued if row.expires_at <= cx.now => {
            cleaned.expired_deleted += 1;
            writes.push(Write::Remove(row));
        }
        State::Acked => {
            cleaned.done_deleted += 1;
            writes.push(Write::Remove(row));
        }
        // A failure at rest is an end; left lying, it would fill every later pass.
        State::Failed if row.profile.profile().is_terminal(State::Failed) => {
            cleaned.dead_deleted += 1;
            writes.push(Write::Remove(row));
        }
        // It may be early for it, and it has a record.
        State::DeadLetter if row.is_unconsented() => writes.extend(on_time(row, cx)),
        State::DeadLetter => {
            cleaned.dead_deleted += 1;
            writes.push(Write::Remove(row));
        }
        State::Queued | State::Received | State::Validated | State::Delivered | State::Failed => {
            writes.extend(on_time(row, cx));
        }
    }
}
