//! The nodes of a ledger: each writes who is connected to it, reads who is connected to others, and goes on with what a node
//! that has ended was delivering.
//!
//! Invariant: what other nodes report is at most a few seconds old, and only what nodes with a recent heartbeat report counts.
//! A member that another node revoked loses its connections here within that time, and a delivery that a killed node had
//! claimed is claimable again within seconds, not only when its lease ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::command::Recover;
use consign_kernel::profile::Face;
use consign_kernel::record::{Key, Kind, Record};
use serde::{Deserialize, Serialize};

use super::peers::PeerState;
use super::roster::Roster;
use super::{Broker, PAGE};
use crate::concurrent::{NodeConnection, decide_across_nodes};

/// How often a node reads who is connected to others; a change of its own is written soon.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// Changes of the presences of this node within this time are one commit.
const GATHERED_FOR: Duration = Duration::from_millis(200);

/// A presence as its node reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PresenceRecord {
    node: i64,
    peer: PeerState,
}

/// The name under which a node claims deliveries. It stays when the node is killed, so that others can release them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NodeClaims {
    name: String,
    start: String,
}

/// Among the presences, because no mesh has an empty id.
fn claims_key(node: i64) -> Key {
    key("", &node.to_string())
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

/// What the ledger has about a mesh.
#[derive(Debug, Default)]
struct StoredPresences {
    /// Of this node.
    own: BTreeSet<String>,
    elsewhere: Vec<PeerState>,
    /// Of nodes that have ended.
    left: Vec<Key>,
}

impl Broker {
    /// Lets the other nodes see a change of the presences of this node soon.
    pub(super) fn publish_presences(&self) {
        self.inner.presence_changed.notify_one();
    }

    /// Releases the deliveries that an earlier start of this node had claimed, so that they are delivered at once.
    pub async fn recover(&self) -> Result<usize, Error> {
        let node = &self.inner.settings.node;
        // Ordering: the name is stored before the first claim under it.
        if node.shared {
            self.write_claims().await?;
        }
        self.release(&node.name, &node.start).await
    }

    /// Releases what this node name has claimed, except under this start. Returns how many deliveries.
    async fn release(&self, name: &str, start: &str) -> Result<usize, Error> {
        let recover = Recover {
            face: Face::Mesh,
            node: name.to_owned(),
            start: start.to_owned(),
            limit: PAGE,
        };
        Ok(self.engine().recover(&recover).await?.len())
    }

    async fn write_claims(&self) -> Result<(), Error> {
        let node = &self.inner.settings.node;
        let claims = NodeClaims {
            name: node.name.clone(),
            start: node.start.clone(),
        };
        let mut unit = UnitOfWork::default();
        unit.put(claims_key(node.id), &claims);
        self.engine().commit(unit).await.map(drop)
    }

    /// Releases what nodes without a recent heartbeat had claimed.
    ///
    /// A node that was only stopped finds that its leases are gone, and its recipients get the messages once more.
    async fn release_of_silent_nodes(&self) -> Result<(), Error> {
        let own = self.inner.settings.node.id;
        let (mut is_listed, mut recent, mut silent) = (false, HashMap::new(), Vec::new());
        for record in self.all_records("").await? {
            let (key, version) = (record.key.clone(), record.version);
            let Ok(node) = key.name.parse::<i64>() else {
                continue;
            };
            let claims: NodeClaims = Versioned::read(record)?.value;
            is_listed |= node == own;
            if node == own || self.engine().is_node_beating(node).await? {
                recent.insert(claims.name, claims.start);
            } else {
                silent.push((node, claims, key, version));
            }
        }
        if !is_listed {
            // This node was stopped for so long that another one took it for ended.
            self.write_claims().await?;
        }
        for (node, claims, key, version) in silent {
            // A later start of the same node keeps what it has claimed.
            let start = recent.get(&claims.name).map_or("", String::as_str);
            let released = self.release(&claims.name, start).await?;
            if released > 0 {
                tracing::warn!(
                    node = claims.name,
                    released,
                    "released deliveries of a node that has ended"
                );
            }
            if !self.engine().is_node_alive(node).await? {
                let mut unit = UnitOfWork::default();
                unit.expect(key.clone(), version);
                unit.delete(key);
                // Another node may have removed it.
                let removed = self.engine().commit(unit).await;
                if let Err(error) = removed
                    && !super::was_changed(&error)
                {
                    return Err(error);
                }
            }
        }
        Ok(())
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
            if tokio::time::timeout(CHECK_EVERY, changed).await.is_ok() {
                // What changes at once is written at once.
                tokio::time::sleep(GATHERED_FOR).await;
            }
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
        let meshes = self.inner.peers.in_use();
        self.inner.told.keep(|mesh| meshes.contains(mesh));
        for mesh in &meshes {
            let own = self.read_elsewhere(mesh).await?;
            // What others removed while this node was silent is written again.
            published.retain(|(of, presence), _| of != mesh || own.contains(presence));
            let roster = self.current_roster(mesh).await?;
            self.end_revoked(mesh, &roster);
            self.tell_member_news(mesh, &roster);
            self.tell_value_news(mesh).await?;
        }
        self.release_of_silent_nodes().await
    }

    /// Reads who is connected to other nodes. Returns the presences of this node that are stored.
    async fn read_elsewhere(&self, mesh_id: &str) -> Result<BTreeSet<String>, Error> {
        let StoredPresences {
            own,
            elsewhere,
            left,
        } = self.stored_presences(mesh_id).await?;
        for key in left {
            let mut unit = UnitOfWork::default();
            unit.delete(key);
            self.engine().commit(unit).await?;
        }
        self.close_outdated(mesh_id, &elsewhere).await?;
        let news = self.inner.peers.set_elsewhere(mesh_id, elsewhere);
        for state in news.came {
            self.announce_state(mesh_id, "peer_joined", &state);
        }
        for state in news.left {
            self.announce_state(mesh_id, "peer_left", &state);
        }
        for state in news.turned {
            self.announce_visibility(mesh_id, &state);
        }
        Ok(own)
    }

    /// Lets this node know who is connected to others, also if none of the mesh's connections is here.
    pub(super) async fn know_elsewhere(&self, mesh_id: &str) -> Result<(), Error> {
        if !self.inner.settings.node.shared || self.inner.peers.follow(mesh_id) {
            return Ok(());
        }
        self.read_elsewhere(mesh_id).await.map(drop)
    }

    async fn stored_presences(&self, mesh_id: &str) -> Result<StoredPresences, Error> {
        let mut stored = StoredPresences::default();
        let mut silent: HashMap<i64, bool> = HashMap::new();
        for record in self.all_records(mesh_id).await? {
            let key = record.key.clone();
            let PresenceRecord { node, peer } = Versioned::read(record)?.value;
            if node == self.inner.settings.node.id {
                stored.own.insert(key.name);
                continue;
            }
            let is_silent = match silent.get(&node) {
                Some(is_silent) => *is_silent,
                None => !self.engine().is_node_beating(node).await?,
            };
            silent.insert(node, is_silent);
            if !is_silent {
                stored.elsewhere.push(peer);
            } else if !self.engine().is_node_alive(node).await? {
                stored.left.push(key);
            }
        }
        Ok(stored)
    }

    async fn all_records(&self, owner: &str) -> Result<Vec<Record>, Error> {
        let (mut records, mut after) = (Vec::new(), String::new());
        loop {
            let engine = self.engine();
            let page = engine
                .records(Kind::MeshPresence, owner, &after, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            records.extend(page);
            match records.last() {
                Some(last) if !is_last => after.clone_from(&last.key.name),
                _ => return Ok(records),
            }
        }
    }

    /// The other daemons of a member that are connected to other nodes, as the ledger has them now.
    pub(super) async fn daemons_elsewhere(
        &self,
        mesh_id: &str,
        member_id: &str,
        session_id: Option<&str>,
    ) -> Result<usize, Error> {
        if !self.inner.settings.node.shared {
            return Ok(0);
        }
        let stored = self.stored_presences(mesh_id).await?;
        let is_other = |peer: &&PeerState| {
            let is_same_run = session_id.is_some() && peer.session_id.as_deref() == session_id;
            peer.member_id == member_id && peer.is_daemon() && peer.is_connected && !is_same_run
        };
        Ok(stored.elsewhere.iter().filter(is_other).count())
    }

    /// Closes daemons whose members have another one at another node, if the policy of the mesh says so.
    async fn close_outdated(&self, mesh_id: &str, elsewhere: &[PeerState]) -> Result<(), Error> {
        let others: Vec<&PeerState> = elsewhere
            .iter()
            .filter(|peer| peer.is_daemon() && peer.is_connected)
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let mesh = self.engine().load(super::MeshRecord::key(mesh_id)).await?;
        let Some(mesh): Option<Versioned<super::MeshRecord>> = mesh else {
            return Ok(());
        };
        let policy = mesh.value.clone_policy;
        let peers = &self.inner.peers;
        for (number, own) in peers.daemons(mesh_id) {
            let of_member = others
                .iter()
                .filter(|other| other.member_id == own.member_id);
            let code = of_member
                .map(|other| (node_connection(&own), node_connection(other)))
                .find_map(|(own, other)| decide_across_nodes(policy, &own, &other));
            if let Some(code) = code {
                peers.remove(mesh_id, number, code);
            }
        }
        Ok(())
    }

    fn end_revoked(&self, mesh_id: &str, roster: &Roster) {
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
    }
}

fn node_connection(peer: &PeerState) -> NodeConnection<'_> {
    NodeConnection {
        session_id: peer.session_id.as_deref(),
        since: (peer.connected_at, &peer.presence_id),
    }
}
