//! The results of operations that change something; each is built after the commit that it reports.
//!
//! They are plain values: `http` chooses the status and the form of the body. The exception is the body of a consent, see
//! `stored_answer`.

use consign_kernel::ids::Micros;

use super::records::StoredTransaction;
use super::views::TransactionView;
use crate::intent::SignedIntent;
use crate::problem::Problem;
use crate::state::AtpState;

/// An intent that was accepted, in the state created.
#[derive(Clone, Debug)]
pub struct CreatedIntent {
    pub intent: SignedIntent,
    pub created_at: Micros,
    /// The same intent was accepted before.
    pub replayed: bool,
}

/// A recorded consent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsentAnswer {
    /// The stored body, which is the same for every repetition.
    pub body: String,
    /// The current state of the intent.
    pub state: AtpState,
    /// The consent was recorded before, by the same request.
    pub replayed: bool,
}

/// A permission that was withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelledIntent {
    pub intent_id: String,
    pub expires_at: Micros,
    /// It was withdrawn before.
    pub replayed: bool,
}

/// A transaction that was executed or compensated, as far as possible until now.
#[derive(Clone, Debug)]
pub struct TransactionAnswer {
    pub transaction: TransactionView,
    /// The operation has not ended; the client should ask again.
    pub is_pending: bool,
    /// The operation was begun by an earlier request with the same key.
    pub replayed: bool,
}

impl TransactionAnswer {
    #[must_use]
    pub(super) fn replayed(self, replayed: bool) -> Self {
        Self { replayed, ..self }
    }
}

impl StoredTransaction {
    pub(super) fn intent_id(&self) -> &str {
        &self.key.owner
    }

    /// Pending until the state is final.
    pub(super) fn answer(&self) -> Result<TransactionAnswer, Problem> {
        let transaction = TransactionView::of(self)?;
        Ok(TransactionAnswer {
            is_pending: !transaction.state.is_terminal(),
            transaction,
            replayed: false,
        })
    }
}
