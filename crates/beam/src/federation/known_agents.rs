//! The descriptions of agents of other directories that still count.

use std::collections::HashSet;

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::error::Refusal;
use consign_kernel::plant::{self, Plant};
use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};

use super::remote_agent::{Description, FederatedAgent};
use crate::directory::records::named;
use crate::service::Beam;

/// Descriptions of one commit.
const COMMIT_MAX: usize = 100;
/// A commit that meets concurrent changes more often is omitted: the descriptions can be read again.
const TRIES_MAX: usize = 3;

/// An agent and the peer that describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownAgent {
    pub(super) directory_url: String,
    pub(super) agent: FederatedAgent,
}

fn key(beam_id: &str) -> Key {
    named(Kind::BeamRemoteAgent, beam_id)
}

impl Beam {
    /// What is known about an agent of another directory, if that directory is still an active peer.
    pub(super) async fn known_agent(&self, beam_id: &str) -> Result<Option<KnownAgent>, Error> {
        let Some(known) = self.engine().load::<KnownAgent>(key(beam_id)).await? else {
            return Ok(None);
        };
        let peer = self.active_peer(&known.value.directory_url).await?;
        Ok(peer.map(|_| known.value))
    }

    /// Stores descriptions of a peer, except of agents that another active peer describes.
    pub(super) async fn remember_agents(
        &self,
        peer_url: &str,
        described: &[Description],
    ) -> Result<(), Error> {
        let peers = self.active_peers().await?;
        let active: HashSet<String> = peers.into_iter().map(|peer| peer.directory_url).collect();
        for part in described.chunks(COMMIT_MAX) {
            for _ in 0..TRIES_MAX {
                let unit = self.descriptions(peer_url, part, &active).await?;
                if unit.is_empty() {
                    break;
                }
                match self.engine().commit(unit).await {
                    Ok(_) => break,
                    Err(Error::Refused(Refusal::VersionMismatch)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn descriptions(
        &self,
        peer_url: &str,
        described: &[Description],
        active: &HashSet<String>,
    ) -> Result<UnitOfWork, Error> {
        let mut unit = UnitOfWork::default();
        let now = self.engine().now();
        // A list may name an agent twice; the first time counts.
        let mut seen = HashSet::new();
        for Description { agent, ttl } in described {
            if !seen.insert(&agent.beam_id) {
                continue;
            }
            let ttl_us = i64::try_from(ttl.as_micros()).unwrap_or(0);
            let key = key(&agent.beam_id);
            let known = self.engine().load::<KnownAgent>(key.clone()).await?;
            if let Some(known) = &known {
                let of = &known.value.directory_url;
                let is_of_other = of != peer_url && active.contains(of);
                if is_of_other && !plant::on(Plant::LastPeerWins) {
                    continue;
                }
                let half_over = now.plus(ttl_us / 2);
                let is_fresh = known.expires_at.is_some_and(|end| end > half_over);
                if of == peer_url && known.value.agent == *agent && is_fresh {
                    continue;
                }
            }
            let version = known.map_or(0, |known| known.version);
            unit.replace(&Versioned {
                key,
                version,
                value: KnownAgent {
                    directory_url: peer_url.to_owned(),
                    agent: agent.clone(),
                },
                expires_at: Some(now.plus(ttl_us)),
            });
        }
        Ok(unit)
    }
}
