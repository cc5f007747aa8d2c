//! What an agent changes about itself: its last sign of life, its profile, its visibility and its configuration.

use consign_kernel::error::Code;

use super::proof::{AgentProof, NonceSignature};
use super::records::Agent;
use super::registration::{
    DESCRIPTION_BYTES_MAX, check_dh_key, check_endpoint, is_web_address, long_description,
};
use crate::problem::BeamProblem;
use crate::service::Beam;
use crate::signed_text::{BeamSignedText, SignedProfile};

/// What an update does with a field.
#[derive(Clone, Debug, Default)]
pub(crate) enum FieldUpdate {
    #[default]
    Keep,
    Clear,
    Set(String),
}

/// New values of a profile. The signature covers a field that is kept or cleared as null.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProfileUpdate {
    pub(crate) description: FieldUpdate,
    pub(crate) logo_url: FieldUpdate,
    pub(crate) website: FieldUpdate,
}

/// New values of the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigUpdate {
    pub(crate) http_endpoint: FieldUpdate,
    pub(crate) dh_public_key: FieldUpdate,
}

impl Beam {
    /// The agent was here.
    pub(crate) async fn heartbeat(
        &self,
        beam_id: &str,
        signature: Option<&NonceSignature>,
    ) -> Result<Agent, BeamProblem> {
        let changed = self.change_agent(beam_id, |agent, commit| {
            let text = |at: &str, nonce: &str| BeamSignedText::heartbeat(beam_id, at, nonce);
            let used = signature
                .and_then(|signature| signature.check(agent, self.engine().wall(), text))
                .ok_or_else(BeamProblem::unauthorized)?;
            commit.use_up(used, Code::Unauthorized);
            agent.last_seen = self.now_ms();
            Ok(())
        });
        Ok(changed.await?.0)
    }

    pub(crate) async fn update_profile(
        &self,
        beam_id: &str,
        update: &ProfileUpdate,
        signature: Option<&NonceSignature>,
    ) -> Result<Agent, BeamProblem> {
        update.check()?;
        let changed = self.change_agent(beam_id, |agent, commit| {
            let profile = SignedProfile {
                description: update.description.text(),
                logo_url: update.logo_url.text(),
                website: update.website.text(),
            };
            let text = |at: &str, nonce: &str| {
                BeamSignedText::profile_update(beam_id, &profile, at, nonce)
            };
            let used = signature
                .and_then(|signature| signature.check(agent, self.engine().wall(), text))
                .ok_or_else(|| BeamProblem::new(Code::Unauthorized, "Invalid signature"))?;
            commit.use_up(used, Code::Unauthorized);
            update.description.apply(&mut agent.description);
            update.logo_url.apply(&mut agent.logo_url);
            update.website.apply(&mut agent.website);
            Ok(())
        });
        Ok(changed.await?.0)
    }

    /// `visibility` is [`PUBLIC`](super::records::PUBLIC) or [`UNLISTED`](super::records::UNLISTED).
    pub(crate) async fn set_visibility(
        &self,
        beam_id: &str,
        visibility: &'static str,
        proof: &AgentProof,
    ) -> Result<Agent, BeamProblem> {
        let changed = self.change_agent(beam_id, |agent, commit| {
            let text = |at: &str| BeamSignedText::visibility(beam_id, visibility, at);
            let proven = proof
                .check(agent, self.engine().wall(), text)
                .ok_or_else(BeamProblem::unauthorized)?;
            commit.use_up_proof(proven, Code::Unauthorized);
            visibility.clone_into(&mut agent.visibility);
            Ok(())
        });
        Ok(changed.await?.0)
    }

    /// The signature does not cover the new values, so that it must not be used for others: it counts once.
    pub(crate) async fn set_config(
        &self,
        beam_id: &str,
        update: &ConfigUpdate,
        proof: &AgentProof,
    ) -> Result<Agent, BeamProblem> {
        let changed = self.change_agent(beam_id, |agent, commit| {
            let text = |at: &str| BeamSignedText::config(beam_id, at);
            let proven = proof
                .check(agent, self.engine().wall(), text)
                .ok_or_else(BeamProblem::unauthorized)?;
            commit.use_up_proof(proven, Code::Unauthorized);
            if let Some(endpoint) = update.http_endpoint.text() {
                check_endpoint(self.inner.outbound.guard(), endpoint)?;
            }
            if let Some(key) = update.dh_public_key.text() {
                check_dh_key(key)?;
            }
            update.http_endpoint.apply(&mut agent.http_endpoint);
            update.dh_public_key.apply(&mut agent.dh_public_key);
            Ok(())
        });
        Ok(changed.await?.0)
    }
}

impl ProfileUpdate {
    fn check(&self) -> Result<(), BeamProblem> {
        if let Some(text) = self.description.text()
            && text.len() > DESCRIPTION_BYTES_MAX
        {
            return Err(long_description());
        }
        for (field, value, code) in [
            ("logo_url", &self.logo_url, Code::InvalidLogoUrl),
            ("website", &self.website, Code::InvalidParam),
        ] {
            if value.text().is_some_and(|url| !is_web_address(url)) {
                let text = format!("{field} must be a valid absolute URL");
                return Err(BeamProblem::new(code, text));
            }
        }
        Ok(())
    }
}

impl ConfigUpdate {
    pub(crate) fn is_empty(&self) -> bool {
        let fields = [&self.http_endpoint, &self.dh_public_key];
        fields
            .into_iter()
            .all(|field| matches!(field, FieldUpdate::Keep))
    }
}

impl FieldUpdate {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Set(text) => Some(text),
            Self::Keep | Self::Clear => None,
        }
    }

    fn apply(&self, field: &mut Option<String>) {
        match self {
            Self::Keep => {}
            Self::Clear => *field = None,
            Self::Set(text) => *field = Some(text.clone()),
        }
    }
}
