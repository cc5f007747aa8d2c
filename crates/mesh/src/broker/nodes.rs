//! Presence across the nodes of a ledger: each node writes who is connected to it, and reads who is connected to others.
//!
//! Invariant: what other nodes report is at most a few seconds old, and only what live nodes report counts. A member that
//! another node revoked loses its connections here within that time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::command::Recover;
use consign_kernel::profile::Face;
use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};

use super::peers::PeerState;
use super::{Broker, PAGE};
use crate::close::MeshCloseCode;
use crate::role::ClonePolicy;

/// How often a node reads who is connected to others; a change of its own is written at once.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// A presence as its node reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PresenceRecord {
    node: i64,
    peer: PeerState,
}

fn key(mesh_id: &str, presence_id: &str) -> Key {
    Key {
        kind: Kind::MeshPresence,
        owner: mesh_id.to_owned(),
        name: presence_id.to_owned(),
    }
}

/// What this node has written, by mesh and presence.
type PublishedPeers = BTreeMap<(String, String), PeerState>;

impl Broker {
    /// Lets the other nodes see a change of the presences of this node soon.
    pub(super) fn publish_presences(&self) {
        self.inner.presence_changed.notify_one();
    }

    /// Releases the deliveries that an earlier start of this node had claimed, so that they are delivered at once.
    pub async fn recover(&self) -> Result<usize, Error> {
        let node = &self.inner.settings.node;
        let recover = Recover {
            face: Face::Mesh,
            node: node.name.clone(),
            start: node.start.clone(),
            limit: PAGE,
        };
        Ok(self.engine().recover(&recover).await?.len())
    }

    /// Writes and reads presences until the process ends. A node that is alone on its ledger has nothing to do.
    pub async fn watch_presence(self) {
        if !self.inner.settings.node.shared {
            return;
        }
        let mut published = PublishedPeers::new();
        loop {
            if let Err(error) = self.sync_presence(&mut published).await {
                tracing::debug!(%error, "it is unknown who is connected to other nodes");
            }
            let changed = self.inner.presence_changed.notified();
            let _woken = tokio::time::timeout(CHECK_EVERY, changed).await;
        }
    }

    async fn sync_presence(&self, published: &mut PublishedPeers) -> Result<(), Error> {
        let local: PublishedPeers = self
            .inner
            .peers
            .local()
            .into_iter()
            .map(|(mesh, state)| ((mesh, state.presence_id.clone()), state))
            .collect();
        let mut unit = UnitOfWork::default();
        for ((mesh, presence), peer) in &local {
            if published.get(&(mesh.clone(), presence.clone())) != Some(peer) {
                let record = PresenceRecord {
                    node: self.inner.settings.node.id,
                    peer: peer.clone(),
                };
                unit.put(key(mesh, presence), &record);
            }
        }
        let ended = published.keys().filter(|name| !local.contains_key(*name));
        for (mesh, presence) in ended {
            unit.delete(key(mesh, presence));
        }
        if !unit.is_empty() {
            self.engine().commit(unit).await?;
        }
        *published = local;
        let meshes: BTreeSet<&String> = published.keys().map(|(mesh, _)| mesh).collect();
        for mesh in meshes {
            self.read_elsewhere(mesh).await?;
            self.end_revoked(mesh).await?;
        }
        Ok(())
    }

    async fn read_elsewhere(&self, mesh_id: &str) -> Result<(), Error> {
        let (mut elsewhere, mut after) = (Vec::new(), String::new());
        let mut alive: HashMap<i64, bool> = HashMap::new();
        loop {
            let kind = Kind::MeshPresence;
            let page = self.engine().records(kind, mesh_id, &after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                after.clone_from(&record.key.name);
                let key = record.key.clone();
                let PresenceRecord { node, peer } = Versioned::read(record)?.value;
                if node == self.inner.settings.node.id {
                    continue;
                }
                let is_alive = match alive.get(&node) {
                    Some(is_alive) => *is_alive,
                    None => self.engine().is_node_alive(node).await?,
                };
                alive.insert(node, is_alive);
                if is_alive {
                    elsewhere.push(peer);
                } else {
                    let mut unit = UnitOfWork::default();
                    unit.delete(key);
                    self.engine().commit(unit).await?;
                }
            }
            if is_last {
                break;
            }
        }
        self.close_outdated(mesh_id, &elsewhere).await?;
        let (came, left) = self.inner.peers.set_elsewhere(mesh_id, elsewhere);
        for state in came {
            self.announce_state(mesh_id, "peer_joined", &state);
        }
        for state in left {
            self.announce_state(mesh_id, "peer_left", &state);
        }
        Ok(())
    }

    /// Closes daemons whose members have a newer one at another node, if the policy of the mesh says so.
    async fn close_outdated(&self, mesh_id: &str, elsewhere: &[PeerState]) -> Result<(), Error> {
        let newer: Vec<&PeerState> = elsewhere.iter().filter(|peer| peer.is_daemon()).collect();
        if newer.is_empty() {
            return Ok(());
        }
        let mesh = self.engine().load(super::MeshRecord::key(mesh_id)).await?;
        let policy = mesh.map(|mesh: Versioned<super::MeshRecord>| mesh.value.clone_policy);
        if policy != Some(ClonePolicy::PreferNewest) {
            return Ok(());
        }
        let peers = &self.inner.peers;
        for (number, own) in peers.daemons(mesh_id) {
            let is_replaced = newer.iter().any(|other| {
                other.member_id == own.member_id && other.connected_at > own.connected_at
            });
            if is_replaced {
                peers.remove(mesh_id, number, MeshCloseCode::ReplacedByNewer);
            }
        }
        Ok(())
    }

    async fn end_revoked(&self, mesh_id: &str) -> Result<(), Error> {
        let roster = self.current_roster(mesh_id).await?;
        let local = self.inner.peers.local().into_iter();
        let members: BTreeSet<String> = local
            .filter(|(mesh, _)| mesh == mesh_id)
            .map(|(_, state)| state.member_id)
            .collect();
        for member in members {
            if let Some(member) = roster.revoked(&member) {
                self.end_member(member);
            }
        }
        Ok(())
    }
}
