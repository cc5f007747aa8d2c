//! Errors of the engine.

use consign_kernel::error::Refusal;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The rules do not allow the command; the ledger works.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Store(#[from] consign_store::Error),
    #[error("a stored key cannot be read: {0}; is the seal key the one it was written with?")]
    Seal(String),
    #[error("no receipt: the intent is not settled")]
    NotSettled,
    #[error("internal: {0}")]
    Internal(String),
}
