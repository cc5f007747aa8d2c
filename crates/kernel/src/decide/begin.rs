//! Rows that begin outside of a queue: a permission begins as received, a transaction leased to the node that carries it out,
//! a message as received, from where it walks to its first lease in the same commit.

use super::claim::lease;
use super::time::until_end;
use super::{Cx, Decision, FactSource, Needs, View, Write, admit, fact};
use crate::command::{Answer, Begin, FirstStep, NewIntent, OnceGuard, Within};
use crate::error::Refusal;
use crate::ids::Micros;
use crate::intent::Intent;
use crate::once::{self, DedupeAnswer, Verdict};
use crate::record::{MessageHistory, Record};
use crate::state::{State, Verb};

pub(super) fn needs(begin: &Begin) -> Needs<'_> {
    let item = &begin.item;
    let face = item.profile.profile().face;
    match (&item.once, begin.within, item.target.as_deref()) {
        (Some(guard), _, _) => Needs::Admission {
            once: vec![Some(&guard.key)],
            series: vec![None],
            face,
            owner: &item.owner,
            capped: false,
        },
        (None, Some(_), Some(of)) => Needs::Unconsented { face, of },
        _ => Needs::Nothing,
    }
}

pub(super) fn decide(view: &View, begin: &Begin, cx: &mut Cx<'_>) -> Result<Decision, Refusal> {
    if let Some(within) = begin.within {
        check_room(view, within)?;
    }
    let item = &begin.item;
    let profile = item.profile.profile();
    let claims_later = begin.walk.iter().any(|first| first.verb == Verb::Claim);
    let start = match begin.hold {
        Some(_) if !claims_later => State::Dispatched,
        _ => State::Received,
    };
    if !profile.start.contains(&start) {
        return Err(Refusal::IllegalState);
    }
    let first_use = first_use(view, begin, cx)?;
    let seq = cx.next_seq();
    let mut intent = admit::made(item, begin.id, seq, start, cx);
    if let (State::Dispatched, Some(hold)) = (start, &begin.hold) {
        // It is leased now, so it is due now, whatever delay was requested.
        intent.run_at = cx.now;
        lease(&mut intent, &hold.holder, hold.lease_us, cx);
    } else {
        intent.reshelve(cx.now);
        until_end(&mut intent, cx);
    }
    let actor = item.ties.sender.as_deref().unwrap_or(&item.owner);
    let source = FactSource::by(actor, Verb::Admit).with(begin.detail.clone());
    let mut writes: Vec<Write> = history(&intent, first_use.as_ref()).into_iter().collect();
    writes.extend(first_use.map(Write::Once));
    writes.push(fact(None, &mut intent, source, cx));
    for first in &begin.walk {
        writes.push(walk(&mut intent, first, begin, cx)?);
    }
    writes.push(Write::New(intent.clone()));
    Ok(Decision {
        writes,
        answer: Answer::Begun(Box::new(intent)),
    })
}

/// Takes one step of a row that is not stored yet, and returns its fact.
fn walk(
    intent: &mut Intent,
    first: &FirstStep,
    begin: &Begin,
    cx: &mut Cx<'_>,
) -> Result<Write, Refusal> {
    let was = intent.state;
    let actor = match (first.verb, &begin.hold) {
        (Verb::Validate, _) => {
            intent.state = State::Validated;
            intent.reshelve(cx.now);
            until_end(intent, cx);
            None
        }
        (Verb::Claim, Some(hold)) => {
            lease(intent, &hold.holder, hold.lease_us, cx);
            Some(hold.holder.as_str())
        }
        (Verb::Extend, Some(hold)) => Some(hold.holder.as_str()),
        (Verb::Retry, _) => {
            intent.state = State::Queued;
            intent.reshelve(cx.now);
            None
        }
        _ => return Err(Refusal::IllegalState),
    };
    let profile = intent.profile.profile();
    if !profile.allows(was, first.verb, intent.state) {
        return Err(Refusal::IllegalState);
    }
    let source = FactSource {
        verb: first.verb,
        actor,
        worker: None,
        detail: first.detail.clone(),
    };
    Ok(fact(Some(was), intent, source, cx))
}

/// The once-row of a new key. A key that was used before refuses the row and names the first one.
fn first_use(view: &View, begin: &Begin, cx: &Cx<'_>) -> Result<Option<once::FirstUse>, Refusal> {
    let Some(guard) = &begin.item.once else {
        return Ok(None);
    };
    let stored = view.once.first().and_then(Option::as_ref);
    match once::compare(stored, &guard.fingerprint, cx.now) {
        Verdict::First => Ok(Some(once::FirstUse {
            key: guard.key.clone(),
            fingerprint: guard.fingerprint,
            intent: Some(begin.id),
            answer: answer(&begin.item, guard, cx)?,
            until: once::until(cx.now, guard.lifetime_us),
        })),
        Verdict::Same(row) => match row.intent {
            Some(id) => Err(Refusal::AlreadyBegun { id }),
            None => Err(Refusal::OnceConflict { index: 0 }),
        },
        Verdict::Different(_) => Err(Refusal::OnceConflict { index: 0 }),
    }
}

/// The answer of a key of a message names its destination, which the row has. Such a row is known by no other key.
fn answer(item: &NewIntent, guard: &OnceGuard, cx: &Cx<'_>) -> Result<String, Refusal> {
    let Some(scope) = item.profile.profile().dedupe else {
        return Ok(String::new());
    };
    let key = &guard.key;
    let is_its_own = key.scope == scope
        && key.owner == item.namespace
        && Some(&key.key) == item.capability.as_ref();
    if !is_its_own || !DedupeAnswer::KINDS.contains(&item.goal.as_str()) {
        return Err(Refusal::IllegalState);
    }
    let answer = DedupeAnswer {
        destination_kind: item.goal.clone(),
        destination_ref: item.target.clone().unwrap_or_default(),
        first_seen_at: cx.now.0,
        history_available: true,
    };
    Ok(answer.text())
}

/// The record that says who sent a message, as long as its id is remembered. Without an id, as long as the message exists.
fn history(intent: &Intent, first_use: Option<&once::FirstUse>) -> Option<Write> {
    intent.profile.profile().dedupe?;
    let until = first_use.map_or(intent.expires_at, |row| row.until);
    let value = MessageHistory {
        sender: intent.ties.sender.clone().unwrap_or_default(),
        seq: intent.seq.0,
        created_at: intent.created_at.0,
        client_message_id: intent.capability.clone(),
    };
    Some(Write::Put(Record {
        key: MessageHistory::key(&intent.namespace, intent.id),
        version: 1,
        value: value.text(),
        expires_at: (until < Micros::MAX).then_some(until),
    }))
}

fn check_room(view: &View, within: Within) -> Result<(), Refusal> {
    let (own, all) = view.unconsented;
    for (open, limit) in [(own, within.each), (all, within.all)] {
        if open >= limit {
            return Err(Refusal::CapReached { open, limit });
        }
    }
    Ok(())
}
