//! The recipient reports the end of a message.

use consign_engine::Error;
use consign_kernel::command::{Advance, Command};
use consign_kernel::error::{Code, Refusal};
use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::intent::{Intent, Outcome, ResultKind};
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::Face;
use consign_kernel::state::{State, Verb};

use crate::lifecycle::{InvalidTransition, TransitionContext, check_transition};
use crate::problem::BeamProblem;
use crate::service::Beam;

/// The error of a message that failed without a response.
const MANUALLY_FAILED: &str = "Manually failed";

/// What the recipient reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    pub message_id: String,
    pub is_failure: bool,
    /// JSON.
    pub response: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckedMessage {
    pub id: IntentId,
    pub state: State,
    pub updated_at: Micros,
}

impl Beam {
    /// Ends a message. A repeated report changes nothing: the first response stays.
    pub async fn acknowledge(&self, ack: Acknowledgement) -> Result<AckedMessage, BeamProblem> {
        let row = self.message_row(&ack.message_id).await?;
        let to = if ack.is_failure {
            State::Failed
        } else {
            State::Acked
        };
        if row.state == to && !plant::on(Plant::AckAgain) {
            return Ok(known(&row));
        }
        check(&row, to)?;
        let mut step = Advance::by_system(
            row.id,
            Face::Beam,
            if ack.is_failure {
                Verb::Fail
            } else {
                Verb::Complete
            },
        );
        // Of two reports at the same time, the second one must see the end that the first one stored.
        step.refuse_repeated = !plant::on(Plant::AckAgain);
        step.actor = Some(row.owner.clone());
        if ack.is_failure {
            let error = ack.response.unwrap_or_else(|| MANUALLY_FAILED.to_owned());
            step.error = Some(error);
        } else {
            step.result = ack.response.map(|body| Outcome {
                kind: ResultKind::Json,
                body,
            });
        }
        let step = Command::Advance(Box::new(step));
        match self.engine().apply(None, step).await {
            Ok(_) => Ok(AckedMessage {
                id: row.id,
                state: to,
                updated_at: self.engine().now(),
            }),
            // Its state has changed meanwhile, or the holder of its lease decides about it.
            Err(Error::Refused(Refusal::IllegalState)) => {
                let current = self.message_row(&ack.message_id).await?;
                if current.state == to {
                    return Ok(known(&current));
                }
                check(&current, to)?;
                let id = current.id;
                let text = format!("Message {id} is being delivered; try again after the attempt");
                Err(BeamProblem::new(Code::InvalidState, text))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The message had this end before.
fn known(row: &Intent) -> AckedMessage {
    AckedMessage {
        id: row.id,
        state: row.state,
        updated_at: row.settled_at.unwrap_or(row.created_at),
    }
}

fn check(row: &Intent, to: State) -> Result<(), BeamProblem> {
    let context = TransitionContext::StoredMessage {
        id: row.id.to_string(),
    };
    check_transition(context, Some(row.state), to)
        .map_err(|error: InvalidTransition| BeamProblem::new(Code::InvalidState, error.to_string()))
}
