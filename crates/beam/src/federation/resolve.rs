//! Where an agent is: in this directory, among the known agents of peers, or at a peer that is asked for it.

use std::time::Duration;

use consign_engine::Error;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::calls::{AGENT_BYTES_MAX, READ_LIMIT};
use super::remote_agent::{Description, FederatedAgent};
use crate::beam_id::BeamId;
use crate::directory::records::BeamPeer;
use crate::service::Beam;

/// Peers that are asked at the same time.
const ASKED_MAX: usize = 8;
/// For all peers together.
const RESOLVE_LIMIT: Duration = Duration::from_secs(10);

/// How an agent was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentScope {
    Local,
    Cache,
    Peer,
}

impl AgentScope {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Cache => "cache",
            Self::Peer => "peer",
        }
    }
}

/// An agent and its directory.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedAgent {
    pub agent: FederatedAgent,
    pub scope: AgentScope,
    pub directory_url: String,
}

/// The response of a peer.
#[derive(Deserialize)]
struct AgentAnswer {
    agent: Value,
}

impl Beam {
    /// An agent of this directory, as other directories see it.
    pub async fn resolve_local(&self, beam_id: &BeamId) -> Result<Option<ResolvedAgent>, Error> {
        let agent = self.agent(beam_id.as_str()).await?;
        Ok(agent.map(|agent| ResolvedAgent {
            agent: FederatedAgent::local(&agent, self.now_ms()),
            scope: AgentScope::Local,
            directory_url: self.settings().directory_url.clone(),
        }))
    }

    /// An agent of this directory or a known one of a peer. No peer is asked.
    pub async fn resolve_known(&self, beam_id: &BeamId) -> Result<Option<ResolvedAgent>, Error> {
        if let Some(local) = self.resolve_local(beam_id).await? {
            return Ok(Some(local));
        }
        let Some(known) = self.known_agent(beam_id.as_str()).await? else {
            return Ok(None);
        };
        let found = ResolvedAgent {
            agent: known.agent,
            scope: AgentScope::Cache,
            directory_url: known.directory_url,
        };
        self.with_reported_trust(found).await.map(Some)
    }

    /// An agent of any directory.
    pub async fn resolve(&self, beam_id: &BeamId) -> Result<Option<ResolvedAgent>, Error> {
        if let Some(known) = self.resolve_known(beam_id).await? {
            return Ok(Some(known));
        }
        let found = self.resolve_at_peers(beam_id, None, RESOLVE_LIMIT).await?;
        match found {
            Some(found) => self.with_reported_trust(found).await.map(Some),
            None => Ok(None),
        }
    }

    /// The directory of an agent that is not local. An intent never returns to the directory that sent it.
    pub(crate) async fn find_route(
        &self,
        beam_id: &BeamId,
        source: Option<&str>,
        time: Duration,
    ) -> Result<Option<ResolvedAgent>, Error> {
        if let Some(known) = self.known_agent(beam_id.as_str()).await? {
            let found = ResolvedAgent {
                agent: known.agent,
                scope: AgentScope::Cache,
                directory_url: known.directory_url,
            };
            return Ok(Some(found).filter(|found| Some(found.directory_url.as_str()) != source));
        }
        self.resolve_at_peers(beam_id, source, time.min(RESOLVE_LIMIT))
            .await
    }

    /// Asks active peers, and takes the answer of the one with the highest trust level.
    async fn resolve_at_peers(
        &self,
        beam_id: &BeamId,
        except: Option<&str>,
        time: Duration,
    ) -> Result<Option<ResolvedAgent>, Error> {
        let mut peers = self.active_peers().await?;
        peers.retain(|peer| Some(peer.directory_url.as_str()) != except);
        let asking = async {
            for some in peers.chunks(ASKED_MAX) {
                if let Some(found) = self.ask_together(some, beam_id).await {
                    return Some(found);
                }
            }
            None
        };
        let Ok(Some((peer_url, described))) = tokio::time::timeout(time, asking).await else {
            return Ok(None);
        };
        self.note_peer_seen(&peer_url).await?;
        self.remember_agents(&peer_url, std::slice::from_ref(&described))
            .await?;
        Ok(Some(ResolvedAgent {
            agent: described.agent,
            scope: AgentScope::Peer,
            directory_url: peer_url,
        }))
    }

    /// The first description in the order of the peers, whatever the order in which they respond.
    async fn ask_together(
        &self,
        peers: &[BeamPeer],
        beam_id: &BeamId,
    ) -> Option<(String, Description)> {
        let mut asked = JoinSet::new();
        for (rank, peer) in peers.iter().enumerate() {
            let (beam, url, beam_id) = (self.clone(), peer.directory_url.clone(), beam_id.clone());
            asked.spawn(async move { (rank, beam.ask_peer(&url, &beam_id).await) });
        }
        let mut answers: Vec<Option<Option<Description>>> = vec![None; peers.len()];
        while let Some(joined) = asked.join_next().await {
            let Ok((rank, answer)) = joined else { continue };
            answers[rank] = Some(answer);
            for (peer, answer) in peers.iter().zip(&answers) {
                match answer {
                    Some(Some(found)) => return Some((peer.directory_url.clone(), found.clone())),
                    Some(None) => {}
                    None => break,
                }
            }
        }
        None
    }

    /// How a peer describes one of its own agents. `None` if it has no such agent, does not respond or responds wrongly.
    async fn ask_peer(&self, peer_url: &str, beam_id: &BeamId) -> Option<Description> {
        let encoded = beam_id.as_str().replace('@', "%40");
        let route = format!("/federation/agents/{encoded}?localOnly=1");
        let read = self.read_peer(peer_url, &route, AGENT_BYTES_MAX);
        let response = match tokio::time::timeout(READ_LIMIT, read).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::debug!(%error, peer_url, %beam_id, "a peer is skipped");
                return None;
            }
            Err(_) => return None,
        };
        if !response.status.is_success() {
            return None;
        }
        let answer: AgentAnswer = serde_json::from_slice(&response.body).ok()?;
        let described = Description::parse(&answer.agent);
        match described {
            Ok(described) if described.agent.beam_id == beam_id.as_str() => Some(described),
            Ok(_) => {
                tracing::warn!(peer_url, %beam_id, "a peer described another agent than the requested one");
                None
            }
            Err(error) => {
                tracing::warn!(%error, peer_url, %beam_id, "a peer described an agent wrongly");
                None
            }
        }
    }

    /// The key with which a peer vouches for one of its agents. `None` if another peer describes the agent with another
    /// key.
    pub(crate) async fn key_at_peer(
        &self,
        beam_id: &BeamId,
        peer: &BeamPeer,
    ) -> Result<Option<String>, Error> {
        let peer_url = peer.directory_url.as_str();
        let Some(described) = self.ask_peer(peer_url, beam_id).await else {
            return Ok(None);
        };
        let known = self.known_agent(beam_id.as_str()).await?;
        let key = described.agent.public_key.clone();
        match known {
            Some(known) if known.directory_url != peer_url => {
                let is_same = known.agent.public_key == key;
                if !is_same {
                    tracing::warn!(peer_url, %beam_id, "a peer has another key for an agent of another peer");
                }
                Ok(key.filter(|_| is_same))
            }
            _ => {
                self.remember_agents(peer_url, std::slice::from_ref(&described))
                    .await?;
                Ok(key)
            }
        }
    }
}
