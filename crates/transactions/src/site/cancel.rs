//! `POST /cancel`: a permission is withdrawn before anything was done under it.

use consign_kernel::command::{Command, Operate};
use consign_kernel::profile::Face;
use serde_json::json;

use super::books::{Kept, Permission};
use super::{Answer, Caller, Site, TRIES_MAX};
use crate::document::{Document, NOTE_BYTES_MAX};
use crate::envelope::Operation;
use crate::instant;
use crate::intent::Intent;
use crate::key::IdempotencyKey;
use crate::problem::{ExpiredReason, Problem};
use crate::request::Cancel;
use crate::state::State;

impl Site {
    /// Idempotent by nature, so it needs no key; a signed one names its key as every signed request does.
    pub async fn cancel(&self, key: Option<&[u8]>, body: &[u8]) -> Result<Answer, Problem> {
        let document = Document::read(body, NOTE_BYTES_MAX)?;
        let envelope = self.envelope(&document, Operation::Cancel)?;
        if document.is_signed() {
            IdempotencyKey::of_request(key, &document)?;
        } else {
            IdempotencyKey::check_named(key, &document)?;
        }
        let request = Cancel::read(&document)?;
        for _ in 0..TRIES_MAX {
            let found = self.permission(&request.intent_id).await?;
            let mut permission = found.ok_or(Problem::IntentNotFound)?;
            permission.value.check_caller(Caller::Agent)?;
            let intent = permission.value.intent()?;
            intent.check_request(&document, self.options().signed_requests)?;
            if permission.value.cancelled {
                return Ok(cancelled(&intent).replayed(true));
            }
            // What was executed has its own end, even if there might have been more.
            if intent.max_executions == 1 && permission.value.executions > 0 {
                let state = self.state_of(&intent.intent_id).await?;
                let state = state.unwrap_or(State::Executing);
                return Err(Problem::InvalidState { state });
            }
            let now = self.judged_at(&permission.value, &intent).await?;
            permission.value.check_unexpired(&intent, now)?;
            self.check_fresh(envelope)?;
            let reason = request.reason.clone().unwrap_or_default();
            if self.withdraw(&mut permission, reason).await? {
                return Ok(cancelled(&intent));
            }
        }
        Err(Problem::StoreUnavailable)
    }

    /// Ends a permission by its owner's will. False if somebody else was quicker.
    pub(super) async fn withdraw(
        &self,
        permission: &mut Kept<Permission>,
        reason: String,
    ) -> Result<bool, Problem> {
        permission.value.cancelled = true;
        let operate = Operate {
            id: permission.value.row()?,
            face: Face::Transaction,
            reason,
        };
        let steps = vec![
            permission.unchanged(),
            Command::Cancel(operate),
            permission.put(),
        ];
        Ok(self.commit(steps).await?.is_some())
    }
}

fn cancelled(intent: &Intent) -> Answer {
    let body = json!({
        "ok": true,
        "intent_id": intent.intent_id,
        "state": State::Expired.word(),
        "expired_reason": ExpiredReason::Cancelled.word(),
        "expires_at": instant::print(intent.expires_at),
    });
    Answer::new(200, &body).at(State::Expired)
}
