//! Actions and replies of Beam as text, for the log and the counts.

use consign_beam::bus::SentMessage;
use consign_beam::problem::BeamProblem;
use consign_beam::relay::RelayError;
use consign_kernel::error::Code;

use super::requests::{BeamAction, BeamReply, NonceUse};

/// The kind of a reply.
pub(crate) fn kind(reply: Option<&BeamReply>) -> &'static str {
    match reply {
        None => "beam: lost answers",
        Some(BeamReply::Relayed(Ok(_))) => "beam: results",
        Some(BeamReply::Relayed(Err(error))) => relay_kind(error),
        Some(BeamReply::Sent(Ok(SentMessage::New { .. }))) => "beam: messages",
        Some(BeamReply::Sent(Ok(SentMessage::Known(_)))) => "beam: repeated messages",
        Some(BeamReply::Acked(Ok(_))) => "beam: acknowledgements",
        Some(BeamReply::Requeued(Ok(_))) => "beam: requeued messages",
        Some(
            BeamReply::Sent(Err(problem))
            | BeamReply::Acked(Err(problem))
            | BeamReply::Requeued(Err(problem)),
        ) => problem_kind(problem),
    }
}

fn relay_kind(error: &RelayError) -> &'static str {
    match error {
        RelayError::Offline => "beam: recipients offline",
        RelayError::Timeout { .. } => "beam: timeouts",
        RelayError::InProgress(_) => "beam: intents in progress",
        RelayError::Ledger(_) => "beam: failures",
        RelayError::Shape(_)
        | RelayError::BadRequest(_)
        | RelayError::Forbidden(_)
        | RelayError::RateLimited(_)
        | RelayError::DeliveryFailed(_) => "beam: refusals",
    }
}

fn problem_kind(problem: &BeamProblem) -> &'static str {
    if problem.code == Code::StoreUnavailable {
        "beam: failures"
    } else {
        "beam: refusals"
    }
}

pub(crate) fn told(action: &BeamAction) -> String {
    let used = |used: &NonceUse| {
        let (to, intent, message) = (used.recipient, used.intent, used.message);
        format!("to {to} {intent} message {message}")
    };
    match action {
        BeamAction::Send {
            nonce,
            used: with,
            by_socket,
        } => {
            let by = if *by_socket { "socket" } else { "http" };
            format!("send {nonce} by {by} {}", used(with))
        }
        BeamAction::BusSend { nonce, used: with } => format!("bus send {nonce} {}", used(with)),
        BeamAction::Ack {
            id,
            is_failure,
            response,
        } => format!("ack {id} failure {is_failure} with {response}"),
        BeamAction::BusRequeue(id) => format!("bus requeue {id}"),
    }
}

pub(crate) fn answer(reply: Option<&BeamReply>) -> String {
    match reply {
        None => "nothing".to_owned(),
        Some(BeamReply::Relayed(Ok(result))) => result.clone(),
        Some(BeamReply::Relayed(Err(error))) => format!("no: {error}"),
        Some(BeamReply::Sent(Ok(SentMessage::New { message, outcome }))) => {
            format!("message {} {outcome:?}", message.id)
        }
        Some(BeamReply::Sent(Ok(SentMessage::Known(message)))) => {
            format!("known message {} {}", message.id, message.state)
        }
        Some(BeamReply::Acked(Ok(acked))) => format!("{acked:?}"),
        Some(BeamReply::Requeued(Ok(requeued))) => format!("{:?}", requeued.outcome),
        Some(
            BeamReply::Sent(Err(problem))
            | BeamReply::Acked(Err(problem))
            | BeamReply::Requeued(Err(problem)),
        ) => format!("no: {problem}"),
    }
}
