//! Where an agent is: in this directory, among the known agents of peers, or at a peer that is asked for it.

use std::time::{Duration, Instant};

use consign_engine::Error;
use consign_kernel::plant::{self, Plant};
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::calls::{AGENT_BYTES_MAX, READ_LIMIT};
use super::known_agents::DescribedFor;
use super::remote_agent::{Description, FederatedAgent};
use super::unknown_agents::AskedAgent;
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

/// What a peer says about an agent.
#[derive(Clone, Debug)]
enum PeerAnswer {
    Described(Box<Description>),
    /// The peer has no such agent.
    Unknown,
    /// The peer does not respond, or responds wrongly.
    Unanswered,
}

/// What several peers say.
#[derive(Debug)]
enum AskedPeers {
    Found(PeerFinding),
    /// None of them has the agent.
    Unknown,
    /// At least one did not answer.
    Unanswered,
}

/// What the peer with the highest trust level says that has an agent.
#[derive(Debug)]
struct PeerFinding {
    peer_url: String,
    described: Box<Description>,
    /// All peers with a higher trust level say that they do not have it.
    is_sure: bool,
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
        let source = source.filter(|_| !plant::on(Plant::RelayToSource));
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

    /// Asks the peer to which the agent belongs; if it belongs to none yet, or its peer says that it does not have it, asks active
    /// peers, and takes the answer of the one with the highest trust level. Peers are not asked again at once for an agent that
    /// none of them knows.
    async fn resolve_at_peers(
        &self,
        beam_id: &BeamId,
        except: Option<&str>,
        time: Duration,
    ) -> Result<Option<ResolvedAgent>, Error> {
        let asked = AskedAgent {
            beam_id: beam_id.to_string(),
            except: except.map(str::to_owned),
        };
        let unknown = &self.inner.unknown_agents;
        if unknown.contains(&asked, Instant::now()) {
            return Ok(None);
        }
        let mut peers = self.active_peers().await?;
        peers.retain(|peer| Some(peer.directory_url.as_str()) != except);
        let asking = self.ask_in_order(&peers, beam_id);
        let found = match tokio::time::timeout(time, asking).await {
            Ok(answer) => match answer? {
                AskedPeers::Found(found) => found,
                AskedPeers::Unknown => {
                    if !peers.is_empty() {
                        unknown.insert(asked, Instant::now());
                    }
                    return Ok(None);
                }
                AskedPeers::Unanswered => return Ok(None),
            },
            Err(_) => return Ok(None),
        };
        let PeerFinding {
            peer_url,
            described,
            is_sure,
        } = found;
        self.note_peer_seen(&peer_url).await?;
        // A peer that is not asked may have it too, and nothing proves that it is the source.
        let why = if is_sure && except.is_none() {
            DescribedFor::Binding
        } else {
            DescribedFor::Time
        };
        self.remember_agents(&peer_url, std::slice::from_ref(&*described), why)
            .await?;
        Ok(Some(ResolvedAgent {
            agent: described.agent,
            scope: AgentScope::Peer,
            directory_url: peer_url,
        }))
    }

    /// Asks the peer to which the agent belongs, or else some at a time.
    async fn ask_in_order(
        &self,
        peers: &[BeamPeer],
        beam_id: &BeamId,
    ) -> Result<AskedPeers, Error> {
        let mut others = peers.to_vec();
        if let Some(home) = self.home_of_agent(beam_id.as_str()).await? {
            let home_url = home.directory_url;
            let Some(at) = others
                .iter()
                .position(|peer| peer.directory_url == home_url)
            else {
                return Ok(AskedPeers::Unanswered);
            };
            let own = others.remove(at);
            let answer = self.ask_together(std::slice::from_ref(&own), beam_id).await;
            if !matches!(answer, AskedPeers::Unknown) {
                return Ok(answer);
            }
            if !self.forget_agent(beam_id.as_str(), &home_url).await? {
                return Ok(AskedPeers::Unanswered);
            }
            tracing::info!(%beam_id, peer_url = home_url, "a peer does not have its agent any more; the other peers are asked");
        }
        let mut is_unknown = true;
        for some in others.chunks(ASKED_MAX) {
            match self.ask_together(some, beam_id).await {
                AskedPeers::Found(mut found) => {
                    found.is_sure &= is_unknown;
                    return Ok(AskedPeers::Found(found));
                }
                AskedPeers::Unknown => {}
                AskedPeers::Unanswered => is_unknown = false,
            }
        }
        Ok(if is_unknown {
            AskedPeers::Unknown
        } else {
            AskedPeers::Unanswered
        })
    }

    /// The first description in the order of the peers, whatever the order in which they respond.
    async fn ask_together(&self, peers: &[BeamPeer], beam_id: &BeamId) -> AskedPeers {
        let mut asked = JoinSet::new();
        for (rank, peer) in peers.iter().enumerate() {
            let (beam, url, beam_id) = (self.clone(), peer.directory_url.clone(), beam_id.clone());
            asked.spawn(async move { (rank, beam.ask_peer(&url, &beam_id).await) });
        }
        let mut answers: Vec<Option<PeerAnswer>> = vec![None; peers.len()];
        while let Some(joined) = asked.join_next().await {
            let Ok((rank, answer)) = joined else { continue };
            answers[rank] = Some(answer);
            let mut is_sure = true;
            for (peer, answer) in peers.iter().zip(&answers) {
                match answer {
                    Some(PeerAnswer::Described(found)) => {
                        return AskedPeers::Found(PeerFinding {
                            peer_url: peer.directory_url.clone(),
                            described: found.clone(),
                            is_sure,
                        });
                    }
                    Some(PeerAnswer::Unknown) => {}
                    Some(PeerAnswer::Unanswered) => is_sure = false,
                    None => break,
                }
            }
        }
        let is_unknown = |answer: &Option<PeerAnswer>| matches!(answer, Some(PeerAnswer::Unknown));
        if answers.iter().all(is_unknown) {
            AskedPeers::Unknown
        } else {
            AskedPeers::Unanswered
        }
    }

    /// How a peer describes one of its own agents.
    async fn ask_peer(&self, peer_url: &str, beam_id: &BeamId) -> PeerAnswer {
        let encoded = beam_id.as_str().replace('@', "%40");
        let route = format!("/federation/agents/{encoded}?localOnly=1");
        let read = self.read_peer(peer_url, &route, AGENT_BYTES_MAX);
        let response = match tokio::time::timeout(READ_LIMIT, read).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::debug!(%error, peer_url, %beam_id, "a peer is skipped");
                return PeerAnswer::Unanswered;
            }
            Err(_) => return PeerAnswer::Unanswered,
        };
        if response.status == StatusCode::NOT_FOUND {
            return PeerAnswer::Unknown;
        }
        let answer = serde_json::from_slice::<AgentAnswer>(&response.body).ok();
        let Some(answer) = answer.filter(|_| response.status.is_success()) else {
            return PeerAnswer::Unanswered;
        };
        match Description::parse(&answer.agent) {
            Ok(described) if described.agent.beam_id == beam_id.as_str() => {
                return PeerAnswer::Described(Box::new(described));
            }
            Ok(_) => {
                tracing::warn!(peer_url, %beam_id, "a peer described another agent than the requested one");
            }
            Err(error) => {
                tracing::warn!(%error, peer_url, %beam_id, "a peer described an agent wrongly");
            }
        }
        PeerAnswer::Unanswered
    }

    /// The key with which a peer vouches for one of its agents. `None` if the agent belongs to another peer, which described it
    /// with another key.
    pub(crate) async fn key_at_peer(
        &self,
        beam_id: &BeamId,
        peer: &BeamPeer,
    ) -> Result<Option<String>, Error> {
        let peer_url = peer.directory_url.as_str();
        let PeerAnswer::Described(described) = self.ask_peer(peer_url, beam_id).await else {
            return Ok(None);
        };
        let known = self.described_agent(beam_id.as_str()).await?;
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
                let described = std::slice::from_ref(&*described);
                self.remember_agents(peer_url, described, DescribedFor::Relay)
                    .await?;
                Ok(key)
            }
        }
    }
}
