//! `POST /cancel`: withdraws a permission before anything was executed under it.

use consign_engine::{TRIES_MAX, UnitOfWork, Versioned};
use consign_kernel::command::{Command, Operate};
use consign_kernel::profile::Face;

use super::records::PermissionRecord;
use super::{CancelledIntent, Site, SiteCaller};
use crate::document::{AtpDocument, NOTE_BYTES_MAX};
use crate::envelope::RequestOperation;
use crate::intent::SignedIntent;
use crate::key::IdempotencyKey;
use crate::problem::Problem;
use crate::request::Cancel;
use crate::state::AtpState;

impl Site {
    /// Cancelling is idempotent and needs no key; a signed request names its key like every signed
    /// request.
    pub async fn cancel(
        &self,
        key: Option<&[u8]>,
        body: &[u8],
    ) -> Result<CancelledIntent, Problem> {
        let document = AtpDocument::read(body, NOTE_BYTES_MAX)?;
        let envelope = self.envelope(&document, RequestOperation::Cancel)?;
        if document.is_signed() {
            IdempotencyKey::of_request(key, &document)?;
        } else {
            IdempotencyKey::check_named(key, &document)?;
        }
        let request = Cancel::read(&document)?;
        for _ in 0..TRIES_MAX {
            let found = self.permission(&request.intent_id).await?;
            let mut permission = found.ok_or(Problem::IntentNotFound)?;
            permission.value.check_caller(SiteCaller::Agent)?;
            let intent = permission.value.intent()?;
            intent.check_request(&document, self.options().signed_requests)?;
            if permission.value.cancelled {
                return Ok(cancelled(&intent, true));
            }
            // An executed intent has its own final state, even if more executions were allowed.
            if intent.max_executions == 1 && permission.value.executions > 0 {
                let state = self.state_of(&intent.intent_id).await?;
                let state = state.unwrap_or(AtpState::Executing);
                return Err(Problem::InvalidState { state });
            }
            let now = self.judged_at(&permission.value, &intent).await?;
            permission.value.check_unexpired(&intent, now)?;
            self.check_fresh(envelope)?;
            let reason = request.reason.clone().unwrap_or_default();
            if self.withdraw(&mut permission, reason).await? {
                return Ok(cancelled(&intent, false));
            }
        }
        Err(Problem::StoreUnavailable)
    }

    /// Ends a permission on request of its owner. Returns false after a concurrent change.
    pub(super) async fn withdraw(
        &self,
        permission: &mut Versioned<PermissionRecord>,
        reason: String,
    ) -> Result<bool, Problem> {
        permission.value.cancelled = true;
        let operate = Operate {
            id: permission.value.row()?,
            face: Face::Transaction,
            reason,
        };
        let mut unit = UnitOfWork::default();
        unit.require(Command::Cancel(operate));
        unit.replace(permission);
        Ok(self.commit(unit).await?.is_some())
    }
}

fn cancelled(intent: &SignedIntent, replayed: bool) -> CancelledIntent {
    CancelledIntent {
        intent_id: intent.intent_id.clone(),
        expires_at: intent.expires_at,
        replayed,
    }
}
