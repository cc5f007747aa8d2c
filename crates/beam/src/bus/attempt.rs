//! A delivery attempt of a leased message, and the step that follows from its outcome.
//!
//! The row keeps the text of the last error. The fact of the step holds text and code as a JSON object.

use consign_engine::{Error, Lease};
use consign_kernel::command::{Settle, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::Micros;
use consign_kernel::intent::Intent;
use consign_kernel::state::State;
use serde_json::json;

use super::delivery::DeliveryFailure;
use super::message::{BusMessage, MessageContent};
use crate::counters::BusAttemptOutcome;
use crate::problem::BeamProblem;
use crate::service::Beam;

/// What an attempt led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Delivered,
    /// The message is retried.
    Queued {
        retry_count: u32,
        next_retry_at: Micros,
        failure: DeliveryFailure,
    },
    /// The failure is final, or no attempt is left.
    DeadLetter {
        failure: DeliveryFailure,
    },
}

impl Beam {
    /// Attempts to deliver a message that this node has leased, and stores the outcome.
    pub(super) async fn attempt(&self, row: &Intent) -> Result<DeliveryOutcome, BeamProblem> {
        self.attempt_since(row, None).await
    }

    /// The same for the attempt of the request that sends the message: the delay of its retry begins when it was created.
    pub(super) async fn attempt_first(&self, row: &Intent) -> Result<DeliveryOutcome, BeamProblem> {
        self.attempt_since(row, Some(row.created_at)).await
    }

    async fn attempt_since(
        &self,
        row: &Intent,
        since: Option<Micros>,
    ) -> Result<DeliveryOutcome, BeamProblem> {
        let attempted = self.attempt_uncounted(row, since).await;
        let outcome = match &attempted {
            Ok((_, true)) => BusAttemptOutcome::HandedOver,
            Ok((DeliveryOutcome::Delivered, false)) => BusAttemptOutcome::Delivered,
            Ok((DeliveryOutcome::Queued { .. }, false)) => BusAttemptOutcome::Queued,
            Ok((DeliveryOutcome::DeadLetter { .. }, false)) => BusAttemptOutcome::DeadLetter,
            Err(_) => BusAttemptOutcome::Error,
        };
        self.inner.counters.bus_attempted(outcome);
        attempted.map(|(outcome, _)| outcome)
    }

    /// Returns as well whether the message was handed over to workers.
    async fn attempt_uncounted(
        &self,
        row: &Intent,
        since: Option<Micros>,
    ) -> Result<(DeliveryOutcome, bool), BeamProblem> {
        let Some(content) = MessageContent::parse(&row.payload) else {
            let failure = DeliveryFailure {
                text: "The stored message cannot be read".to_owned(),
                code: None,
                is_retryable: false,
                is_unreached: false,
            };
            return self.settle_attempt(row, since, Some(failure)).await;
        };
        let failure = self.deliver_message(row, &content).await.err();
        self.settle_attempt(row, since, failure).await
    }

    async fn settle_attempt(
        &self,
        row: &Intent,
        since: Option<Micros>,
        failure: Option<DeliveryFailure>,
    ) -> Result<(DeliveryOutcome, bool), BeamProblem> {
        let served_in = match &failure {
            Some(failure) if failure.is_unreached => self.served_namespace(&row.owner).await?,
            _ => None,
        };
        let how = match &failure {
            None => Settlement::Deliver,
            // It waits for the workers of its recipient, as long as they need.
            Some(_) if served_in.is_some() => Settlement::HandOver,
            Some(failure) if failure.is_retryable => {
                let error = failure.text.clone();
                match since {
                    Some(since) => Settlement::FailSince { error, since },
                    None => Settlement::Fail { error },
                }
            }
            Some(failure) => Settlement::Kill {
                error: failure.text.clone(),
            },
        };
        let detail = match (&served_in, &failure) {
            (Some(namespace), _) => Some(json!({"heldForWorkersIn": namespace})),
            (None, Some(failure)) => {
                Some(json!({"error": failure.text, "errorCode": failure.code}))
            }
            (None, None) => None,
        };
        let settle = Settle {
            detail: detail.map(|detail| detail.to_string()),
            ..Lease::of(row).settle(how)
        };
        let (state, retry_count, next_retry_at) = match self.engine().settle(settle).await {
            Ok(settled) => (settled.state, row.attempts, settled.run_at),
            // The attempt outlasted its lease, so the message was queued again and may have been retried.
            Err(Error::Refused(Refusal::LeaseLost)) => {
                let current = self.message_row(&row.id.to_string()).await?;
                let retry_count = super::message::retry_count(&current);
                (current.state, retry_count, current.run_at)
            }
            Err(error) => return Err(error.into()),
        };
        let failure = || failure.unwrap_or_else(DeliveryFailure::timeout);
        let outcome = match state {
            State::Delivered | State::Acked => DeliveryOutcome::Delivered,
            State::Failed | State::DeadLetter => DeliveryOutcome::DeadLetter { failure: failure() },
            State::Received | State::Validated | State::Queued | State::Dispatched => {
                DeliveryOutcome::Queued {
                    retry_count,
                    next_retry_at,
                    failure: failure(),
                }
            }
        };
        Ok((outcome, served_in.is_some()))
    }
}

/// For callers that need the message itself.
pub(super) fn readable(row: &Intent) -> Result<BusMessage, BeamProblem> {
    let unreadable = || Error::Internal(format!("message {} cannot be read", row.id));
    Ok(BusMessage::of(row).ok_or_else(unreadable)?)
}
