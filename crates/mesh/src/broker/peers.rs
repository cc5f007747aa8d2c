//! The connections to each mesh: those of this node with their sockets, and what other nodes report.
//!
//! Invariant: a presence has at most one live connection. When that ends, the presence stays for a grace period, and a
//! connection that continues it within that time takes it over, so that other members do not notice the gap.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consign_web::websocket::{CloseCode, SocketSender};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::close::MeshCloseCode;
use crate::concurrent::MemberConnection;
use crate::frame::{GroupEntry, RawJson, SetProfile};
use crate::id::GroupName;
use crate::keys::MeshPublicKey;
use crate::limits::PRESENCES_IN_GRACE_MAX;
use crate::priority::PeerStatus;
use crate::role::PresenceRole;

/// What a peer is and says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PeerState {
    pub(super) presence_id: String,
    pub(super) member_id: String,
    pub(super) member_key: MeshPublicKey,
    pub(super) session: Option<MeshPublicKey>,
    pub(super) session_id: Option<String>,
    pub(super) display_name: String,
    pub(super) role: PresenceRole,
    pub(super) status: PeerStatus,
    pub(super) summary: Option<String>,
    pub(super) visible: bool,
    pub(super) groups: Vec<GroupEntry>,
    pub(super) cwd: String,
    pub(super) pid: Option<i64>,
    pub(super) hostname: Option<String>,
    pub(super) peer_type: Option<String>,
    pub(super) channel: Option<String>,
    pub(super) model: Option<String>,
    pub(super) stats: Option<RawJson>,
    pub(super) profile: Option<SetProfile>,
    /// In milliseconds.
    pub(super) connected_at: i64,
    /// It negotiated features.
    pub(super) has_negotiated: bool,
    /// False while the presence waits for its client to return. Nodes of older versions do not say it.
    #[serde(default = "PeerState::is_connected_by_default")]
    pub(super) is_connected: bool,
}

impl PeerState {
    const fn is_connected_by_default() -> bool {
        true
    }

    /// Whether the connection claims the mail of its member and acknowledges it.
    pub(super) const fn serves_member(&self) -> bool {
        self.session.is_none() || self.has_negotiated
    }

    /// Whether the policy about second connections applies to it.
    pub(super) const fn is_daemon(&self) -> bool {
        self.session.is_none() && self.has_negotiated
    }

    pub(super) fn group_names(&self) -> impl Iterator<Item = GroupName> + '_ {
        let groups = self.groups.iter();
        groups.filter_map(|group| GroupName::parse(&group.name).ok())
    }

    /// Takes over what the peer said about itself before.
    fn continue_from(&mut self, earlier: &Self) {
        self.status = earlier.status;
        self.visible = earlier.visible;
        self.summary.clone_from(&earlier.summary);
        self.stats.clone_from(&earlier.stats);
        self.profile.clone_from(&earlier.profile);
        if self.groups.is_empty() {
            self.groups.clone_from(&earlier.groups);
        }
    }

    /// Whether the two are the same peer: one session, or one run of a client.
    fn is_continued_by(&self, other: &Self) -> bool {
        self.member_id == other.member_id
            && match (self.session, other.session) {
                (Some(one), Some(other)) if one == other => true,
                (one, two) => {
                    one.is_some() == two.is_some()
                        && self.session_id.is_some()
                        && self.session_id == other.session_id
                }
            }
    }
}

/// A presence of this node.
#[derive(Debug)]
struct LocalPeer {
    state: PeerState,
    /// `None` while the presence waits for its client to return.
    connection: Option<PeerConnection>,
    /// Counts departures, so that an earlier end of a grace period does not end a later one.
    departures: u64,
    /// The place of the last departure among those of this node.
    left: u64,
}

/// A connection that ended.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) number: u64,
    /// Another presence that waited for its client for the longest time, and has ended because too many wait. Others see that
    /// it left.
    pub(super) ended: Option<PeerState>,
}

#[derive(Clone, Debug)]
struct PeerConnection {
    number: u64,
    sender: SocketSender,
}

#[derive(Debug, Default)]
struct MeshPeers {
    /// By presence.
    here: BTreeMap<String, LocalPeer>,
    /// On other nodes.
    elsewhere: Vec<PeerState>,
    /// What other nodes report was read once.
    is_read: bool,
    /// The mesh is in use until then, also without a presence here.
    followed_until: Option<Instant>,
}

/// What changed on other nodes.
#[derive(Debug, Default)]
pub(super) struct ElsewhereNews {
    pub(super) came: Vec<PeerState>,
    pub(super) left: Vec<PeerState>,
    /// Those that show or hide themselves.
    pub(super) turned: Vec<PeerState>,
}

/// How long a mesh is followed after a request about it at a node without its connections.
const FOLLOWED_FOR: Duration = Duration::from_mins(1);

/// All connections of this node.
#[derive(Debug, Default)]
pub(super) struct Peers {
    last: AtomicU64,
    meshes: Mutex<HashMap<String, MeshPeers>>,
}

/// A connection that was added.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) number: u64,
    pub(super) presence_id: String,
    /// Others do not know this peer yet.
    pub(super) is_new: bool,
}

impl Peers {
    fn meshes(&self) -> MutexGuard<'_, HashMap<String, MeshPeers>> {
        self.meshes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. One that continues a presence takes it over, and the connection before it is closed.
    ///
    /// Ordering: the greeting is queued before the connection can be found, so it is the first frame.
    pub(super) fn connect(
        &self,
        mesh_id: &str,
        mut state: PeerState,
        sender: SocketSender,
        greet: impl FnOnce(&PeerState, Option<&PeerState>) -> String,
    ) -> Connected {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut meshes = self.meshes();
        let peers = meshes.entry(mesh_id.to_owned()).or_default();
        let continued = peers.here.values().find(|peer| {
            // A daemon that starts again within the grace period is the same peer, under another session id.
            let is_restart = peer.connection.is_none()
                && peer.state.session.is_none()
                && state.session.is_none()
                && peer.state.member_id == state.member_id;
            is_restart || peer.state.is_continued_by(&state)
        });
        let restored = continued.map(|peer| peer.state.clone());
        let mut departures = 0;
        if let Some(earlier) = &restored {
            state.presence_id.clone_from(&earlier.presence_id);
            if let Some(replaced) = peers.here.remove(&earlier.presence_id) {
                departures = replaced.departures;
                close(replaced.connection.as_ref(), MeshCloseCode::Normal);
            }
        }
        if let Some(earlier) = &restored {
            state.continue_from(earlier);
        }
        // A socket that is closed already is noticed by its reader.
        let _is_open = sender.try_send(greet(&state, restored.as_ref()));
        let is_alone = !peers.has_peer_like(&state);
        let presence_id = state.presence_id.clone();
        let peer = LocalPeer {
            state,
            connection: Some(PeerConnection { number, sender }),
            departures,
            left: 0,
        };
        peers.here.insert(presence_id.clone(), peer);
        Connected {
            number,
            presence_id,
            is_new: restored.is_none() && is_alone,
        }
    }

    /// Ends a connection. After the grace period of the departure the presence ends. `None` if the presence has another
    /// connection by now.
    pub(super) fn disconnect(
        &self,
        mesh_id: &str,
        presence_id: &str,
        number: u64,
    ) -> Option<Departure> {
        let left = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut meshes = self.meshes();
        let peers = meshes.get_mut(mesh_id)?;
        let peer = peers.here.get_mut(presence_id)?;
        if peer.connection.as_ref()?.number != number {
            return None;
        }
        peer.connection = None;
        peer.departures += 1;
        peer.left = left;
        let number = peer.departures;
        let ended = peers.end_oldest_in_grace();
        Some(Departure { number, ended })
    }

    /// Removes a presence whose client did not return after this departure. Returns it if others see that it left.
    pub(super) fn end(
        &self,
        mesh_id: &str,
        presence_id: &str,
        departure: u64,
    ) -> Option<PeerState> {
        let mut meshes = self.meshes();
        let peers = meshes.get_mut(mesh_id)?;
        let peer = peers.here.get(presence_id)?;
        if peer.connection.is_some() || peer.departures != departure {
            return None;
        }
        let ended = peers.here.remove(presence_id).map(|peer| peer.state);
        ended.filter(|state| !peers.has_peer_like(state))
    }

    /// Removes a presence at once, because its connection was refused or replaced for good. Its connection is closed.
    pub(super) fn remove(&self, mesh_id: &str, number: u64, code: MeshCloseCode) {
        let mut meshes = self.meshes();
        let Some(peers) = meshes.get_mut(mesh_id) else {
            return;
        };
        let is_it = |peer: &LocalPeer| {
            let connection = peer.connection.as_ref();
            connection.is_some_and(|connection| connection.number == number)
        };
        let found = peers.here.iter().find(|(_, peer)| is_it(peer));
        let id = found.map(|(id, _)| id.clone());
        if let Some(removed) = id.and_then(|id| peers.here.remove(&id)) {
            close(removed.connection.as_ref(), code);
        }
    }

    /// Closes all connections of a member and removes its presences.
    pub(super) fn remove_member(&self, mesh_id: &str, member_id: &str, code: MeshCloseCode) {
        if let Some(peers) = self.meshes().get_mut(mesh_id) {
            peers.here.retain(|_, peer| {
                let stays = peer.state.member_id != member_id;
                if !stays {
                    close(peer.connection.as_ref(), code);
                }
                stays
            });
        }
    }

    /// Changes what a peer says about itself. Returns the state after it.
    pub(super) fn update(
        &self,
        mesh_id: &str,
        presence_id: &str,
        change: impl FnOnce(&mut PeerState),
    ) -> Option<PeerState> {
        let mut meshes = self.meshes();
        let peer = meshes.get_mut(mesh_id)?.here.get_mut(presence_id)?;
        change(&mut peer.state);
        Some(peer.state.clone())
    }

    /// Changes all presences of a member on this node.
    pub(super) fn update_member(
        &self,
        mesh_id: &str,
        member_id: &str,
        change: impl Fn(&mut PeerState),
    ) {
        if let Some(peers) = self.meshes().get_mut(mesh_id) {
            let peers = peers.here.values_mut();
            for peer in peers.filter(|peer| peer.state.member_id == member_id) {
                change(&mut peer.state);
            }
        }
    }

    /// The presences of a mesh on all nodes.
    pub(super) fn all(&self, mesh_id: &str) -> Vec<PeerState> {
        self.list(mesh_id, |_| true)
    }

    fn list(&self, mesh_id: &str, wants: impl Fn(&PeerState) -> bool) -> Vec<PeerState> {
        let meshes = self.meshes();
        let Some(peers) = meshes.get(mesh_id) else {
            return Vec::new();
        };
        let here = peers.here.values().map(|peer| &peer.state);
        let all = here.chain(&peers.elsewhere);
        all.filter(|state| wants(state)).cloned().collect()
    }

    /// The number of live connections of a mesh on all nodes, and how many of them are the member's. One that the new
    /// connection would replace is not counted.
    pub(super) fn count_without(
        &self,
        mesh_id: &str,
        member_id: &str,
        session: Option<MeshPublicKey>,
        session_id: Option<&str>,
    ) -> (usize, usize) {
        let meshes = self.meshes();
        let Some(peers) = meshes.get(mesh_id) else {
            return (0, 0);
        };
        let (mut all, mut own) = (0, 0);
        for state in peers.live() {
            let is_own = state.member_id == member_id;
            let same_key = session.is_some() && state.session == session;
            let same_run = session_id.is_some() && state.session_id.as_deref() == session_id;
            if is_own && (same_key || same_run) {
                continue;
            }
            all += 1;
            own += usize::from(is_own);
        }
        (all, own)
    }

    /// The connections of a member, for the policy about a second one.
    pub(super) fn connections_of(&self, mesh_id: &str, member_id: &str) -> Vec<MemberConnection> {
        let meshes = self.meshes();
        let peers = meshes.get(mesh_id).into_iter();
        let peers = peers.flat_map(|peers| peers.here.values());
        let own = peers.filter(|peer| peer.state.member_id == member_id);
        own.filter_map(|peer| {
            Some(MemberConnection {
                number: peer.connection.as_ref()?.number,
                session_id: peer.state.session_id.clone(),
                has_session_key: peer.state.session.is_some(),
                has_negotiated: peer.state.has_negotiated,
            })
        })
        .collect()
    }

    /// The member of a connected session.
    pub(super) fn member_of_session(&self, mesh_id: &str, key: MeshPublicKey) -> Option<String> {
        let mut found = self.list(mesh_id, |state| state.session == Some(key));
        found.pop().map(|state| state.member_id)
    }

    /// The members and sessions that are connected and in a group.
    pub(super) fn in_group(
        &self,
        mesh_id: &str,
        group: &GroupName,
    ) -> Vec<(String, Option<MeshPublicKey>)> {
        let is_in = |state: &PeerState| state.group_names().any(|own| own.is_within(group));
        let found = self.list(mesh_id, is_in).into_iter();
        found
            .map(|state| (state.member_id, state.session))
            .collect()
    }

    /// Whether a member has a live connection that claims its mail, on any node.
    pub(super) fn is_served(&self, mesh_id: &str, member_id: &str) -> bool {
        let meshes = self.meshes();
        let Some(peers) = meshes.get(mesh_id) else {
            return false;
        };
        let mut live = peers.live();
        live.any(|state| state.member_id == member_id && state.serves_member())
    }

    /// Queues a frame for all connections of a mesh on this node that `wants` selects. One that reads too slowly is closed.
    pub(super) fn broadcast(
        &self,
        mesh_id: &str,
        text: &Arc<str>,
        wants: impl Fn(&PeerState) -> bool,
    ) {
        let meshes = self.meshes();
        let Some(peers) = meshes.get(mesh_id) else {
            return;
        };
        for peer in peers.here.values().filter(|peer| wants(&peer.state)) {
            let Some(connection) = &peer.connection else {
                continue;
            };
            if connection.sender.try_send(Arc::clone(text)).is_err() {
                connection
                    .sender
                    .close_now(CloseCode::TRY_AGAIN_LATER, "slow reader");
            }
        }
    }

    /// The daemons that are connected to this node, with the numbers of their connections.
    pub(super) fn daemons(&self, mesh_id: &str) -> Vec<(u64, PeerState)> {
        let meshes = self.meshes();
        let peers = meshes.get(mesh_id).into_iter();
        let peers = peers.flat_map(|peers| peers.here.values());
        let daemons = peers.filter(|peer| peer.state.is_daemon());
        let live = daemons.filter_map(|peer| {
            let number = peer.connection.as_ref()?.number;
            Some((number, peer.state.clone()))
        });
        live.collect()
    }

    /// The presences of this node, with their meshes.
    pub(super) fn local(&self) -> Vec<(String, PeerState)> {
        let meshes = self.meshes();
        let each = meshes.iter().flat_map(|(mesh, peers)| {
            let states = peers.here.values();
            states.map(|peer| {
                let mut state = peer.state.clone();
                state.is_connected = peer.connection.is_some();
                (mesh.clone(), state)
            })
        });
        each.collect()
    }

    /// Lets this node read what others report of a mesh for a while. Whether it does so already.
    pub(super) fn follow(&self, mesh_id: &str) -> bool {
        let mut meshes = self.meshes();
        let peers = meshes.entry(mesh_id.to_owned()).or_default();
        let now = Instant::now();
        let is_in_use = peers.is_in_use(now);
        peers.followed_until = Some(now + FOLLOWED_FOR);
        peers.is_read && is_in_use
    }

    /// The meshes of which this node has to know what others report. What it knows of the others is forgotten, because it would
    /// be outdated when they are in use again.
    pub(super) fn in_use(&self) -> BTreeSet<String> {
        let now = Instant::now();
        let mut meshes = self.meshes();
        meshes.retain(|_, peers| peers.is_in_use(now));
        meshes.keys().cloned().collect()
    }

    /// Replaces what other nodes report of a mesh. Returns what is new.
    pub(super) fn set_elsewhere(&self, mesh_id: &str, elsewhere: Vec<PeerState>) -> ElsewhereNews {
        let mut meshes = self.meshes();
        let peers = meshes.entry(mesh_id.to_owned()).or_default();
        peers.is_read = true;
        let before = std::mem::replace(&mut peers.elsewhere, elsewhere);
        let has = |list: &[PeerState], one: &PeerState| {
            let mut list = list.iter();
            list.any(|other| other.presence_id == one.presence_id)
        };
        let came = peers.elsewhere.iter().filter(|one| !has(&before, one));
        let left = before.iter().filter(|one| !has(&peers.elsewhere, one));
        let turned = peers.elsewhere.iter().filter(|one| {
            let mut before = before.iter();
            before.any(|other| other.presence_id == one.presence_id && other.visible != one.visible)
        });
        ElsewhereNews {
            came: came.cloned().collect(),
            left: left.cloned().collect(),
            turned: turned.cloned().collect(),
        }
    }
}

impl MeshPeers {
    fn is_in_use(&self, now: Instant) -> bool {
        !self.here.is_empty() || self.followed_until.is_some_and(|until| until > now)
    }

    /// Ends the presence of this node that has waited for its client for the longest time, if more wait than may. Returns it if
    /// others see that it left.
    fn end_oldest_in_grace(&mut self) -> Option<PeerState> {
        let elsewhere = self.elsewhere.iter().filter(|peer| !peer.is_connected);
        let waiting = self.here.values().filter(|peer| peer.connection.is_none());
        if waiting.clone().count() + elsewhere.count() <= PRESENCES_IN_GRACE_MAX {
            return None;
        }
        let oldest = waiting.min_by_key(|peer| peer.left)?;
        let id = oldest.state.presence_id.clone();
        let ended = self.here.remove(&id).map(|peer| peer.state);
        ended.filter(|state| !self.has_peer_like(state))
    }

    /// The presences on all nodes that have a connection.
    fn live(&self) -> impl Iterator<Item = &PeerState> {
        let here = self.here.values().filter(|peer| peer.connection.is_some());
        let elsewhere = self.elsewhere.iter().filter(|peer| peer.is_connected);
        here.map(|peer| &peer.state).chain(elsewhere)
    }

    /// Whether others see this peer already: the same session, or another connection of the member itself.
    fn has_peer_like(&self, state: &PeerState) -> bool {
        let here = self.here.values().map(|peer| &peer.state);
        let mut all = here.chain(&self.elsewhere);
        all.any(|other| {
            other.member_id == state.member_id
                && other.session == state.session
                && other.presence_id != state.presence_id
        })
    }
}

fn close(connection: Option<&PeerConnection>, code: MeshCloseCode) {
    if let Some(connection) = connection {
        connection
            .sender
            .close(CloseCode(code.code()), code.reason());
    }
}
