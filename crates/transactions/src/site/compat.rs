//! The compatibility profile: the life cycle of an older client, which signs nothing, holds a token, and reports itself how far
//! it is.
//!
//! It is a thin layer over the same records. The site writes the permission down and signs it in the user's place; what the
//! caller reports is followed up like the answer of a rail, see [`crate::rail::Manual`]. So states, caps, receipts and
//! compensations are those of everybody else.
//! Invariant: what belongs to a user is reached by that user alone, and never by the routes of agents; no rail of the site hears
//! of it.

mod intents;
mod reports;
mod views;

use serde_json::{Value, json};

use super::records::{PermissionRecord, TransactionRecord, Versioned};
use super::{Site, SiteAnswer, SiteCaller};
use crate::document::{AtpDocument, REQUEST_BYTES_MAX};
use crate::envelope::{RequestEnvelope, RequestOperation};
use crate::problem::Problem;

/// A site as one user sees it, whose token the face has checked.
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

    async fn transaction(&self, id: &str) -> Result<Versioned<TransactionRecord>, Problem> {
        let found = self.site.transaction_by_id(id).await?;
        let transaction = found.ok_or(Problem::NotFound {
            what: "transaction",
        })?;
        self.permission(transaction.intent_id()).await?;
        Ok(transaction)
    }
}

/// What this profile wraps every answer in.
fn enveloped(data: &Value) -> SiteAnswer {
    SiteAnswer::new(200, &json!({"ok": true, "data": data}))
}

impl ForUser {
    /// A user signs nothing; what somebody signed for another operation or site is refused all the same.
    fn check_envelope(
        &self,
        body: &AtpDocument,
        operation: RequestOperation,
    ) -> Result<(), Problem> {
        let envelope = RequestEnvelope::read(body, operation, self.site.origin())?;
        self.site.check_fresh(envelope)
    }
}

/// A body that may be left out.
fn read_body(body: &[u8]) -> Result<AtpDocument, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    AtpDocument::read(body, REQUEST_BYTES_MAX)
}
