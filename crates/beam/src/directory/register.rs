//! Registration: a new agent, or a new description of a known one. It issues an API key.
//!
//! Invariant: the key of a known agent changes only with a proof, and without one its API key is replaced only for programs on
//! this machine.

use consign_engine::{Error, TRIES_MAX, Versioned};
use consign_kernel::error::{Code, Refusal};
use consign_kernel::plant::{self, Plant};
use consign_web::secret_text::SecretText;

use super::agent_keys::{replace_key, revoked_before};
use super::change::AgentCommit;
use super::proof::AgentProof;
use super::records::{Agent, AgentKey, UNLISTED};
use super::registration::{Registration, RequestedName};
use crate::acl;
use crate::api_key::{self, SECRET_BYTES};
use crate::beam_id::{self, BeamId};
use crate::problem::BeamProblem;
use crate::service::Beam;
use crate::signed_text::BeamSignedText;
use crate::trust::VerificationTier;

/// How many ids are tried for a name before one with the time in it is used.
const CANDIDATES_MAX: usize = 999;

/// A registered agent with its new API key, which is shown once.
#[derive(Debug)]
pub(crate) struct RegisteredAgent {
    pub(crate) agent: Agent,
    pub(crate) api_key: SecretText,
}

/// From where a registration comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegistrationOrigin {
    /// It may register a known agent with the same key without a proof.
    pub(crate) is_local: bool,
    /// It comes from another machine, and not from an operator. A full directory takes no new agent from there.
    pub(crate) is_stranger: bool,
}

impl Beam {
    pub(crate) async fn register(
        &self,
        registration: &Registration,
        proof: &AgentProof,
        from: RegistrationOrigin,
    ) -> Result<RegisteredAgent, BeamProblem> {
        let mut key_id = None;
        for _ in 0..TRIES_MAX {
            let id = self.registered_id(&registration.name).await?;
            let api_key = api_key::issue(id.as_str(), &self.drawn_secret());
            let record = self
                .engine()
                .load_or_default::<Option<Agent>>(Agent::key(id.as_str()))
                .await?;
            let mut commit = AgentCommit::default();
            let mut agent = match &record.value {
                None => {
                    if from.is_stranger {
                        self.check_is_not_full().await?;
                    }
                    self.new_agent(&id)
                }
                Some(known) => {
                    self.check_known(known, registration, proof, from.is_local, &mut commit)?;
                    known.clone()
                }
            };
            self.describe(&mut agent, registration);
            agent.api_key_hash = Some(api_key::digest(api_key.reveal()));
            let public_key = registration.public_key.to_string();
            if (agent.active_key()).is_none_or(|active| active.public_key != public_key) {
                // Drawn after the checks: a refused request must not cost a commit.
                let id = match key_id {
                    Some(id) => id,
                    None => self.next_number("keys").await?,
                };
                key_id = Some(id);
                let key = AgentKey {
                    id,
                    public_key,
                    created_at: self.now_ms(),
                    revoked_at: None,
                };
                replace_key(&mut agent, key, &mut commit.unit)?;
            }
            let Versioned { key, version, .. } = record;
            let stored = Versioned {
                version,
                ..Versioned::new(key, agent)
            };
            commit.unit.replace(&stored);
            if self.commit_agent(id.as_str(), commit).await? {
                let agent = stored.value;
                self.inner.sockets.close_outdated(&agent);
                self.seed_demo_rules_of(&id).await;
                return Ok(RegisteredAgent { agent, api_key });
            }
        }
        Err(Error::Refused(Refusal::VersionMismatch).into())
    }

    /// Whether strangers may register further agents. Counts of many agents are a few seconds old.
    async fn check_is_not_full(&self) -> Result<(), BeamProblem> {
        let most = self.settings().agents_max;
        if most == 0 || self.agent_counts().await?.total < most {
            return Ok(());
        }
        let text = format!(
            "The directory is full: it has {most} agents (BEAM_AGENTS_MAX); further ones are registered on its machine, or with the session of an operator"
        );
        Err(BeamProblem::new(Code::Forbidden, text))
    }

    /// Whether a known agent may be registered again, and with this key.
    fn check_known(
        &self,
        known: &Agent,
        registration: &Registration,
        proof: &AgentProof,
        is_local: bool,
        commit: &mut AgentCommit,
    ) -> Result<(), BeamProblem> {
        let key = registration.public_key.to_string();
        if known.is_revoked(&key) {
            return Err(revoked_before());
        }
        let is_same_key = known
            .active_key()
            .is_some_and(|active| active.public_key == key);
        let sent = registration.public_key_text.as_str();
        let text = |timestamp: &str| BeamSignedText::keys_rotate(&known.beam_id, sent, timestamp);
        let proven = proof.check(known, self.engine().wall(), text);
        match proven {
            Some(proven) => {
                commit.use_up_proof(proven, Code::Unauthorized);
                Ok(())
            }
            None if is_same_key && is_local => Ok(()),
            None if plant::on(Plant::AgentTakeover) => Ok(()),
            None if is_same_key => Err(BeamProblem::new(
                Code::Unauthorized,
                format!(
                    "Agent {} is registered; its API key or a signature of its key is required",
                    known.beam_id
                ),
            )),
            None => Err(BeamProblem::new(
                Code::KeyRotationRequired,
                format!(
                    "Agent {} has another key; rotate it, or present the API key or a signature of the current key",
                    known.beam_id
                ),
            )),
        }
    }

    /// The id that a registration is about.
    async fn registered_id(&self, name: &RequestedName) -> Result<BeamId, BeamProblem> {
        let (agent, org) = match name {
            RequestedName::Exactly(id) => return Ok(id.clone()),
            RequestedName::Like { agent, org } => (agent, org),
        };
        let unusable = |_| BeamProblem::new(Code::InvalidBeamId, "Invalid beamId format");
        for id in beam_id::candidates(agent, org)
            .map_err(unusable)?
            .take(CANDIDATES_MAX)
        {
            if self.agent(id.as_str()).await?.is_none() {
                return Ok(id);
            }
        }
        BeamId::new(&format!("{agent}-{}", self.now_ms()), org).map_err(unusable)
    }

    fn new_agent(&self, id: &BeamId) -> Agent {
        Agent {
            beam_id: id.to_string(),
            verification_tier: VerificationTier::Basic.word().to_owned(),
            visibility: UNLISTED.to_owned(),
            created_at: self.now_ms(),
            since_us: self.engine().now().0,
            ..Agent::default()
        }
    }

    /// Takes over what the registration says; what it leaves out stays.
    fn describe(&self, agent: &mut Agent, registration: &Registration) {
        agent.display_name.clone_from(&registration.display_name);
        agent.capabilities.clone_from(&registration.capabilities);
        agent.last_seen = self.now_ms();
        if registration.email.is_some() && registration.email != agent.email {
            agent.email.clone_from(&registration.email);
            agent.email_verified = false;
        }
        let visibility = registration.visibility.map(str::to_owned);
        agent.visibility = visibility.unwrap_or_else(|| agent.visibility.clone());
        for (field, given) in [
            (&mut agent.description, &registration.description),
            (&mut agent.logo_url, &registration.logo_url),
            (&mut agent.http_endpoint, &registration.http_endpoint),
            (&mut agent.dh_public_key, &registration.dh_public_key),
        ] {
            if given.is_some() {
                field.clone_from(given);
            }
        }
    }

    fn drawn_secret(&self) -> [u8; SECRET_BYTES] {
        let mut entropy = self.engine().entropy();
        let mut secret = [0; SECRET_BYTES];
        for chunk in secret.chunks_mut(size_of::<u128>()) {
            let drawn = entropy.draw().to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
        secret
    }

    /// Adds the rules that the catalog gives to the agents of the demo organisation. It is repeated at each registration, so a
    /// failure is only logged.
    pub(super) async fn seed_demo_rules_of(&self, id: &BeamId) {
        for entry in acl::demo_entries(&self.settings().catalog, id) {
            if let Err(error) = self.add_rule(&entry).await {
                tracing::warn!(%error, beam_id = %id, "a rule of the catalog was not added");
            }
        }
    }
}
