//! Steps that need no lease: by a recipient, by the system, or by a protocol in an operator's name.
//!
//! Invariant: only the steps that a profile lists as unleased are taken, so no step goes past the holder of a lease.

use super::settle::requeue_at;
use super::time::until_end;
use super::{Cx, Decision, FactSource, finish, step};
use crate::command::{Advance, Answer};
use crate::error::Refusal;
use crate::intent::Intent;
use crate::profile::Profile;
use crate::state::{Cause, State, Verb};

pub(super) fn decide(
    mut intent: Intent,
    advance: &Advance,
    cx: &mut Cx<'_>,
) -> Result<Decision, Refusal> {
    let profile = intent.profile.profile();
    if profile.face != advance.face {
        return Err(Refusal::NotFound);
    }
    let (was, verb) = (intent.state, advance.verb);
    let is_elsewhere = advance.from.is_some_and(|from| from != was);
    let is_later = advance.attempt.is_some_and(|seen| seen != intent.attempts);
    if is_elsewhere || is_later {
        return Err(Refusal::IllegalState);
    }
    let to = target(profile, was, verb).ok_or(Refusal::IllegalState)?;
    if to == was && advance.refuse_repeated {
        return Err(Refusal::IllegalState);
    }
    if to == State::Validated && intent.expires_at <= cx.life_now(&intent) {
        return Err(Refusal::IllegalState);
    }
    // A step that was taken before leaves the row as it is: a repeated acknowledgement keeps the first result.
    if to != was || verb == Verb::Retry {
        apply(&mut intent, advance, to, cx);
    }
    let mut writes = Vec::with_capacity(2);
    let source = FactSource {
        verb,
        actor: advance.actor.as_deref(),
        worker: None,
        detail: advance.detail.clone(),
    };
    step(&mut writes, was, intent, source, cx);
    Ok(Decision {
        writes,
        answer: Answer::Operated,
    })
}

/// Where the verb leads from this state, if it may be asked without a lease.
fn target(profile: &Profile, was: State, verb: Verb) -> Option<State> {
    if !profile.unleased.contains(&(was, verb)) {
        return None;
    }
    let to = match verb {
        Verb::Admit => State::Received,
        Verb::Validate => State::Validated,
        Verb::Deliver => State::Delivered,
        Verb::Complete => State::Acked,
        Verb::Fail | Verb::Compensate => State::Failed,
        Verb::Kill => State::DeadLetter,
        Verb::Retry => State::Queued,
        Verb::Recover if profile.allows(was, verb, State::Failed) => State::Failed,
        Verb::Recover => State::Queued,
        Verb::Claim | Verb::Extend | Verb::Expire | Verb::Cancel | Verb::Requeue => return None,
    };
    profile.allows(was, verb, to).then_some(to)
}

fn apply(intent: &mut Intent, advance: &Advance, to: State, cx: &mut Cx<'_>) {
    let was = intent.state;
    let error = advance.error.as_ref().or(advance.detail.as_ref());
    match to {
        State::Received | State::Validated | State::Dispatched | State::Delivered => {
            intent.state = to;
            intent.reshelve(cx.now);
            until_end(intent, cx);
        }
        State::Queued => {
            intent.settled_at = None;
            intent.result = None;
            let (cause, run_at) = if advance.verb == Verb::Recover {
                intent.last_error = error.cloned();
                (Cause::Recovered, cx.now)
            } else {
                intent.last_error = None;
                (Cause::None, cx.now.plus(advance.after_us))
            };
            requeue_at(intent, cause, run_at, cx.now);
        }
        State::Acked => {
            intent.result.clone_from(&advance.result);
            intent.last_error = None;
            finish(intent, to, Cause::Completed, cx.now);
        }
        State::Failed | State::DeadLetter => {
            let cause = match (advance.verb, was) {
                (Verb::Compensate, State::Acked) => Cause::Compensated,
                (Verb::Compensate, _) => Cause::Voided,
                (Verb::Recover, _) => Cause::Recovered,
                _ => Cause::Rejected,
            };
            if advance.verb != Verb::Compensate {
                intent.last_error = error.cloned();
                intent.result.clone_from(&advance.result);
            }
            finish(intent, to, cause, cx.now);
        }
    }
}
