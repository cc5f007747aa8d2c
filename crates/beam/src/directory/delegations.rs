//! Delegations: what an agent allows others to send in its name.
//!
//! Invariant: a revoked delegation is kept until its end, so that its signed request cannot grant it again.

use consign_engine::{Error, TRIES_MAX, UnitOfWork};
use consign_kernel::error::{Code, Refusal};

use super::proof::is_signed;
use super::records::{Agent, Delegation, DelegationList};
use crate::beam_id::BeamId;
use crate::problem::BeamProblem;
use crate::service::Beam;
use crate::signed_text::BeamSignedText;

/// The delegations of one agent that have not ended, revoked ones included.
pub(crate) const DELEGATIONS_MAX: usize = 1_000;
pub(crate) const SCOPE_CHARS_MAX: usize = 256;

/// A signed request to grant a delegation.
#[derive(Clone, Debug)]
pub(crate) struct DelegationRequest {
    pub(crate) grantee: String,
    pub(crate) scope: String,
    /// Milliseconds since 1970, as it was sent.
    pub(crate) expires_at: f64,
    pub(crate) signature: String,
}

impl Beam {
    pub(crate) async fn delegate(
        &self,
        grantor: &str,
        request: &DelegationRequest,
    ) -> Result<Delegation, BeamProblem> {
        let invalid = |text: String| BeamProblem::new(Code::InvalidDelegation, text);
        let grantee = request.grantee.as_str();
        let expires_at = whole_ms(request.expires_at);
        if BeamId::parse(grantee).is_err() || request.scope.chars().count() > SCOPE_CHARS_MAX {
            let text = "grantee_beam_id, scope, expires_at and signature are required";
            return Err(invalid(text.to_owned()));
        }
        if expires_at <= self.now_ms() {
            return Err(invalid("expires_at must be in the future".to_owned()));
        }
        let mut number = None;
        for _ in 0..TRIES_MAX {
            let from = self.registered_agent(grantor).await?;
            let to = self.registered_agent(grantee).await?;
            let text =
                BeamSignedText::delegation(grantor, grantee, &request.scope, request.expires_at);
            if !is_signed(&from.value, &text, &request.signature) {
                return Err(invalid_signature());
            }
            let key = DelegationList::key(grantor);
            let mut list = self.engine().load_or_default::<DelegationList>(key).await?;
            let now_ms = self.now_ms();
            list.value
                .granted
                .retain(|granted| granted.expires_at > now_ms);
            let granted = &list.value.granted;
            let same = granted.iter().find(|granted| {
                granted.grantee == grantee
                    && granted.scope == request.scope
                    && granted.expires_at == expires_at
            });
            match same {
                Some(same) if same.revoked_at.is_some() => {
                    let text = "This delegation was revoked; sign one with another end";
                    return Err(invalid(text.to_owned()));
                }
                Some(same) => return Ok(same.clone()),
                None if granted.len() >= DELEGATIONS_MAX => {
                    let text = format!("An agent has at most {DELEGATIONS_MAX} delegations");
                    return Err(invalid(text));
                }
                None => {}
            }
            let id = match number {
                Some(id) => id,
                None => self.next_number("delegations").await?,
            };
            number = Some(id);
            let delegation = Delegation {
                id,
                grantee: grantee.to_owned(),
                scope: request.scope.clone(),
                expires_at,
                created_at: now_ms,
                signature: request.signature.clone(),
                revoked_at: None,
            };
            list.value.granted.push(delegation.clone());
            let mut unit = UnitOfWork::default();
            unit.expect_unchanged(&from);
            unit.expect_unchanged(&to);
            unit.replace(&list);
            match self.engine().commit(unit).await {
                Ok(_) => return Ok(delegation),
                Err(Error::Refused(Refusal::VersionMismatch)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Refused(Refusal::VersionMismatch).into())
    }

    /// The delegations of an agent that are in force, oldest first.
    pub(crate) async fn delegations_of(
        &self,
        grantor: &str,
    ) -> Result<Vec<Delegation>, BeamProblem> {
        self.registered_agent(grantor).await?;
        let key = DelegationList::key(grantor);
        let list = self.engine().load_or_default::<DelegationList>(key).await?;
        let now_ms = self.now_ms();
        let mut granted = list.value.granted;
        granted.retain(|granted| granted.revoked_at.is_none() && granted.expires_at > now_ms);
        Ok(granted)
    }

    pub(crate) async fn revoke_delegation(
        &self,
        grantor: &str,
        id: u64,
        signature: &str,
    ) -> Result<(), BeamProblem> {
        let agent = self.registered_agent(grantor).await?.value;
        let number = i64::try_from(id).unwrap_or(i64::MAX);
        let text = BeamSignedText::delegation_revoke(grantor, number);
        if !is_signed(&agent, &text, signature) {
            return Err(invalid_signature());
        }
        let now_ms = self.now_ms();
        self.engine()
            .update(DelegationList::key(grantor), |list: &mut DelegationList| {
                let mut granted = list.granted.iter_mut();
                let found =
                    granted.find(|granted| granted.id == id && granted.revoked_at.is_none());
                let found = found
                    .ok_or_else(|| BeamProblem::new(Code::NotFound, "Delegation not found"))?;
                found.revoked_at = Some(now_ms);
                Ok(())
            })
            .await
    }

    async fn registered_agent(
        &self,
        beam_id: &str,
    ) -> Result<consign_engine::Versioned<Agent>, BeamProblem> {
        let found = self.engine().load(Agent::key(beam_id)).await?;
        found.ok_or_else(|| BeamProblem::no_agent(beam_id))
    }
}

fn invalid_signature() -> BeamProblem {
    BeamProblem::new(Code::CallbackSignature, "signature is invalid")
}

#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
fn whole_ms(number: f64) -> i64 {
    number as i64
}
