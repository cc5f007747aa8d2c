//! The hello of a connection: who it is, whether it may join, and what the others learn.

use std::sync::Arc;

use consign_web::websocket::SocketSender;
use tokio::sync::watch;

use super::{MailMode, MeshLine, PushedMessages};
use crate::broker::Broker;
use crate::broker::accept::MeshSender;
use crate::broker::peers::PeerState;
use crate::broker::records::{MeshMember, MeshRecord};
use crate::broker::roster::Roster;
use crate::frame::{
    BrokerFrame, GroupEntry, HelloAck, HelloFrame, MemberProfile, RawJson, SessionHello,
};
use crate::hello::{
    HelloRefusal, Membership, check_hello, check_member, check_parent, check_session_hello,
};
use crate::id::{DisplayName, GroupName};
use crate::keys::MeshPublicKey;
use crate::limits::CONNECTIONS_PER_MEMBER_MAX;
use crate::priority::PeerStatus;
use crate::role::PresenceRole;

/// The version that daemons report as `broker_version`.
const BROKER_VERSION: &str = env!("CARGO_PKG_VERSION");
/// How messages reach a member: at once.
const MESSAGE_MODE: &str = "push";
/// Groups of one connection.
pub(super) const GROUPS_MAX: usize = 64;
/// Of a host fingerprint.
const FINGERPRINT_DIGITS: usize = 64;
/// Texts about a connection are cut to this length.
const ABOUT_CHARS_MAX: usize = 256;

/// What both kinds of hello say.
struct PeerArrival<'a> {
    mesh_id: &'a str,
    member_id: &'a str,
    member_key: MeshPublicKey,
    /// Of the same member, without one that this one replaces.
    own_connections: usize,
    session: Option<MeshPublicKey>,
    session_id: Option<&'a str>,
    display_name: Option<&'a str>,
    groups: Option<&'a [GroupEntry]>,
    cwd: Option<&'a str>,
    pid: Option<i64>,
    hostname: Option<&'a str>,
    peer_type: Option<&'a str>,
    channel: Option<&'a str>,
    model: Option<&'a str>,
    host_fingerprint: Option<&'a str>,
}

impl<'a> PeerArrival<'a> {
    /// The machine of a member's daemon. Sessions of a member may run anywhere.
    fn daemon_fingerprint(&self) -> Option<&'a str> {
        let fingerprint = self.host_fingerprint.filter(|_| self.session.is_none())?;
        let is_hash = fingerprint.len() == FINGERPRINT_DIGITS
            && fingerprint.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hash.then_some(fingerprint)
    }
}

impl Broker {
    /// Connects a member, or one of its sessions.
    pub(super) async fn hello(
        &self,
        hello: &HelloFrame,
        sender: &SocketSender,
        req_id: Option<&str>,
    ) -> Result<Arc<MeshLine>, HelloRefusal> {
        let session = hello.session_pubkey.as_deref();
        let session = session.and_then(|key| MeshPublicKey::parse(key).ok());
        let session_id = hello.session_id.as_deref();
        let peers = &self.inner.peers;
        let (connections, own) =
            peers.count_without(&hello.mesh_id, &hello.member_id, session, session_id);
        let member_key = check_hello(hello, self.now_ms(), connections)?;
        let arrival = PeerArrival {
            mesh_id: &hello.mesh_id,
            member_id: &hello.member_id,
            member_key,
            own_connections: own,
            session,
            session_id,
            display_name: hello.display_name.as_deref(),
            groups: hello.groups.as_deref(),
            cwd: hello.cwd.as_deref(),
            pid: hello.pid,
            hostname: hello.hostname.as_deref(),
            peer_type: hello.peer_type.as_deref(),
            channel: hello.channel.as_deref(),
            model: hello.model.as_deref(),
            host_fingerprint: hello.host_fingerprint.as_deref(),
        };
        self.admit_connection(&arrival, sender, req_id, check_member)
            .await
    }

    /// Connects a session that its member attested.
    pub(super) async fn session_hello(
        &self,
        hello: &SessionHello,
        sender: &SocketSender,
        req_id: Option<&str>,
    ) -> Result<Arc<MeshLine>, HelloRefusal> {
        let session = MeshPublicKey::parse(&hello.session_pubkey).ok();
        let (member_id, session_id) = (&hello.parent_member_id, hello.session_id.as_deref());
        let peers = &self.inner.peers;
        let (connections, own) =
            peers.count_without(&hello.mesh_id, member_id, session, session_id);
        let (session, member_key) = check_session_hello(hello, self.now_ms(), connections)?;
        let arrival = PeerArrival {
            mesh_id: &hello.mesh_id,
            member_id,
            member_key,
            own_connections: own,
            session: Some(session),
            session_id,
            display_name: hello.display_name.as_deref(),
            groups: hello.groups.as_deref(),
            cwd: hello.cwd.as_deref(),
            pid: hello.pid,
            hostname: hello.hostname.as_deref(),
            peer_type: None,
            channel: None,
            model: None,
            host_fingerprint: None,
        };
        self.admit_connection(&arrival, sender, req_id, check_parent)
            .await
    }

    async fn admit_connection(
        &self,
        arrival: &PeerArrival<'_>,
        sender: &SocketSender,
        req_id: Option<&str>,
        check: fn(&str, Membership<'_>) -> Result<(), HelloRefusal>,
    ) -> Result<Arc<MeshLine>, HelloRefusal> {
        let unavailable = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "a connection was refused because the ledger is not available");
            HelloRefusal::Unauthorized
        };
        let mesh = self.mesh(arrival.mesh_id).await;
        let mesh = mesh.map_err(|error| unavailable(&error))?;
        // Ordering: lists of members are read and kept of meshes that exist.
        let Some(mesh) = mesh else {
            check(arrival.member_id, Membership::Stranger)?;
            return Err(HelloRefusal::Unauthorized);
        };
        let roster = self.current_roster(arrival.mesh_id).await;
        let roster = roster.map_err(|error| unavailable(&error))?;
        let holder = roster.holder_of(arrival.member_key);
        let membership = match holder {
            Some(member) if member.is_active() => Membership::Active(&member.id),
            Some(_) => Membership::Revoked,
            None => Membership::Stranger,
        };
        check(arrival.member_id, membership)?;
        if arrival.own_connections >= CONNECTIONS_PER_MEMBER_MAX {
            return Err(HelloRefusal::Capacity);
        }
        let Some(member) = holder else {
            return Err(HelloRefusal::Unauthorized);
        };
        self.check_session_key(arrival, &roster)?;
        let member = self.keep_groups(arrival, member).await;
        let line = self.connect(arrival, mesh, &member, sender, req_id);
        if let Some(fingerprint) = arrival.daemon_fingerprint() {
            self.note_host(&line.mesh, &member, fingerprint).await;
        }
        Ok(line)
    }

    /// A key of a session is its own: messages to a member, or to the session of another one, do not reach it.
    fn check_session_key(
        &self,
        arrival: &PeerArrival<'_>,
        roster: &Roster,
    ) -> Result<(), HelloRefusal> {
        let Some(session) = arrival.session else {
            return Ok(());
        };
        let peers = &self.inner.peers;
        let holder = peers.member_of_session(arrival.mesh_id, session);
        let is_foreign = holder.is_some_and(|holder| holder != arrival.member_id);
        if is_foreign || roster.is_of_member(session) {
            return Err(HelloRefusal::BadSessionPubkey);
        }
        Ok(())
    }

    /// The groups of a connection of the member itself are the member's: it is in them also while it is away.
    async fn keep_groups(&self, arrival: &PeerArrival<'_>, member: &MeshMember) -> MeshMember {
        let groups = arrival.groups.map(valid_groups);
        let Some(groups) = groups.filter(|_| arrival.session.is_none()) else {
            return member.clone();
        };
        if groups == member.groups {
            return member.clone();
        }
        let change = |member: &mut MeshMember| member.groups.clone_from(&groups);
        let changed = self.change_member(arrival.mesh_id, &member.id, change);
        changed.await.unwrap_or_else(|error| {
            tracing::warn!(%error, member = member.id, "the groups of a member were not stored");
            member.clone()
        })
    }

    fn connect(
        &self,
        arrival: &PeerArrival<'_>,
        mesh: MeshRecord,
        member: &MeshMember,
        sender: &SocketSender,
        req_id: Option<&str>,
    ) -> Arc<MeshLine> {
        let state = self.peer_state(arrival, member);
        let connected =
            self.inner
                .peers
                .connect(&mesh.id, state, sender.clone(), |state, earlier| {
                    let ack = hello_ack(state, earlier, member);
                    BrokerFrame::from(ack).to_text(req_id)
                });
        let mesh = Arc::new(mesh);
        let identity = MeshSender {
            mesh: Arc::clone(&mesh),
            member_id: member.id.clone(),
            session: arrival.session,
            connection: Some(connection_name(&connected.presence_id, connected.number)),
        };
        if connected.is_new {
            self.announce(&mesh.id, "peer_joined", &connected.presence_id);
        }
        self.publish_presences();
        let status = self.status_of(&mesh.id, &connected.presence_id);
        Arc::new(MeshLine {
            broker: self.clone(),
            mesh,
            member_id: member.id.clone(),
            session: arrival.session,
            presence_id: connected.presence_id,
            number: connected.number,
            sender: sender.clone(),
            identity,
            state: watch::Sender::new(MailMode {
                status,
                ..MailMode::default()
            }),
            pushed: PushedMessages::default(),
        })
    }

    fn status_of(&self, mesh_id: &str, presence_id: &str) -> PeerStatus {
        let state = self.inner.peers.update(mesh_id, presence_id, |_| ());
        state.map_or_else(PeerStatus::default, |state| state.status)
    }

    fn peer_state(&self, arrival: &PeerArrival<'_>, member: &MeshMember) -> PeerState {
        // A session has a name of its own; a member changes its name on request only.
        let name = arrival.display_name.filter(|_| arrival.session.is_some());
        let name = name.map(str::trim);
        let name = name.filter(|name| DisplayName::parse(name).is_ok());
        let groups = arrival.groups.map(valid_groups);
        let own = if arrival.session.is_none() {
            member.groups.clone()
        } else {
            Vec::new()
        };
        PeerState {
            presence_id: self.new_id(),
            member_id: member.id.clone(),
            member_key: member.pubkey,
            session: arrival.session,
            session_id: arrival.session_id.map(short),
            display_name: name.unwrap_or(&member.display_name).to_owned(),
            role: if arrival.session.is_some() {
                PresenceRole::Session
            } else {
                PresenceRole::ControlPlane
            },
            status: PeerStatus::default(),
            summary: None,
            // A session may be seen although its member hides.
            visible: arrival.session.is_some() || !member.is_hidden,
            groups: groups.unwrap_or(own),
            cwd: arrival.cwd.map(short).unwrap_or_default(),
            pid: arrival.pid,
            hostname: arrival.hostname.map(short),
            peer_type: arrival.peer_type.map(short),
            channel: arrival.channel.map(short),
            model: arrival.model.map(short),
            stats: None,
            profile: None,
            connected_at: self.wall_ms(),
            has_negotiated: false,
            is_connected: true,
        }
    }
}

/// Names a connection among all of this start of the node.
pub(super) fn connection_name(presence_id: &str, number: u64) -> String {
    format!("{presence_id}/{number}")
}

fn hello_ack(state: &PeerState, earlier: Option<&PeerState>, member: &MeshMember) -> HelloAck {
    let stats = earlier.and_then(|earlier| earlier.stats.as_ref());
    HelloAck {
        presence_id: state.presence_id.clone(),
        member_display_name: member.display_name.clone(),
        member_profile: MemberProfile {
            role_tag: None,
            groups: member.groups.clone(),
            message_mode: Some(MESSAGE_MODE.to_owned()),
        },
        mesh_policy: None,
        restored: earlier.map(|_| true),
        last_summary: earlier.and_then(|earlier| earlier.summary.clone()),
        last_seen_at: earlier
            .map(|earlier| crate::broker::time_text::text_of_ms(earlier.connected_at)),
        restored_groups: earlier.map(|earlier| earlier.groups.clone()),
        restored_stats: stats.and_then(|stats| RawJson::parse(stats.text())),
        services: None,
        broker_version: Some(BROKER_VERSION.to_owned()),
    }
}

/// The groups with valid names, each once.
fn valid_groups(groups: &[GroupEntry]) -> Vec<GroupEntry> {
    let mut valid: Vec<GroupEntry> = Vec::new();
    for group in groups {
        let is_new = valid.iter().all(|other| other.name != group.name);
        if is_new && valid.len() < GROUPS_MAX && GroupName::parse(&group.name).is_ok() {
            valid.push(GroupEntry {
                name: group.name.clone(),
                role: group.role.as_deref().map(short),
            });
        }
    }
    valid
}

pub(super) fn short(text: &str) -> String {
    text.chars().take(ABOUT_CHARS_MAX).collect()
}
