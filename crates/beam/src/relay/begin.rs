//! The nonce of an intent is claimed and its first steps are stored, in one commit.

use std::time::Duration;

use consign_engine::{Error, Lease, UnitOfWork};
use consign_kernel::command::{
    Advance, Begin, Command, Extend, FirstStep, Hold, NewIntent, OnceGuard, Take,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, IntentId, SECOND_US, Seq};
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::limits;
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::Verb;
use sha2::{Digest as _, Sha256};

use super::check::Checked;
use super::rows::{error_code, stored_frame};
use super::{Ingress, RelayError, details};
use crate::frame::IntentFrame;
use crate::lifecycle;
use crate::replay::{EarlierIntent, NonceClaim, claim_nonce};
use crate::service::Beam;

/// The namespace of the directory's rows; the bus has another one.
pub(crate) const NAMESPACE: &str = "directory";
/// A nonce outlives the row that it guards.
pub(crate) const NONCE_LIFETIME_US: i64 = limits::RETENTION_US + DAY_US;
/// A lease ends this long after the timeout, so that the relay itself reports it.
pub(super) const LEASE_MARGIN_US: i64 = 5 * SECOND_US;
/// A nonce may be sent again as often as its sender likes.
pub(crate) const ATTEMPTS_MAX: u32 = i32::MAX.unsigned_abs();

/// What the claim of a nonce led to.
pub(super) enum Begun {
    /// The result is known already.
    Known(String),
    /// This node relays it.
    Dispatched(Box<Intent>),
    /// The recipient is connected to another node, which relays it.
    HandedOver(IntentId),
}

impl Beam {
    pub(super) async fn begin_intent(
        &self,
        frame: &IntentFrame,
        ingress: &Ingress,
        checked: &Checked,
    ) -> Result<Begun, RelayError> {
        let is_elsewhere = self.is_connected_elsewhere(checked).await?;
        let begin = self.begin_command(frame, ingress, checked, is_elsewhere);
        let id = begin.id;
        let mut unit = UnitOfWork::default();
        let begun = unit.begin(begin);
        if is_elsewhere {
            self.put_handover(&mut unit, id, frame, checked);
        }
        if plant::on(Plant::RelayBeforeCommit)
            && self.goes_by_socket(checked)
            && let Some(recipient) = &checked.recipient
            && self
                .engine()
                .first_use(nonce_key(frame.nonce()))
                .await?
                .is_none()
        {
            let message = details::socket_message(frame, checked);
            let _ = self.inner.sockets.send(recipient, message);
            // Long enough for a campaign to end the process meanwhile.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match self.engine().commit(unit).await {
            Ok(_) if is_elsewhere => Ok(Begun::HandedOver(id)),
            Ok(mut committed) => Ok(Begun::Dispatched(Box::new(committed.get(begun)?))),
            Err(Error::Refused(Refusal::AlreadyBegun { id })) => {
                self.repeat_intent(id, frame, ingress, checked, is_elsewhere)
                    .await
            }
            Err(Error::Refused(Refusal::OnceConflict { .. })) => Err(used_otherwise(frame.nonce())),
            Err(error) => Err(error.into()),
        }
    }

    fn begin_command(
        &self,
        frame: &IntentFrame,
        ingress: &Ingress,
        checked: &Checked,
        is_elsewhere: bool,
    ) -> Begin {
        let mut walk = vec![FirstStep {
            verb: Verb::Validate,
            detail: Some(details::validated(ingress, checked)),
        }];
        if is_elsewhere {
            walk.push(FirstStep {
                verb: Verb::Retry,
                detail: Some(details::handed_over()),
            });
        } else {
            walk.push(FirstStep {
                verb: Verb::Claim,
                detail: Some(details::dispatched(ingress)),
            });
            if self.goes_by_socket(checked) {
                walk.push(FirstStep {
                    verb: Verb::Extend,
                    detail: Some(details::by_socket(self.result_timeout_ms(ingress))),
                });
            }
        }
        Begin {
            id: IntentId::new(self.engine().now(), Seq(0), self.engine().entropy().draw()),
            item: NewIntent {
                profile: ProfileId::BeamDirectory,
                namespace: NAMESPACE.to_owned(),
                goal: frame.intent().to_owned(),
                owner: frame.to().to_owned(),
                public: false,
                target: None,
                capability: None,
                priority: 0,
                payload: stored_frame(frame),
                traceparent: None,
                delay_us: 0,
                ttl_us: limits::RETENTION_US,
                attempts_max: ATTEMPTS_MAX,
                backoff_us: 0,
                once: (!plant::on(Plant::UnguardedNonce)).then(|| OnceGuard {
                    key: nonce_key(frame.nonce()),
                    fingerprint: fingerprint(frame.from(), frame.to(), frame.intent()),
                    lifetime_us: NONCE_LIFETIME_US,
                }),
                ties: Ties {
                    sender: Some(frame.from().to_owned()),
                    ..Ties::default()
                },
                unless: None,
            },
            hold: (!is_elsewhere).then(|| self.relay_hold(ingress)),
            within: None,
            walk,
            detail: Some(details::received(ingress)),
        }
    }

    pub(super) fn relay_hold(&self, ingress: &Ingress) -> Hold {
        let timeout_us = i64::try_from(self.result_timeout_ms(ingress)).unwrap_or(i64::MAX / 2_000);
        Hold {
            holder: self.holder(),
            lease_us: timeout_us
                .saturating_mul(1_000)
                .saturating_add(LEASE_MARGIN_US),
        }
    }

    /// A nonce that was sent before.
    async fn repeat_intent(
        &self,
        id: IntentId,
        frame: &IntentFrame,
        ingress: &Ingress,
        checked: &Checked,
        is_elsewhere: bool,
    ) -> Result<Begun, RelayError> {
        let nonce = frame.nonce();
        let spent = || {
            RelayError::BadRequest(format!(
                "Nonce {nonce} was already used and its result is no longer kept"
            ))
        };
        let Some(row) = self.engine().observe(id).await? else {
            return Err(spent());
        };
        let code = error_code(&row);
        let earlier = EarlierIntent {
            // An earlier agent with the id of the sender may have sent it.
            same_intent: !self.is_before(&row, checked.sender_since_us),
            state: row.state,
            age_ms: (self.engine().now().0 - row.claimed_at.unwrap_or(row.created_at).0) / 1_000,
            error_code: code.as_deref(),
            has_result: row.result.is_some(),
        };
        match claim_nonce(Some(&earlier)) {
            NonceClaim::Repeat => {
                let result = row.result.map(|result| result.body);
                result.map(Begun::Known).ok_or_else(spent)
            }
            NonceClaim::Spent => Err(spent()),
            NonceClaim::Conflict => Err(used_otherwise(nonce)),
            NonceClaim::InProgress | NonceClaim::Accept => {
                Err(RelayError::InProgress(nonce.to_owned()))
            }
            NonceClaim::Restart => {
                self.restart(&row, frame, ingress, checked, is_elsewhere)
                    .await
            }
        }
    }

    /// Queues the intent again and takes it at once, in one commit.
    async fn restart(
        &self,
        row: &Intent,
        frame: &IntentFrame,
        ingress: &Ingress,
        checked: &Checked,
        is_elsewhere: bool,
    ) -> Result<Begun, RelayError> {
        let previous = lifecycle::state_word(row.state);
        let mut retry = Advance::by_system(row.id, Face::Beam, Verb::Retry);
        // Another request with this nonce may have restarted and delivered it meanwhile.
        retry.from = Some(row.state);
        retry.actor = Some(frame.from().to_owned());
        retry.detail = Some(details::restarted(
            previous,
            error_code(row).as_deref(),
            frame,
        ));
        let mut unit = UnitOfWork::default();
        unit.require(Command::Advance(Box::new(retry)));
        if is_elsewhere {
            self.put_handover(&mut unit, row.id, frame, checked);
            let committed = self.engine().commit(unit).await;
            return in_progress_if_refused(committed, frame).map(|_| Begun::HandedOver(row.id));
        }
        let taken = unit.take(Take {
            id: row.id,
            face: Face::Beam,
            hold: self.relay_hold(ingress),
            detail: Some(details::dispatched(ingress)),
        });
        let committed = self.engine().commit(unit).await;
        let mut committed = in_progress_if_refused(committed, frame)?;
        let row: Vec<Intent> = committed.get(taken)?;
        let row = row
            .into_iter()
            .next()
            .ok_or_else(|| RelayError::InProgress(frame.nonce().to_owned()))?;
        if self.goes_by_socket(checked) {
            let detail = details::by_socket(self.result_timeout_ms(ingress));
            self.note_route(&row, ingress, detail).await?;
        }
        Ok(Begun::Dispatched(Box::new(row)))
    }

    /// Records a further route of a row that this node holds.
    pub(super) async fn note_route(
        &self,
        row: &Intent,
        ingress: &Ingress,
        detail: String,
    ) -> Result<(), RelayError> {
        let hold = self.relay_hold(ingress);
        let extend = Extend {
            detail: Some(detail),
            ..Lease::of(row).extend(hold.lease_us)
        };
        let extended = self.engine().extend(extend).await;
        extended.map_err(|error| self.or_timeout(row, error))?;
        Ok(())
    }
}

fn used_otherwise(nonce: &str) -> RelayError {
    RelayError::BadRequest(format!(
        "Nonce {nonce} was already used for a different intent"
    ))
}

/// Another request with the same nonce was faster.
fn in_progress_if_refused<T>(
    committed: Result<T, Error>,
    frame: &IntentFrame,
) -> Result<T, RelayError> {
    match committed {
        Err(Error::Refused(Refusal::IllegalState | Refusal::Held)) => {
            Err(RelayError::InProgress(frame.nonce().to_owned()))
        }
        other => Ok(other?),
    }
}

/// The once-key of a nonce in this directory.
pub(crate) fn nonce_key(nonce: &str) -> OnceKey {
    OnceKey {
        scope: Scope::BeamNonce,
        owner: String::new(),
        key: nonce.to_owned(),
    }
}

/// Two intents with one nonce are the same if they agree on sender, recipient and type. The payload is not compared.
pub(crate) fn fingerprint(from: &str, to: &str, intent: &str) -> [u8; 32] {
    let mut hasher = Sha256::new();
    if plant::on(Plant::NonceOfAnyIntent) {
        return hasher.finalize().into();
    }
    for part in [from, to, intent] {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}
