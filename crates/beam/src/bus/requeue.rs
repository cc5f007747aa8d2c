//! A dead or failed message gets a new start by an operator's request.

use consign_engine::{Error, UnitOfWork};
use consign_kernel::command::{Command, Operate, Take};
use consign_kernel::error::{Code, Refusal};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::state::State;

use super::attempt::{DeliveryOutcome, readable};
use super::message::BusMessage;
use crate::problem::BeamProblem;
use crate::service::Beam;

/// A message that was attempted again.
#[derive(Clone, Debug, PartialEq)]
pub struct RequeuedMessage {
    /// As it was when the attempt began.
    pub message: BusMessage,
    pub outcome: DeliveryOutcome,
}

impl Beam {
    /// Queues a message again and attempts it at once, with its original nonce. It is completed even if the caller stops
    /// waiting.
    pub async fn requeue_message(&self, id: &str) -> Result<RequeuedMessage, BeamProblem> {
        let (beam, id) = (self.clone(), id.to_owned());
        let requeued = tokio::spawn(async move { beam.requeue_and_attempt(&id).await });
        requeued.await.unwrap_or_else(|panicked| {
            tracing::error!(%panicked, "the requeue of a message panicked");
            let text = "Internal server error";
            Err(BeamProblem::new(Code::InternalError, text))
        })
    }

    async fn requeue_and_attempt(&self, id: &str) -> Result<RequeuedMessage, BeamProblem> {
        let refused = || {
            let text = format!("Message {id} is not in a requeueable state");
            BeamProblem::new(Code::InvalidState, text)
        };
        let row = self.message_row(id).await?;
        if !matches!(row.state, State::DeadLetter | State::Failed) {
            return Err(refused());
        }
        let mut unit = UnitOfWork::default();
        unit.require(Command::Requeue(Operate {
            id: row.id,
            face: Face::Beam,
            reason: "requeued".to_owned(),
        }));
        // A row that was queued a moment ago in the same commit has no other holder.
        let taken = unit.take(Take {
            id: row.id,
            face: Face::Beam,
            hold: self.attempt_hold(),
            detail: None,
        });
        let mut committed = match self.engine().commit(unit).await {
            Err(Error::Refused(Refusal::IllegalState | Refusal::Held)) => return Err(refused()),
            other => other?,
        };
        let rows: Vec<Intent> = committed.get(taken)?;
        let row = rows.into_iter().next().ok_or_else(refused)?;
        let message = readable(&row)?;
        let outcome = self.attempt(&row).await?;
        Ok(RequeuedMessage { message, outcome })
    }
}
