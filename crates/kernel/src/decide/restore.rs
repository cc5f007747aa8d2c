//! Rows that another system made.
//!
//! Invariant: a restored row is stored once, by its id and by its once-key. Its history is kept as it was written; its facts
//! are new to this ledger, so engine time and retention count from now.

use super::{Cx, Decision, FactSource, View, Write, fact};
use crate::command::{Answer, EarlierFact, Restore};
use crate::error::Refusal;
use crate::fact::Fact;
use crate::intent::{Intent, Shelf};
use crate::once::{self, Verdict};
use crate::state::{Cause, State, Verb};

pub(super) fn decide(view: &View, restore: &Restore, cx: &mut Cx<'_>) -> Result<Decision, Refusal> {
    if !view.intents.is_empty() {
        return Err(Refusal::Exists);
    }
    if (restore.history.last()).is_some_and(|last| last.to != restore.intent.state) {
        return Err(Refusal::IllegalState);
    }
    let first_use = first_use(view, restore, cx)?;
    let mut intent = restore.intent.clone();
    intent.seq = cx.next_seq();
    intent.last_fact = None;
    intent.reshelve(cx.now);
    if intent.shelf == Shelf::Done {
        let kept_until = intent.profile.profile().retained_until(cx.now);
        intent.wake_at = intent.wake_at.max(kept_until);
    }
    let mut writes: Vec<Write> = first_use.map(Write::Once).into_iter().collect();
    if restore.history.is_empty() {
        let source = FactSource::by_time(Verb::Admit).with("imported".to_owned());
        writes.push(fact(None, &mut intent, source, cx));
    }
    let mut from = None;
    for (index, earlier) in restore.history.iter().enumerate() {
        let cause = if index + 1 == restore.history.len() {
            intent.cause
        } else {
            Cause::None
        };
        writes.push(earlier_fact(from, earlier, cause, &mut intent, cx));
        from = Some(earlier.to);
    }
    writes.push(Write::New(intent));
    Ok(Decision {
        writes,
        answer: Answer::Restored,
    })
}

fn earlier_fact(
    from: Option<State>,
    earlier: &EarlierFact,
    cause: Cause,
    intent: &mut Intent,
    cx: &mut Cx<'_>,
) -> Write {
    let seq = cx.next_fact();
    Write::Fact(Fact {
        seq,
        intent: intent.seq,
        previous: intent.last_fact.replace(seq),
        face: intent.profile.profile().face,
        owner: intent.owner.clone(),
        at: cx.now,
        // Exact, so that a reader sees the time that the other system recorded.
        wall_offset_us: earlier.at.0.saturating_sub(cx.now.0),
        verb: earlier.verb,
        from,
        to: earlier.to,
        cause,
        attempt: intent.attempts,
        actor: earlier.actor.clone(),
        worker: None,
        detail: earlier.detail.clone(),
    })
}

fn first_use(
    view: &View,
    restore: &Restore,
    cx: &Cx<'_>,
) -> Result<Option<once::FirstUse>, Refusal> {
    let Some(guard) = &restore.once else {
        return Ok(None);
    };
    let stored = view.once.first().and_then(Option::as_ref);
    match once::compare(stored, &guard.fingerprint, cx.now) {
        Verdict::First => Ok(Some(once::FirstUse {
            key: guard.key.clone(),
            fingerprint: guard.fingerprint,
            intent: Some(restore.intent.id),
            answer: String::new(),
            until: cx.now.plus(guard.lifetime_us),
        })),
        Verdict::Same(_) => Err(Refusal::Exists),
        Verdict::Different(_) => Err(Refusal::OnceConflict { index: 0 }),
    }
}
