//! Acts and answers in words, for the log and the tally.

use consign_engine::Error;
use consign_kernel::command::Answer;
use consign_kernel::ids::SECOND_US;

use crate::acts::{Act, Heard, Shown};

/// What kind of event this was.
pub(crate) fn kind(act: &Act, heard: &Heard) -> &'static str {
    match (act, heard) {
        (_, Heard::Lost) => "lost answers",
        (_, Heard::No(Error::Refused(_))) => "refusals",
        (_, Heard::No(_)) => "failures",
        (_, Heard::Yes(Answer::Claimed(none))) if none.is_empty() => "empty claims",
        (_, Heard::Receipt(_)) => "receipts",
        (Act::Publish(batch), Heard::Yes(_)) if batch.items.len() > 1 => "batches",
        (Act::Publish(_) | Act::Receipt { .. }, Heard::Yes(_)) => "publishes",
        (Act::Claim { wait, .. }, Heard::Yes(_)) if wait.is_zero() => "claims",
        (Act::Claim { .. }, Heard::Yes(_)) => "long polls",
        (Act::Extend { .. }, Heard::Yes(_)) => "extensions",
        (Act::Complete(_), Heard::Yes(_)) => "completions",
        (Act::Fail(_), Heard::Yes(_)) => "failed attempts",
        (Act::Cancel(_), Heard::Yes(_)) => "cancels",
        (Act::Requeue(_), Heard::Yes(_)) => "requeues",
        (Act::Clean, Heard::Yes(_)) => "cleanups",
    }
}

pub(crate) fn told(act: &Act) -> String {
    let shown = |verb: &str, shown: &Shown| {
        let stale = if shown.stale { ", stale" } else { "" };
        format!("{verb} {} with lease {}{stale}", shown.id, shown.lease)
    };
    match act {
        Act::Publish(batch) => {
            let items = batch.items.iter().map(|item| {
                let delay_s = item.delay_us / SECOND_US;
                format!(" {} goal {} delay {delay_s} s", item.payload(), item.goal)
            });
            format!(
                "publish batch {}:{}",
                batch.number,
                items.collect::<String>()
            )
        }
        Act::Claim { claim, wait } => format!(
            "claim goal {:?} max {} lease {} s wait {} s",
            claim.goal,
            claim.max,
            claim.lease_us / SECOND_US,
            wait.as_secs()
        ),
        Act::Extend { shown: token, .. } => shown("extend", token),
        Act::Complete(token) => shown("complete", token),
        Act::Fail(token) => shown("fail", token),
        Act::Cancel(id) => format!("cancel {id}"),
        Act::Requeue(id) => format!("requeue {id}"),
        Act::Receipt { id, .. } => format!("receipt of {id}"),
        Act::Clean => "clean".to_owned(),
    }
}

pub(crate) fn answer(heard: &Heard) -> String {
    match heard {
        Heard::Yes(Answer::Claimed(intents)) => {
            let ids: Vec<String> = intents.iter().map(|row| row.id.to_string()).collect();
            format!("claimed {ids:?}")
        }
        Heard::Yes(Answer::Admitted(admitted)) => {
            let ids: Vec<String> = admitted.iter().map(|one| one.id.to_string()).collect();
            format!("admitted {ids:?}")
        }
        Heard::Yes(answer) => format!("{answer:?}"),
        Heard::Receipt(document) => format!("receipt {document:?}"),
        Heard::No(error) => format!("no: {error}"),
        Heard::Lost => "nothing".to_owned(),
    }
}
