//! The compatibility profile: the life cycle of an older client, which signs nothing, authenticates with a token, and reports
//! its own progress.
//!
//! It is a thin layer over the same records. The site creates the permission and signs it on behalf of the user; reports of the
//! caller are handled like the answers of a rail, see [`crate::rail::ManualRail`]. States, caps, receipts and compensations are
//! the same as for agents.
//! Invariant: data of a user is accessible to that user alone, and never over the routes of agents; the site's rail is not
//! called for it.

mod intents;
mod reports;
mod views;

use consign_engine::Versioned;

use super::records::{PermissionRecord, StoredTransaction};
use super::{Site, SiteCaller};
use crate::document::{AtpDocument, REQUEST_BYTES_MAX};
use crate::envelope::{RequestEnvelope, RequestOperation};
use crate::problem::Problem;

pub use views::{
    CompatStatus, UserIntent, UserIntentList, UserReceipt, UserStep, UserTransaction,
    UserTransactionAnswer, UserTransactionSteps,
};

/// The site as one user sees it. The face has verified the user's token.
#[derive(Clone, Debug)]
pub struct ForUser {
    site: Site,
    user: String,
}

impl Site {
    pub fn for_user(&self, user: impl Into<String>) -> ForUser {
        ForUser {
            site: self.clone(),
            user: user.into(),
        }
    }
}

impl ForUser {
    async fn permission(&self, intent_id: &str) -> Result<Versioned<PermissionRecord>, Problem> {
        let found = self.site.permission(intent_id).await?;
        let permission = found.ok_or(Problem::IntentNotFound)?;
        permission
            .value
            .check_caller(SiteCaller::User(&self.user))?;
        Ok(permission)
    }

    async fn transaction(&self, id: &str) -> Result<StoredTransaction, Problem> {
        let found = self.site.transaction_by_id(id).await?;
        let transaction = found.ok_or(Problem::NotFound {
            what: "transaction",
        })?;
        self.permission(transaction.intent_id()).await?;
        Ok(transaction)
    }
}

impl ForUser {
    /// A user does not sign, but a body that was signed for another operation or site is refused.
    fn check_envelope(
        &self,
        body: &AtpDocument,
        operation: RequestOperation,
    ) -> Result<(), Problem> {
        let envelope = RequestEnvelope::read(body, operation, self.site.origin())?;
        self.site.check_fresh(envelope)
    }
}

/// Reads a body that may be empty.
fn read_body(body: &[u8]) -> Result<AtpDocument, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    AtpDocument::read(body, REQUEST_BYTES_MAX)
}
