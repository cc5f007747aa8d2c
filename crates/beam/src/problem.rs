//! The errors of the directory and the bus: a code of the one table, and the sentence that the protocol prescribes.

use consign_engine::Error;
use consign_kernel::error::Code;

/// Why an operation was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct BeamProblem {
    pub code: Code,
    pub text: String,
}

impl BeamProblem {
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// A missing agent.
    pub fn no_agent(beam_id: &str) -> Self {
        Self::new(Code::NotFound, format!("Agent {beam_id} not found"))
    }

    pub fn unauthorized() -> Self {
        Self::new(Code::Unauthorized, "Unauthorized")
    }
}

/// The ledger did not answer. What it refuses is handled where it is expected.
impl From<Error> for BeamProblem {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(_) => {
                tracing::warn!(%error, "the ledger did not answer");
                Self::new(
                    Code::StoreUnavailable,
                    "The ledger is unavailable; try again shortly",
                )
            }
            Error::Refused(_) | Error::Seal(_) | Error::NotSettled | Error::Internal(_) => {
                tracing::error!(%error, "an unexpected error");
                Self::new(Code::InternalError, "Internal server error")
            }
        }
    }
}
