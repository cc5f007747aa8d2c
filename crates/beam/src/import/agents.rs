//! Agents with their keys.

use consign_engine::{Error, ForeignAgent, ForeignAgentKey, Versioned, new_put};
use consign_kernel::command::{Answer, Command};
use consign_kernel::error::Refusal;

use super::instants::iso_ms;
use super::{BeamImport, PAGE, bounded, shown};
use crate::beam_id::BeamId;
use crate::directory::agent_keys::{KEYS_MAX, RevokedAgentKey, revoked_record};
use crate::directory::records::{Agent, AgentKey, PUBLIC, UNLISTED};
use crate::keys::BeamPublicKey;

impl<P: FnMut(u64, u64)> BeamImport<'_, P> {
    pub(super) async fn import_agents(&mut self) -> Result<(), Error> {
        let mut cursor = None;
        loop {
            let page = self.file.agents(cursor.as_ref(), PAGE)?;
            self.advance(&page);
            let mut puts = Vec::new();
            for row in page.rows {
                match row {
                    Ok(foreign) => puts.extend(self.agent(foreign).await?),
                    Err(row) => self.report.skip_unreadable("agent", &row),
                }
            }
            self.store_agents(puts).await?;
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// The agent; `None` if it exists or cannot be imported.
    async fn agent(&mut self, foreign: ForeignAgent) -> Result<Option<Agent>, Error> {
        if self
            .engine
            .record(Agent::key(&foreign.beam_id))
            .await?
            .is_some()
        {
            self.report.agents_present += 1;
            return Ok(None);
        }
        let name = shown(&foreign.beam_id).to_owned();
        let mut keys = Vec::new();
        for row in self.file.agent_keys(&foreign.beam_id)? {
            match row {
                Ok(key) => keys.push(key),
                Err(row) => self.report.skip_unreadable("key", &row),
            }
        }
        let mut agent = match agent(foreign, keys) {
            Ok(agent) => agent,
            Err(reason) => {
                self.report.skip(format!("agent {name}: {reason}"));
                return Ok(None);
            }
        };
        if !self.options.dry_run {
            for key in &mut agent.keys {
                let number = i64::try_from(key.id).unwrap_or(0);
                key.id = self.keys.assign(self.engine, number).await?;
            }
        }
        Ok(Some(agent))
    }

    /// Stores agents in one commit.
    async fn store_agents(&mut self, agents: Vec<Agent>) -> Result<(), Error> {
        if self.options.dry_run {
            self.report.agents_taken += agents.len() as u64;
            return Ok(());
        }
        let mut steps = Vec::new();
        for agent in &agents {
            let record = Versioned::new(Agent::key(&agent.beam_id), agent);
            steps.push(Command::Put(record.put()));
        }
        let count = steps.len();
        for agent in &agents {
            steps.extend(revoked_keys(agent));
        }
        if steps.is_empty() {
            return Ok(());
        }
        let answers = self.engine.execute(None, steps).await?;
        for answer in answers.into_iter().take(count) {
            match answer {
                Ok(Answer::Put { .. }) => self.report.agents_taken += 1,
                Ok(_) => return Err(Error::Internal("an import got another answer".to_owned())),
                Err(Refusal::VersionMismatch) => self.report.agents_present += 1,
                Err(refusal) => return Err(Error::Refused(refusal)),
            }
        }
        Ok(())
    }
}

/// The entries of an agent in the list of revoked keys.
fn revoked_keys(agent: &Agent) -> impl Iterator<Item = Command> {
    agent.keys.iter().filter_map(|key| {
        let record = revoked_record(key)?;
        let entry = RevokedAgentKey {
            beam_id: agent.beam_id.clone(),
            key: key.clone(),
        };
        Some(Command::Put(new_put(record, &entry)))
    })
}

fn agent(foreign: ForeignAgent, keys: Vec<ForeignAgentKey>) -> Result<Agent, String> {
    let beam_id = BeamId::parse(&foreign.beam_id)
        .map_err(|_| "it is no Beam-ID".to_owned())?
        .as_str()
        .to_owned();
    bounded(&[
        Some(&foreign.display_name),
        foreign.capabilities.as_deref(),
        foreign.description.as_deref(),
        foreign.logo_url.as_deref(),
        foreign.website.as_deref(),
        foreign.http_endpoint.as_deref(),
    ])?;
    if keys.len() >= KEYS_MAX {
        return Err(format!("it has more than {KEYS_MAX} keys"));
    }
    let capabilities = match &foreign.capabilities {
        None => Vec::new(),
        Some(text) => serde_json::from_str(text)
            .map_err(|_| "its capabilities are no JSON array of texts".to_owned())?,
    };
    let created_at = iso_ms("created_at", &foreign.created_at)?;
    let tier = foreign.verification_tier.as_deref().unwrap_or_default();
    let is_public = foreign.visibility.as_deref() == Some(PUBLIC);
    Ok(Agent {
        since_us: 0,
        beam_id,
        display_name: foreign.display_name,
        capabilities,
        email: foreign.email,
        email_verified: foreign.email_verified,
        description: foreign.description,
        logo_url: foreign.logo_url,
        website: foreign.website,
        verified: foreign.verified,
        verification_tier: match tier {
            "" | "unverified" => "basic".to_owned(),
            tier => tier.to_owned(),
        },
        flagged: foreign.flagged,
        visibility: if is_public { PUBLIC } else { UNLISTED }.to_owned(),
        http_endpoint: foreign.http_endpoint,
        dh_public_key: foreign.dh_public_key,
        created_at,
        last_seen: iso_ms("last_seen", &foreign.last_seen)?,
        api_key_hash: foreign.api_key_hash.filter(|hash| !hash.is_empty()),
        keys: agent_keys(&foreign.public_key, created_at, keys),
    })
}

/// The current key first, then the newest. Files of early versions list no keys.
fn agent_keys(current: &str, created_at: i64, keys: Vec<ForeignAgentKey>) -> Vec<AgentKey> {
    let current = canonical(current);
    let mut found: Vec<AgentKey> = keys
        .into_iter()
        .map(|key| AgentKey {
            id: u64::try_from(key.id).unwrap_or(0),
            public_key: canonical(&key.public_key),
            created_at: key.created_at,
            revoked_at: key.revoked_at,
        })
        .collect();
    if !found.iter().any(|key| key.public_key == current) {
        found.push(AgentKey {
            id: 0,
            public_key: current.clone(),
            created_at,
            revoked_at: None,
        });
    }
    found.sort_by_key(|key| {
        let newest = std::cmp::Reverse((key.created_at, key.id));
        (key.public_key != current, newest)
    });
    found
}

/// The one text of a key. A key that cannot be read is kept as it is, and verifies no signature.
fn canonical(key: &str) -> String {
    BeamPublicKey::parse(key).map_or_else(|_| key.to_owned(), |key| key.to_string())
}
