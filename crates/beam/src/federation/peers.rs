//! The directories that this directory knows.

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::error::Code;
use consign_kernel::record::Kind;

use super::peer_url;
use crate::directory::records::{BeamPeer, next_number};
use crate::outbound::TargetUrl;
use crate::problem::BeamProblem;
use crate::service::Beam;

/// How many directories are known at most.
const PEERS_MAX: u32 = 256;
/// The longest key that a peer states. It is shown and not used.
const KEY_BYTES_MAX: usize = 512;
const TRUST_DEFAULT: f64 = 0.5;
const ACTIVE: &str = "active";
/// A peer that was seen more recently is not written again.
const SEEN_INTERVAL_MS: i64 = 60_000;

/// A directory to be registered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewPeer {
    pub directory_url: String,
    pub public_key: String,
    pub trust_level: Option<f64>,
}

/// Who registers a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRegistrar {
    /// An administrator, or a program on this machine.
    Operator,
    /// Another directory. Every peer has the shared secret, so it may only ask for a new read of the agents of a known peer.
    Directory,
}

impl Beam {
    /// Stores a peer and reads its agents. A peer whose agents cannot be read stays.
    pub async fn register_peer(
        &self,
        new: NewPeer,
        by: PeerRegistrar,
    ) -> Result<BeamPeer, BeamProblem> {
        let url = self.check_new_peer(&new).await?;
        if by == PeerRegistrar::Directory {
            self.require_unchanged(&url, &new).await?;
            return self.read_known_peer(&url).await;
        }
        let key = BeamPeer::key(&url);
        let known = self.engine().load::<BeamPeer>(key.clone()).await?;
        let id = match known {
            Some(known) => known.value.id,
            None => next_number(self.engine(), "peers").await?,
        };
        let now = self.now_ms();
        let store = |peer: &mut Option<BeamPeer>| -> Result<(), Error> {
            let earlier = peer.take();
            *peer = Some(BeamPeer {
                id,
                directory_url: url.clone(),
                public_key: new.public_key.clone(),
                trust_level: match (&earlier, new.trust_level) {
                    // The trust in a known peer changes only if a level is stated.
                    (Some(earlier), None) => earlier.trust_level,
                    (_, stated) => trust_level(stated),
                },
                status: ACTIVE.to_owned(),
                created_at: earlier.as_ref().map_or(now, |earlier| earlier.created_at),
                last_seen: Some(now),
                synced_at: earlier.as_ref().and_then(|earlier| earlier.synced_at),
                agents: earlier.map_or(0, |earlier| earlier.agents),
            });
            Ok(())
        };
        self.engine().update(key, store).await?;
        self.read_known_peer(&url).await
    }

    /// Refuses a registration that would add a peer or change one.
    async fn require_unchanged(&self, url: &str, new: &NewPeer) -> Result<(), BeamProblem> {
        let known = self.active_peer(url).await?;
        let is_unchanged = known.is_some_and(|known| {
            let stated = new.trust_level.map(|level| trust_level(Some(level)));
            let is_same_level =
                stated.is_none_or(|level| level.total_cmp(&known.trust_level).is_eq());
            is_same_level && known.public_key == new.public_key
        });
        if is_unchanged {
            return Ok(());
        }
        let text = "A new peer, or another trust level or key of a known one, needs the session of an administrator, or a request from the machine of this directory";
        Err(BeamProblem::new(Code::Forbidden, text))
    }

    /// Reads the agents of a registered peer, and returns the peer.
    async fn read_known_peer(&self, url: &str) -> Result<BeamPeer, BeamProblem> {
        self.inner.unknown_agents.clear();
        self.sync_peer(url).await?;
        let stored = self.registered_peer(url).await?;
        let removed = || BeamProblem::new(Code::FederationError, "The peer was removed meanwhile");
        stored.ok_or_else(removed)
    }

    /// The URL of a new peer, if it may be called.
    async fn check_new_peer(&self, new: &NewPeer) -> Result<String, BeamProblem> {
        let invalid = |text: String| BeamProblem::new(Code::InvalidPeer, text);
        if new.directory_url.trim().is_empty() {
            return Err(invalid("directoryUrl is required".to_owned()));
        }
        if new.public_key.len() > KEY_BYTES_MAX {
            return Err(invalid("publicKey is too long".to_owned()));
        }
        let url = peer_url::canonical(&new.directory_url)
            .map_err(|error| invalid(format!("directoryUrl cannot be used: {error}")))?;
        if peer_url::canonical(&self.settings().directory_url).as_ref() == Ok(&url) {
            return Err(invalid("directoryUrl is this directory".to_owned()));
        }
        let target = TargetUrl::parse(&url).map_err(|error| invalid(error.to_string()))?;
        if let Err(error) = self.inner.outbound.guard().resolve(&target).await
            && error.is_refusal()
        {
            return Err(invalid(format!("directoryUrl cannot be used: {error}")));
        }
        let peers = self.peers().await?;
        let is_known = peers.iter().any(|peer| peer.directory_url == url);
        if !is_known && peers.len() >= PEERS_MAX as usize {
            let text = format!("this directory has {PEERS_MAX} peers; remove one first");
            return Err(invalid(text));
        }
        Ok(url)
    }

    /// All peers, those with the highest trust level first.
    pub async fn peers(&self) -> Result<Vec<BeamPeer>, Error> {
        // One more than the limit: two registrations at the same time may exceed it.
        let limit = 2 * PEERS_MAX;
        let records = self.engine().records(Kind::BeamPeer, "", "", limit).await?;
        let peers = records.into_iter().map(Versioned::<BeamPeer>::read);
        let mut peers: Vec<BeamPeer> = peers
            .map(|peer| peer.map(|peer| peer.value))
            .collect::<Result<_, _>>()?;
        peers.sort_by(|a, b| {
            let by_trust = b.trust_level.total_cmp(&a.trust_level);
            by_trust.then_with(|| a.directory_url.cmp(&b.directory_url))
        });
        Ok(peers)
    }

    /// Returns whether the peer was known. Its agents no longer belong to it.
    pub async fn remove_peer(&self, directory_url: &str) -> Result<bool, Error> {
        let Ok(url) = peer_url::canonical(directory_url) else {
            return Ok(false);
        };
        let mut unit = UnitOfWork::default();
        let existed = unit.delete(BeamPeer::key(&url));
        let existed = self.engine().commit(unit).await?.get(existed)?;
        self.forget_agents_of(&url).await?;
        self.inner.unknown_agents.clear();
        Ok(existed)
    }

    /// The peer with this canonical URL, whether it is active or not.
    pub(super) async fn registered_peer(&self, url: &str) -> Result<Option<BeamPeer>, Error> {
        let found = self.engine().load::<BeamPeer>(BeamPeer::key(url)).await?;
        Ok(found.map(|found| found.value))
    }

    /// The peer with this URL, if it is registered and active.
    pub(crate) async fn active_peer(&self, url: &str) -> Result<Option<BeamPeer>, Error> {
        let Ok(url) = peer_url::canonical(url) else {
            return Ok(None);
        };
        Ok(self.registered_peer(&url).await?.filter(is_active))
    }

    /// The active peers, those with the highest trust level first.
    pub(super) async fn active_peers(&self) -> Result<Vec<BeamPeer>, Error> {
        let mut peers = self.peers().await?;
        peers.retain(is_active);
        Ok(peers)
    }

    /// Stores that a peer responded.
    pub(crate) async fn note_peer_seen(&self, url: &str) -> Result<(), Error> {
        let now = self.now_ms();
        let seen = |peer: &mut Option<BeamPeer>| -> Result<(), Error> {
            if let Some(peer) = peer
                && peer
                    .last_seen
                    .is_none_or(|seen| now - seen >= SEEN_INTERVAL_MS)
            {
                peer.last_seen = Some(now);
            }
            Ok(())
        };
        self.engine().update(BeamPeer::key(url), seen).await
    }

    /// Stores that further agents belong to a peer, or fewer.
    pub(super) async fn note_peer_agents(&self, url: &str, further: i64) -> Result<(), Error> {
        let count = |peer: &mut Option<BeamPeer>| -> Result<(), Error> {
            if let Some(peer) = peer {
                peer.agents = peer.agents.saturating_add_signed(further);
            }
            Ok(())
        };
        self.engine().update(BeamPeer::key(url), count).await
    }

    /// Stores that the agents of a peer were read.
    pub(super) async fn note_peer_synced(&self, url: &str) -> Result<(), Error> {
        let now = self.now_ms();
        let synced = |peer: &mut Option<BeamPeer>| -> Result<(), Error> {
            if let Some(peer) = peer {
                peer.last_seen = Some(now);
                peer.synced_at = Some(now);
            }
            Ok(())
        };
        self.engine().update(BeamPeer::key(url), synced).await
    }
}

fn is_active(peer: &BeamPeer) -> bool {
    peer.status == ACTIVE
}

/// Between 0 and 1, to four decimals.
fn trust_level(stated: Option<f64>) -> f64 {
    let level = stated.filter(|level| level.is_finite());
    let level = level.unwrap_or(TRUST_DEFAULT).clamp(0.0, 1.0);
    (level * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trust_level_is_between_zero_and_one() {
        for (stated, expected) in [
            (None, 0.5),
            (Some(f64::NAN), 0.5),
            (Some(7.0), 1.0),
            (Some(-1.0), 0.0),
            (Some(0.123_456), 0.1235),
        ] {
            assert!((trust_level(stated) - expected).abs() < f64::EPSILON);
        }
    }
}
