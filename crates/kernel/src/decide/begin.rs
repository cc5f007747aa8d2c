//! Rows that begin outside of a queue: a permission begins as received, a transaction leased to the node that carries it out.

use super::claim::lease;
use super::time::until_end;
use super::{Cx, Decision, FactSource, Needs, View, Write, admit, fact};
use crate::command::{Answer, Begin, Within};
use crate::error::Refusal;
use crate::state::{State, Verb};

pub(super) fn needs(begin: &Begin) -> Needs<'_> {
    match (begin.within, begin.item.target.as_deref()) {
        (Some(_), Some(of)) => Needs::Unconsented {
            face: begin.item.profile.profile().face,
            of,
        },
        _ => Needs::Nothing,
    }
}

pub(super) fn decide(view: &View, begin: &Begin, cx: &mut Cx<'_>) -> Result<Decision, Refusal> {
    if let Some(within) = begin.within {
        check_room(view, within)?;
    }
    let item = &begin.item;
    let start = match begin.hold {
        Some(_) => State::Dispatched,
        None => State::Received,
    };
    if !item.profile.profile().start.contains(&start) {
        return Err(Refusal::IllegalState);
    }
    let seq = cx.next_seq();
    let mut intent = admit::made(item, begin.id, seq, start, cx);
    if let Some(hold) = &begin.hold {
        // It is leased now, so it is due now, whatever delay was requested.
        intent.run_at = cx.now;
        lease(&mut intent, &hold.holder, hold.lease_us, cx);
    } else {
        intent.reshelve(cx.now);
        until_end(&mut intent, cx);
    }
    let source = FactSource::by(&item.owner, Verb::Admit);
    let source = fact(None, &mut intent, source, cx);
    Ok(Decision {
        writes: vec![source, Write::New(intent.clone())],
        answer: Answer::Begun(Box::new(intent)),
    })
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
