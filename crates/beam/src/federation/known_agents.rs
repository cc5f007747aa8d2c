//! The agents of other directories: to which peer each belongs, and its description as long as that counts.
//!
//! Invariant: an agent belongs to the first peer that described it until that peer is removed or says that it does not have it,
//! however long ago that was. So no other peer can take over its messages, or sign for it, by waiting for the end of a
//! description. What a peer says about a sender whose intent it relays keeps other peers from stating another key for a while,
//! and nothing else: otherwise a peer could take agents it never had.

use std::collections::HashSet;

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::error::Refusal;
use consign_kernel::ids::Micros;
use consign_kernel::plant::{self, Plant};
use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};

use super::remote_agent::{Description, FederatedAgent};
use crate::directory::records::{PAGE, named};
use crate::service::Beam;

/// Descriptions of one commit.
const COMMIT_MAX: usize = 100;
/// How many agents of one peer are remembered for good, so that a peer cannot fill the ledger with invented ones.
const AGENTS_PER_PEER_MAX: u64 = 10_000;
/// A commit that meets concurrent changes more often is omitted: the descriptions can be read again.
const TRIES_MAX: usize = 3;

/// An agent and the peer to which it belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownAgent {
    pub(super) directory_url: String,
    pub(super) agent: FederatedAgent,
    /// Until when the description counts. Records of older versions expire instead.
    #[serde(default)]
    described_until_us: i64,
    /// The peer said it about a sender whose intent it relayed, and was not asked where the agent is.
    #[serde(default)]
    is_vouched: bool,
}

/// Why a peer described agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DescribedFor {
    /// The agents belong to it from now on.
    Binding,
    /// The peer has them as long as the descriptions count, unless they belong to it already.
    Time,
    /// It relays their intents.
    Relay,
}

impl KnownAgent {
    fn described_until(record: &Versioned<Self>) -> Micros {
        let stated = Micros(record.value.described_until_us);
        record.expires_at.map_or(stated, |end| end.max(stated))
    }
}

fn key(beam_id: &str) -> Key {
    named(Kind::BeamRemoteAgent, beam_id)
}

impl Beam {
    /// How the peer of an agent describes it, if the description still counts and the peer is active.
    pub(super) async fn known_agent(&self, beam_id: &str) -> Result<Option<KnownAgent>, Error> {
        let Some(known) = self.engine().load::<KnownAgent>(key(beam_id)).await? else {
            return Ok(None);
        };
        if known.value.is_vouched || KnownAgent::described_until(&known) <= self.engine().now() {
            return Ok(None);
        }
        let peer = self.active_peer(&known.value.directory_url).await?;
        Ok(peer.map(|_| known.value))
    }

    /// The registered peer to which an agent belongs, with its last description.
    pub(super) async fn home_of_agent(&self, beam_id: &str) -> Result<Option<KnownAgent>, Error> {
        let known = self.described_agent(beam_id).await?;
        Ok(known.filter(|known| !known.is_vouched))
    }

    /// The registered peer that described an agent last, even if only as a sender.
    pub(super) async fn described_agent(&self, beam_id: &str) -> Result<Option<KnownAgent>, Error> {
        let Some(known) = self.engine().load::<KnownAgent>(key(beam_id)).await? else {
            return Ok(None);
        };
        let peer = self.registered_peer(&known.value.directory_url).await?;
        Ok(peer
            .map(|_| known.value)
            .filter(|_| !plant::on(Plant::LastPeerWins)))
    }

    /// Releases the agents of a peer that was removed: the next peer that describes one of them has it.
    pub(super) async fn forget_agents_of(&self, peer_url: &str) -> Result<(), Error> {
        let mut after = String::new();
        loop {
            let kind = Kind::BeamRemoteAgent;
            let page = self.engine().records(kind, "", &after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            let mut unit = UnitOfWork::default();
            for record in page {
                after.clone_from(&record.key.name);
                let known = Versioned::<KnownAgent>::read(record)?;
                if known.value.directory_url == peer_url {
                    let _existed = unit.delete(known.key);
                }
            }
            if !unit.is_empty() {
                self.engine().commit(unit).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Releases an agent that its peer says it does not have. False if the agent was described anew meanwhile.
    pub(super) async fn forget_agent(&self, beam_id: &str, peer_url: &str) -> Result<bool, Error> {
        let Some(known) = self.engine().load::<KnownAgent>(key(beam_id)).await? else {
            return Ok(true);
        };
        if known.value.directory_url != peer_url {
            return Ok(false);
        }
        let mut unit = UnitOfWork::default();
        unit.expect_unchanged(&known);
        let _existed = unit.delete(known.key);
        match self.engine().commit(unit).await {
            Ok(_) => {}
            Err(Error::Refused(Refusal::VersionMismatch)) => return Ok(false),
            Err(error) => return Err(error),
        }
        if known.expires_at.is_none() {
            self.note_peer_agents(peer_url, -1).await?;
        }
        Ok(true)
    }

    /// Stores descriptions of a peer, except of agents that belong to another peer.
    pub(super) async fn remember_agents(
        &self,
        peer_url: &str,
        described: &[Description],
        why: DescribedFor,
    ) -> Result<(), Error> {
        let peers = self.peers().await?;
        let own = peers.iter().find(|peer| peer.directory_url == peer_url);
        let mut bound = own.map_or(0, |peer| peer.agents);
        let registered: HashSet<String> =
            peers.into_iter().map(|peer| peer.directory_url).collect();
        for part in described.chunks(COMMIT_MAX) {
            for _ in 0..TRIES_MAX {
                let room = match why {
                    DescribedFor::Binding => AGENTS_PER_PEER_MAX.saturating_sub(bound),
                    DescribedFor::Time | DescribedFor::Relay => 0,
                };
                let is_relay = why == DescribedFor::Relay;
                let (unit, further) = self
                    .descriptions(peer_url, part, &registered, room, is_relay)
                    .await?;
                if unit.is_empty() {
                    break;
                }
                match self.engine().commit(unit).await {
                    Ok(_) => {
                        bound += further;
                        if further > 0 {
                            let further = i64::try_from(further).unwrap_or(i64::MAX);
                            self.note_peer_agents(peer_url, further).await?;
                        }
                        break;
                    }
                    Err(Error::Refused(Refusal::VersionMismatch)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// The records of descriptions, and how many agents belong to the peer by them for the first time. It may have so many
    /// more of them (`room`); others belong to it as long as their descriptions count.
    async fn descriptions(
        &self,
        peer_url: &str,
        described: &[Description],
        registered: &HashSet<String>,
        room: u64,
        is_relay: bool,
    ) -> Result<(UnitOfWork, u64), Error> {
        let (mut unit, mut further) = (UnitOfWork::default(), 0);
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
            let mut is_bound = false;
            if let Some(known) = &known {
                let of = &known.value.directory_url;
                let is_of_other = of != peer_url && registered.contains(of);
                let is_vouched = known.value.is_vouched && !is_relay;
                if is_of_other && !is_vouched && !plant::on(Plant::LastPeerWins) {
                    continue;
                }
                is_bound = of == peer_url && known.expires_at.is_none();
                // Otherwise a peer could keep an agent by relaying its intents.
                if is_relay && of == peer_url && !is_bound && !known.value.is_vouched {
                    continue;
                }
                let half_over = now.plus(ttl_us / 2);
                let is_fresh = KnownAgent::described_until(known) > half_over;
                if of == peer_url && known.value.agent == *agent && is_fresh && !is_vouched {
                    continue;
                }
            }
            if !is_bound && further < room {
                is_bound = true;
                further += 1;
            }
            let until = now.plus(ttl_us);
            unit.replace(&Versioned {
                key,
                version: known.map_or(0, |known| known.version),
                value: KnownAgent {
                    directory_url: peer_url.to_owned(),
                    agent: agent.clone(),
                    described_until_us: until.0,
                    is_vouched: is_relay && !is_bound,
                },
                expires_at: (!is_bound).then_some(until),
            });
        }
        Ok((unit, further))
    }
}
