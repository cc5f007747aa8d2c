//! The end of an agent: its record, its keys, its access rules and its delegations are deleted. Its intents stay, because the
//! history of the ledger is append-only.

use consign_engine::{Error, TRIES_MAX, UnitOfWork, Versioned};
use consign_kernel::error::Refusal;
use consign_kernel::record::Kind;

use super::agent_keys::revoked_record;
use super::proof::AgentProof;
use super::records::{AclList, Agent, BeamPresence, DelegationList, PAGE};
use crate::problem::BeamProblem;
use crate::service::Beam;

impl Beam {
    pub(crate) async fn delete_agent(
        &self,
        beam_id: &str,
        proof: &AgentProof,
    ) -> Result<(), BeamProblem> {
        let check = |agent: &Agent| {
            let is_proven = proof.is_admin || proof.has_api_key_of(agent);
            is_proven
                .then_some(())
                .ok_or_else(BeamProblem::unauthorized)
        };
        let found = self.agent(beam_id).await?;
        check(&found.ok_or_else(|| BeamProblem::no_agent(beam_id))?)?;
        // A later agent with the same id must not inherit them. Those that are granted meanwhile are found by the second pass.
        self.revoke_grantee(beam_id).await?;
        for _ in 0..TRIES_MAX {
            let agent = self.engine().load::<Agent>(Agent::key(beam_id)).await?;
            let agent = agent.ok_or_else(|| BeamProblem::no_agent(beam_id))?;
            check(&agent.value)?;
            let rules = AclList::key(beam_id);
            let rules = self.engine().load_or_default::<AclList>(rules).await?;
            let granted = DelegationList::key(beam_id);
            let granted = self
                .engine()
                .load_or_default::<DelegationList>(granted)
                .await?;
            let mut unit = UnitOfWork::default();
            delete_unchanged(&mut unit, &agent);
            delete_unchanged(&mut unit, &rules);
            delete_unchanged(&mut unit, &granted);
            unit.delete(BeamPresence::key(beam_id));
            for rule in &rules.value.rules {
                unit.delete(AclList::number_key(rule.id));
            }
            for key in agent.value.keys.iter().filter_map(revoked_record) {
                unit.delete(key);
            }
            let change = self.inner.agent_index.change(beam_id);
            match self.engine().commit(unit).await {
                Ok(_) => {
                    change.end();
                    self.inner.sockets.remove_agent(beam_id);
                    return self.revoke_grantee(beam_id).await;
                }
                Err(Error::Refused(Refusal::VersionMismatch)) => change.end(),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Refused(Refusal::VersionMismatch).into())
    }

    /// Revokes the delegations that others have granted to this agent. They are kept until their end, so that their signed
    /// requests cannot grant them to a later agent with the same id.
    async fn revoke_grantee(&self, beam_id: &str) -> Result<(), BeamProblem> {
        let mut after = String::new();
        loop {
            let page = self
                .engine()
                .records(Kind::BeamDelegations, "", &after, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                after.clone_from(&record.key.name);
                let key = record.key.clone();
                let list = Versioned::<DelegationList>::read(record)?.value;
                let is_granted = (list.granted.iter()).any(|granted| granted.grantee == beam_id);
                if is_granted {
                    let now_ms = self.now_ms();
                    self.engine()
                        .update(key, |list: &mut DelegationList| -> Result<(), Error> {
                            let granted = list.granted.iter_mut();
                            for granted in granted.filter(|granted| granted.grantee == beam_id) {
                                granted.revoked_at.get_or_insert(now_ms);
                            }
                            Ok(())
                        })
                        .await?;
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

/// Deletes a record if it has the version that was read.
fn delete_unchanged<T>(unit: &mut UnitOfWork, record: &Versioned<T>) {
    unit.expect_unchanged(record);
    unit.delete(record.key.clone());
}
