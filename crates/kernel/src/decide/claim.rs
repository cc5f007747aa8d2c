//! Claiming: the rows the store picked from the claim's lanes become leases.

use super::{Cx, Decision, FactSource, Write, fact, step};
use crate::command::{Answer, Audience, Claim, Hold, Take};
use crate::error::Refusal;
use crate::ids::Token;
use crate::intent::{Intent, Series};
use crate::plant::{self, Plant};
use crate::profile::Expiry;
use crate::state::{Cause, State, Verb};

pub(super) fn decide(picked: Vec<Intent>, claim: &Claim, cx: &mut Cx<'_>) -> Decision {
    let mut writes = Vec::with_capacity(picked.len() * 2);
    let mut claimed = Vec::with_capacity(picked.len());
    for mut intent in picked {
        // Lanes are named by hashes; only the fields themselves give the right to a row. That its time has come was decided
        // when it was put into its lanes, perhaps by a node whose clock is a little ahead.
        if !may_take(claim, &intent) || intent.expires_at <= cx.now {
            continue;
        }
        let was = intent.state;
        if was == State::Dispatched && intent.profile.profile().expiry == Expiry::TakeOver {
            intent.state = State::Queued;
            intent.cause = Cause::LeaseExpired;
            let source = FactSource::by_time(Verb::Expire);
            writes.push(fact(Some(was), &mut intent, source, cx));
        }
        let from = intent.state;
        lease(&mut intent, &claim.holder, claim.lease_us, cx);
        let source = FactSource::by(&claim.holder, Verb::Claim).with(worker(claim));
        writes.push(fact(Some(from), &mut intent, source, cx));
        writes.push(Write::Change {
            was,
            intent: intent.clone(),
        });
        claimed.push(intent);
    }
    Decision {
        writes,
        answer: Answer::Claimed(claimed),
    }
}

/// Sets a row back if another one of its series is held, or will be by the same claim. It comes forward again when that
/// one lets go; should nobody be there to do it, when its lease ends. A lease of its own that lapsed is over then: who waits
/// is queued, and nobody takes it for held.
pub fn behind(
    row: &Intent,
    series: &Series,
    taken: bool,
    claim: &Claim,
    cx: &mut Cx<'_>,
) -> Option<Vec<Write>> {
    let lease_until = if taken {
        Some(cx.now.plus(claim.lease_us))
    } else {
        series.held.as_ref().and_then(|held| held.lease_until)
    };
    let until = lease_until.filter(|until| *until > cx.now)?;
    let (was, mut intent, mut writes) = (row.state, row.clone(), Vec::with_capacity(2));
    if was == State::Dispatched && intent.profile.profile().expiry == Expiry::TakeOver {
        intent.state = State::Queued;
        intent.cause = Cause::LeaseExpired;
        intent.holder = None;
        intent.release();
        intent.set_back(until);
        step(
            &mut writes,
            was,
            intent,
            FactSource::by_time(Verb::Expire),
            cx,
        );
    } else {
        intent.set_back(until);
        writes.push(Write::Change { was, intent });
    }
    Some(writes)
}

/// One row by its name, though its turn in a lane may not have come.
pub(super) fn take(mut intent: Intent, take: &Take, cx: &mut Cx<'_>) -> Result<Decision, Refusal> {
    let profile = intent.profile.profile();
    if profile.face != take.face {
        return Err(Refusal::NotFound);
    }
    if intent.is_leased(cx.now) {
        return Err(Refusal::Held);
    }
    let was = intent.state;
    let Hold { holder, lease_us } = &take.hold;
    intent.run_at = intent.run_at.min(cx.now);
    lease(&mut intent, holder, *lease_us, cx);
    if !profile.allows(was, Verb::Claim, intent.state) {
        return Err(Refusal::IllegalState);
    }
    let mut writes = Vec::with_capacity(2);
    let source = FactSource::by(holder, Verb::Claim);
    step(&mut writes, was, intent.clone(), source, cx);
    Ok(Decision {
        writes,
        answer: Answer::Claimed(vec![intent]),
    })
}

/// What the other side has accepted stays so: only the lease is new.
pub(super) fn lease(intent: &mut Intent, holder: &str, lease_us: i64, cx: &mut Cx<'_>) {
    if !plant::on(Plant::ForgetAttempt) {
        intent.attempts += 1;
    }
    if intent.state != State::Delivered {
        intent.state = State::Dispatched;
    }
    intent.cause = Cause::None;
    intent.holder = Some(holder.to_owned());
    intent.token = Some(Token(cx.entropy.draw().to_be_bytes()));
    intent.claimed_at = Some(cx.now);
    intent.lease_until = Some(cx.now.plus(lease_us));
    intent.reshelve(cx.now);
}

fn worker(claim: &Claim) -> Option<String> {
    claim.worker_id.as_ref().map(|id| format!("worker {id}"))
}

fn may_take(claim: &Claim, intent: &Intent) -> bool {
    let audience = match &claim.audience {
        Audience::Caller => {
            intent.public || intent.owner == claim.holder || plant::on(Plant::PrivateIsPublic)
        }
        Audience::Publisher(owner) => intent.owner == *owner,
    };
    let capable = |needed: &String| {
        claim.capabilities.iter().any(|offered| {
            offered == needed
                || plant::on(Plant::CapabilityByPrefix) && offered.starts_with(needed.as_str())
        })
    };
    audience
        && intent.profile.profile().face == claim.face
        && (intent.namespace == claim.namespace || plant::on(Plant::CrossNamespaces))
        && claim.goal.as_ref().is_none_or(|goal| intent.goal == *goal)
        && intent
            .target
            .as_ref()
            .is_none_or(|target| claim.worker_id.as_ref() == Some(target))
        && intent.capability.as_ref().is_none_or(capable)
}
