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
        let Some(content) = MessageContent::parse(&row.payload) else {
            let failure = DeliveryFailure {
                text: "The stored message cannot be read".to_owned(),
                code: None,
                is_retryable: false,
            };
            return self.settle_attempt(row, "", Some(failure)).await;
        };
        let failure = self.deliver_message(row, &content).await.err();
        self.settle_attempt(row, &content.nonce, failure).await
    }

    async fn settle_attempt(
        &self,
        row: &Intent,
        nonce: &str,
        failure: Option<DeliveryFailure>,
    ) -> Result<DeliveryOutcome, BeamProblem> {
        let how = match &failure {
            None => Settlement::Deliver,
            Some(failure) if failure.is_retryable => Settlement::FailKeyed {
                error: failure.text.clone(),
                key: nonce.to_owned(),
            },
            Some(failure) => Settlement::Kill {
                error: failure.text.clone(),
            },
        };
        let detail = failure
            .as_ref()
            .map(|failure| json!({"error": failure.text, "errorCode": failure.code}).to_string());
        let settle = Settle {
            detail,
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
        Ok(match state {
            State::Delivered | State::Acked => DeliveryOutcome::Delivered,
            State::Failed | State::DeadLetter => DeliveryOutcome::DeadLetter { failure: failure() },
            State::Received | State::Validated | State::Queued | State::Dispatched => {
                DeliveryOutcome::Queued {
                    retry_count,
                    next_retry_at,
                    failure: failure(),
                }
            }
        })
    }
}

/// For callers that need the message itself.
pub(super) fn readable(row: &Intent) -> Result<BusMessage, BeamProblem> {
    let unreadable = || Error::Internal(format!("message {} cannot be read", row.id));
    Ok(BusMessage::of(row).ok_or_else(unreadable)?)
}
