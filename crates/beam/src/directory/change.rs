//! Changes of one agent: load, change, and commit on the version that was read.

use consign_engine::{Error, TRIES_MAX, UnitOfWork};
use consign_kernel::error::{Code, Refusal};

use super::proof::{Proven, REMEMBERED_US, UsedSignature, replayed};
use super::records::Agent;
use crate::problem::BeamProblem;
use crate::service::Beam;

/// What is committed together with the changed agent.
#[derive(Debug, Default)]
pub(super) struct AgentCommit {
    pub(super) unit: UnitOfWork,
    /// The signature that the request uses up, and the code of the refusal if it was used before.
    used: Option<(UsedSignature, Code)>,
}

impl AgentCommit {
    /// The request uses up the signature; a repetition is refused with this code.
    pub(super) fn use_up(&mut self, used: UsedSignature, code: Code) {
        self.used = Some((used, code));
    }

    /// The same for a proof, which may be a credential.
    pub(super) fn use_up_proof(&mut self, proven: Proven, code: Code) {
        if let Proven::Signature(used) = proven {
            self.use_up(used, code);
        }
    }
}

impl Beam {
    /// Changes an agent. `change` checks the proof of the request, and is repeated after a concurrent change, so that the proof
    /// holds for the version that is replaced.
    pub(super) async fn change_agent<R: Send>(
        &self,
        beam_id: &str,
        mut change: impl FnMut(&mut Agent, &mut AgentCommit) -> Result<R, BeamProblem> + Send,
    ) -> Result<(Agent, R), BeamProblem> {
        for _ in 0..TRIES_MAX {
            let found = self.engine().load::<Agent>(Agent::key(beam_id)).await?;
            let mut record = found.ok_or_else(|| BeamProblem::no_agent(beam_id))?;
            let mut commit = AgentCommit::default();
            let result = change(&mut record.value, &mut commit)?;
            commit.unit.replace(&record);
            if self.commit_agent(beam_id, commit).await? {
                return Ok((record.value, result));
            }
        }
        Err(Error::Refused(Refusal::VersionMismatch).into())
    }

    /// False if one of the records was changed meanwhile.
    pub(super) async fn commit_agent(
        &self,
        beam_id: &str,
        commit: AgentCommit,
    ) -> Result<bool, BeamProblem> {
        let AgentCommit { mut unit, used } = commit;
        if let Some((UsedSignature(key), code)) = used {
            if self.engine().record(key.clone()).await?.is_some() {
                return Err(replayed(code));
            }
            unit.expect(key.clone(), 0);
            let until = self.engine().now().plus(REMEMBERED_US);
            unit.put_until(key, &true, until);
        }
        let change = self.inner.agent_index.change(beam_id);
        let is_stored = match self.engine().commit(unit).await {
            Ok(_) => true,
            Err(Error::Refused(Refusal::VersionMismatch)) => false,
            Err(error) => return Err(error.into()),
        };
        change.end();
        Ok(is_stored)
    }
}
