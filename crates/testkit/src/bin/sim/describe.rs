//! Actions and outcomes as text, for the log and the counts.

use consign_engine::Error;
use consign_kernel::command::Answer;
use consign_kernel::ids::SECOND_US;

use crate::requests::{PresentedToken, RequestOutcome, SimAction};

/// The kind of an event.
pub(crate) fn kind(action: &SimAction, outcome: &RequestOutcome) -> &'static str {
    match (action, outcome) {
        (_, RequestOutcome::Lost) => "lost answers",
        (_, RequestOutcome::No(Error::Refused(_))) => "refusals",
        (_, RequestOutcome::No(_)) => "failures",
        (_, RequestOutcome::Yes(Answer::Claimed(none))) if none.is_empty() => "empty claims",
        (_, RequestOutcome::Receipt(_)) => "receipts",
        (SimAction::Publish(batch), RequestOutcome::Yes(_)) if batch.items.len() > 1 => "batches",
        (SimAction::Publish(_) | SimAction::Receipt { .. }, RequestOutcome::Yes(_)) => "publishes",
        (SimAction::Claim { wait, .. }, RequestOutcome::Yes(_)) if wait.is_zero() => "claims",
        (SimAction::Claim { .. }, RequestOutcome::Yes(_)) => "long polls",
        (SimAction::Extend { .. }, RequestOutcome::Yes(_)) => "extensions",
        (SimAction::Complete(_), RequestOutcome::Yes(_)) => "completions",
        (SimAction::Fail(_), RequestOutcome::Yes(_)) => "failed attempts",
        (SimAction::Cancel(_), RequestOutcome::Yes(_)) => "cancels",
        (SimAction::Requeue(_), RequestOutcome::Yes(_)) => "requeues",
        (SimAction::Clean, RequestOutcome::Yes(_)) => "cleanups",
    }
}

pub(crate) fn told(action: &SimAction) -> String {
    let presented = |verb: &str, presented: &PresentedToken| {
        let stale = if presented.stale { ", stale" } else { "" };
        format!(
            "{verb} {} with lease {}{stale}",
            presented.id, presented.lease
        )
    };
    match action {
        SimAction::Publish(batch) => {
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
        SimAction::Claim { claim, wait } => format!(
            "claim goal {:?} max {} lease {} s wait {} s",
            claim.goal,
            claim.max,
            claim.lease_us / SECOND_US,
            wait.as_secs()
        ),
        SimAction::Extend {
            presented: token, ..
        } => presented("extend", token),
        SimAction::Complete(token) => presented("complete", token),
        SimAction::Fail(token) => presented("fail", token),
        SimAction::Cancel(id) => format!("cancel {id}"),
        SimAction::Requeue(id) => format!("requeue {id}"),
        SimAction::Receipt { id, .. } => format!("receipt of {id}"),
        SimAction::Clean => "clean".to_owned(),
    }
}

pub(crate) fn answer(outcome: &RequestOutcome) -> String {
    match outcome {
        RequestOutcome::Yes(Answer::Claimed(intents)) => {
            let ids: Vec<String> = intents.iter().map(|row| row.id.to_string()).collect();
            format!("claimed {ids:?}")
        }
        RequestOutcome::Yes(Answer::Admitted(admitted)) => {
            let ids: Vec<String> = admitted.iter().map(|one| one.id.to_string()).collect();
            format!("admitted {ids:?}")
        }
        RequestOutcome::Yes(answer) => format!("{answer:?}"),
        RequestOutcome::Receipt(document) => format!("receipt {document:?}"),
        RequestOutcome::No(error) => format!("no: {error}"),
        RequestOutcome::Lost => "nothing".to_owned(),
    }
}
