//! What a holder may do with its lease: extend it or settle the row.
//!
//! Invariant: a command without the token of a running lease is always refused.

use super::{Cx, Decision, FactSource, Write, fact, finish, step};
use crate::command::{Answer, Extend, HolderRetry, Settle, Settlement};
use crate::error::Refusal;
use crate::ids::{Micros, SECOND_US, Token};
use crate::intent::Intent;
use crate::json::Object;
use crate::limits;
use crate::plant::{self, Plant};
use crate::profile::{Completion, Delivery, RetrySeed};
use crate::retry::key_entropy;
use crate::state::{Cause, State, Verb};

pub(super) fn extend(
    mut intent: Intent,
    extend: &Extend,
    cx: &mut Cx<'_>,
) -> Result<Decision, Refusal> {
    held(&intent, &extend.holder, &extend.token, cx.now)?;
    let was = intent.state;
    if !intent.profile.profile().allows(was, Verb::Extend, was) {
        return Err(Refusal::IllegalState);
    }
    let until = cx.now.plus(extend.lease_us);
    intent.lease_until = Some(until);
    intent.reshelve(cx.now);
    let mut writes = Vec::with_capacity(2);
    let source = FactSource::by(&extend.holder, Verb::Extend)
        .of_worker(intent.worker.as_deref())
        .with(extend.detail.clone());
    step(&mut writes, was, intent, source, cx);
    Ok(Decision {
        writes,
        answer: Answer::Extended { until },
    })
}

pub(super) fn decide(
    mut intent: Intent,
    settle: &Settle,
    cx: &mut Cx<'_>,
) -> Result<Decision, Refusal> {
    held(&intent, &settle.holder, &settle.token, cx.now)?;
    if let Settlement::FailAttempt {
        error,
        timed_out,
        again,
    } = &settle.how
    {
        let cause = if *timed_out {
            Cause::TimedOut
        } else {
            Cause::WorkerFailed
        };
        intent.last_error = Some(error.clone());
        let source = FactSource::by(&settle.holder, Verb::Fail)
            .of_worker(intent.worker.as_deref())
            .with(error.clone());
        return failed_attempt(intent, cause, source, *again, cx);
    }
    let mut writes = Vec::with_capacity(4);
    if let Settlement::Complete { .. } = &settle.how {
        deliver_first(&mut intent, &settle.holder, &mut writes, cx);
    }
    let was = intent.state;
    // A row that is queued again forgets its holder.
    let worker = intent.worker.clone();
    let source = match &settle.how {
        Settlement::Complete { result } => {
            intent.result.clone_from(result);
            intent.last_error = None;
            finish(&mut intent, State::Acked, Cause::Completed, cx.now);
            FactSource::by(&settle.holder, Verb::Complete)
        }
        Settlement::Fail { error } => {
            fail(&mut intent, error, cx.now, cx);
            FactSource::by(&settle.holder, Verb::Fail).with(error.clone())
        }
        Settlement::FailWith { error, retry } => {
            fail_with(&mut intent, error, *retry, cx.now)?;
            FactSource::by(&settle.holder, Verb::Fail).with(error.clone())
        }
        Settlement::FailSince { error, since } => {
            fail(&mut intent, error, *since, cx);
            FactSource::by(&settle.holder, Verb::Fail).with(error.clone())
        }
        Settlement::Deliver => {
            deliver(&mut intent, cx.now);
            FactSource::by(&settle.holder, Verb::Deliver)
        }
        Settlement::HandOver => {
            intent.attempts = intent.attempts.saturating_sub(1);
            deliver(&mut intent, cx.now);
            FactSource::by(&settle.holder, Verb::Deliver)
        }
        Settlement::Reject { error } => {
            intent.last_error = Some(error.clone());
            finish(&mut intent, State::Failed, Cause::Rejected, cx.now);
            FactSource::by(&settle.holder, Verb::Fail).with(error.clone())
        }
        Settlement::LetGo { after_us } => {
            intent.run_at = cx.now.plus(*after_us);
            intent.release();
            intent.reshelve(cx.now);
            FactSource::by(&settle.holder, Verb::Retry)
        }
        Settlement::RetryLater { after_us, error } => {
            if error.is_some() {
                intent.last_error.clone_from(error);
            }
            let run_at = cx.now.plus(*after_us);
            requeue_at(&mut intent, Cause::Unreachable, run_at, cx.now);
            FactSource::by(&settle.holder, Verb::Retry).with(error.clone())
        }
        Settlement::Kill { error } => {
            intent.last_error = Some(error.clone());
            finish(&mut intent, State::DeadLetter, Cause::Rejected, cx.now);
            FactSource::by(&settle.holder, Verb::Kill).with(error.clone())
        }
        Settlement::GiveBack => {
            intent.attempts = intent.attempts.saturating_sub(1);
            intent.state = State::Queued;
            intent.forget_holder();
            intent.release();
            intent.reshelve(cx.now);
            FactSource::by(&settle.holder, Verb::Retry)
        }
        Settlement::FailAttempt { .. } => return Err(Refusal::IllegalState),
    };
    let source = match &settle.detail {
        Some(detail) => source.with(detail.clone()),
        None => source,
    };
    let source = source.of_worker(worker.as_deref());
    // A profile may lack this step, or demand steps in between that this rule does not take.
    let profile = intent.profile.profile();
    if !profile.allows(was, source.verb, intent.state) {
        return Err(Refusal::IllegalState);
    }
    let answer = Answer::Settled {
        state: intent.state,
        run_at: intent.run_at,
    };
    step(&mut writes, was, intent, source, cx);
    Ok(Decision { writes, answer })
}

/// A row that its holder completes is delivered by that, where the profile says so. The lease goes on until the row is
/// completed in the same commit, so that no claim is woken in between.
fn deliver_first(intent: &mut Intent, holder: &str, writes: &mut Vec<Write>, cx: &mut Cx<'_>) {
    let profile = intent.profile.profile();
    if intent.state != State::Dispatched || profile.completion != Completion::Delivers {
        return;
    }
    let was = intent.state;
    intent.state = State::Delivered;
    intent.run_at = cx.now;
    let source = FactSource::by(holder, Verb::Deliver).of_worker(intent.worker.as_deref());
    writes.push(fact(Some(was), intent, source, cx));
    writes.push(Write::Change {
        was,
        intent: intent.clone(),
    });
}

fn fail(intent: &mut Intent, error: &str, since: Micros, cx: &mut Cx<'_>) {
    intent.last_error = Some(error.to_owned());
    if out_of_attempts(intent) {
        finish(intent, State::DeadLetter, Cause::Exhausted, cx.now);
    } else {
        back_off(intent, Cause::WorkerFailed, since, cx);
    }
}

/// As [`fail`], but the holder decides about the next attempt. One that could not begin within the life of the row is refused,
/// because the row would wait for nothing.
fn fail_with(
    intent: &mut Intent,
    error: &str,
    retry: HolderRetry,
    now: Micros,
) -> Result<(), Refusal> {
    intent.last_error = Some(error.to_owned());
    if out_of_attempts(intent) {
        finish(intent, State::DeadLetter, Cause::Exhausted, now);
        return Ok(());
    }
    match retry {
        HolderRetry::Never => finish(intent, State::DeadLetter, Cause::Rejected, now),
        HolderRetry::After { us } => {
            let run_at = now.plus(us);
            if run_at >= intent.expires_at {
                let left_us = intent.expires_at.0.saturating_sub(now.0);
                return Err(Refusal::PastLife {
                    left_s: left_us.max(0) / SECOND_US,
                });
            }
            requeue_at(intent, Cause::WorkerFailed, run_at, now);
        }
    }
    Ok(())
}

/// The other side has it. The lease continues unless nothing is left for its holder to do.
pub(super) fn deliver(intent: &mut Intent, now: Micros) {
    intent.state = State::Delivered;
    match intent.profile.profile().delivered {
        Delivery::Claimable | Delivery::AwaitsAckInLease => {}
        Delivery::AwaitsAck | Delivery::Rests => {
            // It is not due again: the time tells when it was delivered.
            intent.run_at = now;
            intent.release();
            intent.reshelve(now);
        }
    }
}

/// Two facts in one commit: the attempt failed, and what follows from it. A row that is not tried again rests in `Failed`.
pub(super) fn failed_attempt(
    mut intent: Intent,
    cause: Cause,
    source: FactSource<'_>,
    again: bool,
    cx: &mut Cx<'_>,
) -> Result<Decision, Refusal> {
    let was = intent.state;
    let profile = intent.profile.profile();
    let curable = profile.allows(State::Failed, Verb::Retry, State::Queued);
    if !profile.allows(was, source.verb, State::Failed) || again && !curable {
        return Err(Refusal::IllegalState);
    }
    let actor = source.actor;
    finish(&mut intent, State::Failed, cause, cx.now);
    let mut writes = vec![fact(Some(was), &mut intent, source, cx)];
    writes.push(Write::Change {
        was,
        intent: intent.clone(),
    });
    let follows = |verb| FactSource {
        verb,
        actor,
        worker: None,
        detail: None,
    };
    if again && out_of_attempts(&intent) {
        if profile.allows(State::Failed, Verb::Kill, State::DeadLetter) {
            finish(&mut intent, State::DeadLetter, Cause::Exhausted, cx.now);
            step(
                &mut writes,
                State::Failed,
                intent.clone(),
                follows(Verb::Kill),
                cx,
            );
        }
    } else if again {
        intent.settled_at = None;
        back_off(&mut intent, cause, cx.now, cx);
        step(
            &mut writes,
            State::Failed,
            intent.clone(),
            follows(Verb::Retry),
            cx,
        );
    }
    let answer = Answer::Settled {
        state: intent.state,
        run_at: intent.run_at,
    };
    Ok(Decision { writes, answer })
}

pub(super) fn out_of_attempts(intent: &Intent) -> bool {
    intent.attempts >= intent.attempts_max && !plant::on(Plant::NeverDead)
}

/// Back to the queue, after the delay that the profile's schedule gives.
pub(super) fn back_off(intent: &mut Intent, cause: Cause, since: Micros, cx: &mut Cx<'_>) {
    let attempts = if plant::on(Plant::FlatBackoff) {
        0
    } else {
        intent.attempts
    };
    let profile = intent.profile.profile();
    let entropy = match profile.retry_seed {
        RetrySeed::Random => (cx.entropy.draw() >> 64) as u64,
        RetrySeed::OfMember(name) => {
            let key = text_member(&intent.payload, name);
            key_entropy(&key.unwrap_or_else(|| intent.id.to_string()), attempts)
        }
    };
    let delay_us = (profile.retry)(intent.backoff_us).delay_us(attempts, entropy);
    requeue_at(intent, cause, since.plus(delay_us), cx.now);
}

/// A text in the first level of a JSON object.
fn text_member(payload: &str, name: &str) -> Option<String> {
    let object = Object::parse(payload.as_bytes(), limits::JSON_DEPTH_MAX).ok()?;
    Some(object.get(name)?.as_str()?.into_owned())
}

/// Back to the queue without a lease, due at `run_at`.
pub(super) fn requeue_at(intent: &mut Intent, cause: Cause, run_at: Micros, now: Micros) {
    intent.state = State::Queued;
    intent.cause = cause;
    intent.run_at = run_at;
    intent.forget_holder();
    intent.release();
    intent.reshelve(now);
}

fn held(intent: &Intent, holder: &str, token: &Token, now: Micros) -> Result<(), Refusal> {
    let shown =
        intent.token.is_some_and(|held| held.matches(token)) || plant::on(Plant::SkipTokenCheck);
    let holds = shown && intent.holder.as_deref() == Some(holder) && intent.is_leased(now);
    if holds {
        Ok(())
    } else {
        Err(Refusal::LeaseLost)
    }
}
