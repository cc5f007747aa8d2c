//! The keys of agents: rotation, revocation, and the list of revoked keys.
//!
//! Invariant: an agent has at most one current key after a rotation, and a revoked key never becomes current again.

use consign_engine::UnitOfWork;
use consign_kernel::error::Code;
use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};

use super::proof::{AgentProof, Proven, active_public_key};
use super::records::{Agent, AgentKey, named};
use super::registration::parse_key;
use crate::problem::BeamProblem;
use crate::service::Beam;
use crate::signed_text::BeamSignedText;

/// The keys of one agent, revoked ones included.
pub(crate) const KEYS_MAX: usize = 256;
/// The longest list of revoked keys.
const REVOKED_LIST_MAX: u32 = 500;

/// A new key for an agent.
#[derive(Debug)]
pub(crate) struct KeyRotation {
    /// As it was sent, which the signature covers.
    pub(crate) new_public_key: String,
    /// A signature of the new key alone. It names no agent, action or time, so it counts only where anyone may act for agents.
    pub(crate) rotation_proof: Option<String>,
    /// The request comes from there.
    pub(crate) is_local: bool,
    pub(crate) proof: AgentProof,
}

#[derive(Debug)]
pub(crate) struct KeyRevocation {
    /// As it was sent, which the signature covers.
    pub(crate) public_key: String,
    pub(crate) proof: AgentProof,
}

/// A revoked key in the list of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RevokedAgentKey {
    pub(crate) beam_id: String,
    pub(crate) key: AgentKey,
}

impl Beam {
    /// Returns the agent and its previous key.
    pub(crate) async fn rotate_key(
        &self,
        beam_id: &str,
        rotation: &KeyRotation,
    ) -> Result<(Agent, Option<String>), BeamProblem> {
        let public_key = parse_key(&rotation.new_public_key)?.to_string();
        let check = |agent: &Agent| self.check_rotation(agent, rotation, &public_key);
        // A request without a proof must not cost the commit of a number.
        let agent = self.engine().load::<Agent>(Agent::key(beam_id)).await?;
        check(&agent.ok_or_else(|| BeamProblem::no_agent(beam_id))?.value)?;
        let id = self.next_number("keys").await?;
        self.change_agent(beam_id, |agent, commit| {
            if let Some(proven) = check(agent)? {
                commit.use_up_proof(proven, Code::InvalidRotationProof);
            }
            let previous = agent.active_key().map(|key| key.public_key.clone());
            let key = AgentKey {
                id,
                public_key: public_key.clone(),
                created_at: self.now_ms(),
                revoked_at: None,
            };
            replace_key(agent, key, &mut commit.unit)?;
            Ok(previous)
        })
        .await
    }

    /// Whether the agent may have this key next, and by which proof; by none if its rotation proof counts.
    fn check_rotation(
        &self,
        agent: &Agent,
        rotation: &KeyRotation,
        public_key: &str,
    ) -> Result<Option<Proven>, BeamProblem> {
        let active = agent.active_key();
        if active.is_some_and(|active| active.public_key == public_key) {
            let text = "new_public_key must differ from the current key";
            return Err(BeamProblem::new(Code::NoopRotation, text));
        }
        let sent = rotation.new_public_key.as_str();
        let text = |timestamp: &str| BeamSignedText::keys_rotate(&agent.beam_id, sent, timestamp);
        let proven = rotation.proof.check(agent, self.engine().wall(), text);
        if proven.is_none() && !rotation.is_proven_by_current_key(agent) {
            return Err(rotation.unproven());
        }
        if agent.is_revoked(public_key) {
            return Err(revoked_before());
        }
        Ok(proven)
    }

    /// Revokes a key that is not the current one. Returns the agent and the key.
    pub(crate) async fn revoke_key(
        &self,
        beam_id: &str,
        revocation: &KeyRevocation,
    ) -> Result<(Agent, String), BeamProblem> {
        let sent = revocation.public_key.as_str();
        let public_key = parse_key(sent)?.to_string();
        self.change_agent(beam_id, |agent, commit| {
            let text = |timestamp: &str| BeamSignedText::keys_revoke(beam_id, sent, timestamp);
            let proven = revocation
                .proof
                .check(agent, self.engine().wall(), text)
                .ok_or_else(|| BeamProblem::new(Code::CallbackSignature, "signature is invalid"))?;
            commit.use_up_proof(proven, Code::CallbackSignature);
            if agent.is_revoked(&public_key) {
                return Err(revoked_before());
            }
            let is_active = agent
                .active_key()
                .is_some_and(|key| key.public_key == public_key);
            if is_active {
                let text = "The current key cannot be revoked; rotate it instead";
                return Err(BeamProblem::new(Code::ActiveKeyRequired, text));
            }
            let mut keys = agent.keys.iter_mut();
            let Some(key) = keys.find(|key| key.public_key == public_key) else {
                let text = "The agent has no such key";
                return Err(BeamProblem::new(Code::KeyNotFound, text));
            };
            key.revoked_at = Some(self.now_ms());
            list_as_revoked(beam_id, key, &mut commit.unit);
            Ok(public_key.clone())
        })
        .await
    }

    /// The keys that were revoked last, newest first.
    pub(crate) async fn revoked_keys(&self) -> Result<Vec<RevokedAgentKey>, BeamProblem> {
        let records = self
            .engine()
            .last_records(Kind::BeamRevokedKey, "", "", REVOKED_LIST_MAX)
            .await?;
        let keys = records.into_iter().map(consign_engine::Versioned::read);
        let keys: Result<Vec<_>, _> = keys.map(|key| key.map(|key| key.value)).collect();
        Ok(keys?)
    }
}

impl KeyRotation {
    fn is_proven_by_current_key(&self, agent: &Agent) -> bool {
        let Some(proof) = self.rotation_proof.as_ref().filter(|_| self.is_local) else {
            return false;
        };
        active_public_key(agent)
            .is_some_and(|key| key.verify(self.new_public_key.as_bytes(), proof))
    }

    fn unproven(&self) -> BeamProblem {
        let text = match self.rotation_proof {
            Some(_) if !self.is_local => {
                "rotation_proof counts only from programs on the same machine; send the API key of the agent, \
                 or signature and timestamp: the current key signs action keys.rotate, beamId, newPublicKey and timestamp"
            }
            _ => "rotation_proof is invalid",
        };
        BeamProblem::new(Code::InvalidRotationProof, text)
    }
}

pub(super) fn revoked_before() -> BeamProblem {
    let text = "This key was revoked and cannot be used again";
    BeamProblem::new(Code::KeyAlreadyRevoked, text)
}

/// Makes a key the current one, and revokes those that were. The same key stays as it is.
pub(super) fn replace_key(
    agent: &mut Agent,
    key: AgentKey,
    unit: &mut UnitOfWork,
) -> Result<(), BeamProblem> {
    let active = agent.active_key();
    if active.is_some_and(|active| active.public_key == key.public_key) {
        return Ok(());
    }
    // A key that another one superseded without being revoked becomes current again under its own number.
    let known = (agent.keys.iter())
        .position(|known| known.revoked_at.is_none() && known.public_key == key.public_key);
    let now_ms = key.created_at;
    let key = match known {
        Some(at) => agent.keys.remove(at),
        None => key,
    };
    if agent.keys.len() >= KEYS_MAX {
        let text = format!("An agent has at most {KEYS_MAX} keys");
        return Err(BeamProblem::new(Code::InvalidRotation, text));
    }
    let beam_id = agent.beam_id.clone();
    for old in agent.keys.iter_mut().filter(|old| old.revoked_at.is_none()) {
        old.revoked_at = Some(now_ms);
        list_as_revoked(&beam_id, old, unit);
    }
    agent.keys.insert(0, key);
    Ok(())
}

fn list_as_revoked(beam_id: &str, key: &AgentKey, unit: &mut UnitOfWork) {
    if let Some(record) = revoked_record(key) {
        let entry = RevokedAgentKey {
            beam_id: beam_id.to_owned(),
            key: key.clone(),
        };
        unit.put(record, &entry);
    }
}

/// The entry of a revoked key in the list of all, which is in the order of revocation.
pub(crate) fn revoked_record(key: &AgentKey) -> Option<Key> {
    let at = key.revoked_at?;
    let name = format!("{at:020}-{:020}", key.id);
    Some(named(Kind::BeamRevokedKey, &name))
}
