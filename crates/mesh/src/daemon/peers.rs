//! The peers that the broker last listed, for names in requests.
//!
//! Invariant: a name that is not in the list is asked for at the broker before it counts as unknown.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::line::{BrokerLine, LineError};
use crate::destination::KnownPeer;
use crate::frame::{BrokerFrame, ClientFrame, ListPeers, PeerEntry};
use crate::keys::MeshPublicKey;

/// A key that no peer has is asked about at most this often.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Members whose names are remembered after they left.
const REMEMBERED_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct PeerDirectory {
    known: Mutex<BTreeMap<MeshPublicKey, KnownPeer>>,
    /// When the broker was asked about a key that no peer has.
    asked_at: Mutex<Option<Instant>>,
}

impl PeerDirectory {
    pub(super) fn known(&self) -> Vec<KnownPeer> {
        self.lock().values().cloned().collect()
    }

    /// Whether the broker is to be asked for the peers because none has this key. Not for each of many messages to a member
    /// that is offline.
    pub(super) fn asks_about(&self, key: MeshPublicKey) -> bool {
        let known = self.lock();
        let mut all = known.values();
        if all.any(|peer| peer.member == key || peer.sessions.contains(&key)) {
            return false;
        }
        let mut asked_at = self.asked_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        if is_due {
            *asked_at = Some(Instant::now());
        }
        is_due
    }

    /// The name of a member, for messages whose sender has none.
    pub(super) fn name_of(&self, member: MeshPublicKey) -> Option<String> {
        self.lock().get(&member).and_then(|peer| peer.name.clone())
    }

    /// Asks the broker for the connected peers.
    pub(super) async fn refresh(&self, line: &BrokerLine) -> Result<Vec<PeerEntry>, LineError> {
        let answer = line.ask(ClientFrame::from(ListPeers {})).await?;
        let BrokerFrame::PeersList(list) = answer else {
            return Err(LineError::NoAnswer);
        };
        self.learn(&list.peers);
        Ok(list.peers)
    }

    fn learn(&self, peers: &[PeerEntry]) {
        let mut known = self.lock();
        for peer in known.values_mut() {
            peer.sessions.clear();
        }
        for entry in peers {
            let Ok(key) = MeshPublicKey::parse(&entry.pubkey) else {
                continue;
            };
            let member = entry.member_pubkey.as_deref().map(MeshPublicKey::parse);
            let member = member.and_then(Result::ok).unwrap_or(key);
            if !known.contains_key(&member) && known.len() >= REMEMBERED_MAX {
                known.pop_first();
            }
            let peer = known.entry(member).or_insert_with(|| KnownPeer {
                member,
                name: None,
                sessions: Vec::new(),
            });
            peer.name = Some(entry.display_name.clone());
            if key != member {
                peer.sessions.push(key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MeshPublicKey, KnownPeer>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
