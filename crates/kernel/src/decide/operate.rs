//! Operators' commands: cancel, requeue, remove and purge; and the recovery of leases of dead processes.
//!
//! Invariant: only rows of the face that asks are touched, and only by the operator edges of their profile.

use super::settle::{out_of_attempts, requeue_at};
use super::time::end_unconsented;
use super::{Cx, Decision, FactSource, View, Write, fact, finish, step};
use crate::command::{Answer, OPERATOR, Operate, Recover};
use crate::error::Refusal;
use crate::ids::FactSeq;
use crate::intent::Intent;
use crate::limits;
use crate::plant::{self, Plant};
use crate::profile::Retention;
use crate::state::{Cause, State, Verb};

pub(super) fn cancel(
    mut intent: Intent,
    operate: &Operate,
    cx: &mut Cx<'_>,
) -> Result<Decision, Refusal> {
    allowed(&intent, operate, Verb::Cancel)?;
    let (was, profile) = (intent.state, intent.profile.profile());
    // A retired row names the one that replaces it, and is never retired again.
    if intent.cause == Cause::Aborted {
        return Err(Refusal::IllegalState);
    }
    // A row that is dead already keeps the cause of its death, and the fact below shows that an operator cancelled it.
    if was == State::DeadLetter && profile.cancel_cause == Cause::Cancelled {
        return Ok(operated(was, intent, Verb::Cancel, operate, cx));
    }
    intent.last_error = Some(operate.reason.clone());
    if was == State::Queued && profile.numbers_attempts {
        // The end takes the number of the attempt that the row waited for.
        intent.attempts += 1;
    }
    finish(&mut intent, State::DeadLetter, profile.cancel_cause, cx.now);
    end_unconsented(&mut intent, was, cx);
    Ok(operated(was, intent, Verb::Cancel, operate, cx))
}

pub(super) fn requeue(
    mut intent: Intent,
    operate: &Operate,
    cx: &mut Cx<'_>,
) -> Result<Decision, Refusal> {
    allowed(&intent, operate, Verb::Requeue)?;
    let was = intent.state;
    intent.state = State::Queued;
    intent.cause = Cause::Operator;
    // Where numbers continue, it has the attempts that are left, and one more if there are none.
    if !intent.profile.profile().numbers_attempts {
        intent.attempts = 0;
    }
    intent.run_at = cx.now;
    // A new life as long as the first: with the old end it could expire before it is claimed.
    let life_us = intent.expires_at.0.saturating_sub(intent.created_at.0);
    intent.expires_at = cx.now.plus(life_us.max(limits::INTENT_TTL_US));
    intent.forget_holder();
    intent.claimed_at = None;
    intent.settled_at = None;
    intent.last_error = None;
    intent.result = None;
    intent.release();
    intent.reshelve(cx.now);
    Ok(operated(was, intent, Verb::Requeue, operate, cx))
}

pub(super) fn remove(intent: Intent, operate: &Operate, cx: &Cx<'_>) -> Result<Decision, Refusal> {
    let profile = intent.profile.profile();
    if profile.face != operate.face {
        return Err(Refusal::NotFound);
    }
    if profile.retention == Retention::Forever {
        return Err(Refusal::IllegalState);
    }
    if intent.is_leased(cx.now) {
        return Err(Refusal::Held);
    }
    Ok(Decision {
        writes: vec![Write::Remove(intent)],
        answer: Answer::Operated,
    })
}

/// The error of an attempt whose process died.
const ORPHANED: &str = "the process that ran it ended before it was done";

pub(super) fn recover(rows: Vec<Intent>, recover: &Recover, cx: &mut Cx<'_>) -> Decision {
    let own = Recover::holder(&recover.node, "");
    let now_running = Recover::holder(&recover.node, &recover.start);
    let orphaned = |row: &Intent| {
        let holder = row.holder.as_deref().unwrap_or_default();
        holder.starts_with(&own) && holder != now_running
    };
    let mut writes = Vec::new();
    let mut recovered = Vec::new();
    for mut row in rows.into_iter().filter(orphaned) {
        let was = row.state;
        let profile = row.profile.profile();
        let allows = |to| profile.allows(was, Verb::Recover, to);
        if allows(was) {
            row.run_at = cx.now;
            row.release();
            row.reshelve(cx.now);
        } else {
            row.last_error = Some(ORPHANED.to_owned());
            if !profile.recovery_counts || plant::on(Plant::FreeRecovery) {
                row.attempts = row.attempts.saturating_sub(1);
            }
            if out_of_attempts(&row) && allows(State::DeadLetter) {
                finish(&mut row, State::DeadLetter, Cause::Exhausted, cx.now);
            } else if allows(State::Queued) {
                requeue_at(&mut row, Cause::Recovered, cx.now, cx.now);
            } else if allows(State::Failed) {
                finish(&mut row, State::Failed, Cause::Recovered, cx.now);
            } else {
                continue;
            }
        }
        recovered.push(orphan(&mut writes, was, row, cx));
    }
    Decision {
        writes,
        answer: Answer::Recovered(recovered),
    }
}

fn orphan(writes: &mut Vec<Write>, was: State, mut row: Intent, cx: &mut Cx<'_>) -> Intent {
    let source = FactSource::by_time(Verb::Recover).with(ORPHANED.to_owned());
    writes.push(fact(Some(was), &mut row, source, cx));
    writes.push(Write::Change {
        was,
        intent: row.clone(),
    });
    row
}

pub(super) fn purge(view: View) -> Decision {
    let answer = Answer::Purged {
        rows: u32::try_from(view.intents.len()).unwrap_or(u32::MAX),
        after: view.stopped_at,
    };
    Decision {
        writes: view.intents.into_iter().map(Write::Remove).collect(),
        answer,
    }
}

/// Refuses a row whose work is done: to cancel it would contradict its result, to requeue it would repeat its work.
pub(super) fn refuse_completed(intent: &Intent, operate: &Operate) -> Result<(), Refusal> {
    let own = intent.profile.profile().face == operate.face;
    if own && intent.state == State::Acked {
        return Err(Refusal::Completed);
    }
    Ok(())
}

/// Refuses rows that have changed since a fact. A row without facts has not changed since they were removed, which is long ago.
pub(super) fn refuse_changed(rows: &[Intent], since: FactSeq) -> Result<(), Refusal> {
    let changed = |row: &Intent| row.last_fact.is_some_and(|last| last > since);
    if rows.iter().any(changed) {
        return Err(Refusal::Changed);
    }
    Ok(())
}

fn allowed(intent: &Intent, operate: &Operate, verb: Verb) -> Result<(), Refusal> {
    let profile = intent.profile.profile();
    if profile.face != operate.face {
        return Err(Refusal::NotFound);
    }
    profile
        .row(intent.state, verb)
        .map(|_| ())
        .ok_or(Refusal::IllegalState)
}

fn operated(
    was: State,
    intent: Intent,
    verb: Verb,
    operate: &Operate,
    cx: &mut Cx<'_>,
) -> Decision {
    let mut writes = Vec::with_capacity(2);
    let source = FactSource {
        verb,
        actor: Some(OPERATOR),
        worker: None,
        detail: Some(operate.reason.clone()),
    };
    step(&mut writes, was, intent, source, cx);
    Decision {
        writes,
        answer: Answer::Operated,
    }
}
