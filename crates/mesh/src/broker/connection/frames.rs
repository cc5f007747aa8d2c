//! The frames of a connection other than messages and acknowledgements.

use std::sync::atomic::{AtomicBool, Ordering};

use super::MeshLine;
use super::hello::{GROUPS_MAX, short};
use super::topic_frames::TopicRequest;
use crate::broker::BrokerError;
use crate::broker::peers::PeerState;
use crate::broker::records::{DedupeRetention, MeshMember};
use crate::broker::time_text::text_of_ms;
use crate::close::MeshCloseCode;
use crate::concurrent::{MemberConnection, decide_connection};
use crate::features::{BrokerOffer, answer};
use crate::frame::{
    ClientFrame, FeatureRequest, Framed, GrantsList, GroupEntry, JoinGroup, KeyRotationFrame,
    ListPeers, MemberEntry, MessageStatusRequest, PeerEntry, PeersList, SetProfile,
};
use crate::limits::{
    BROKER_FRAME_BYTES_MAX, PROFILE_BYTES_MAX, STATE_VALUE_BYTES_MAX, STATS_BYTES_MAX,
};
use crate::max_age::DedupeWindow;
use crate::role::{ClonePolicy, PeerGrants, PresenceRole};

/// A list of peers; its frame has a few more bytes.
const PEERS_BYTES_MAX: usize = BROKER_FRAME_BYTES_MAX - 1_024;
/// Members of one answer, so that it fits a frame. Others are asked for by their names.
const MEMBERS_LISTED_MAX: usize = 100;

impl MeshLine {
    pub(super) async fn handle(&self, framed: Framed<ClientFrame>) {
        let req_id = framed.req_id.as_deref();
        if let Err(wait_ms) = self.charge_request() {
            let text = format!("too many requests; retry in {wait_ms} ms");
            return self.send_error("rate_limit", text, req_id);
        }
        match framed.frame {
            ClientFrame::Hello(_) | ClientFrame::SessionHello(_) => {
                self.send_error(
                    "already_connected",
                    "this connection has said hello",
                    req_id,
                );
            }
            ClientFrame::FeatureRequest(request) => self.negotiate(&request, req_id).await,
            ClientFrame::KeyRotation(rotation) => self.rotate(&rotation, req_id).await,
            ClientFrame::MessageStatus(request) => self.message_status(&request, req_id).await,
            ClientFrame::ListPeers(asked) => match self.peers_list(&asked).await {
                Ok(list) => self.send(list, req_id),
                Err(error) => self.report(Err(error), req_id),
            },
            ClientFrame::SetStatus(set) => {
                self.change(|state| state.status = set.status);
                self.state.send_if_modified(|state| {
                    std::mem::replace(&mut state.status, set.status) != set.status
                });
            }
            ClientFrame::SetSummary(set) => {
                self.change(|state| state.summary = Some(set.summary.to_string()));
            }
            ClientFrame::SetVisible(set) => self.set_visible(set.visible, req_id).await,
            ClientFrame::SetProfile(set) => self.set_profile(*set, req_id).await,
            ClientFrame::SetStats(set) if set.stats.text().len() > STATS_BYTES_MAX => {
                self.refuse_length("stats", STATS_BYTES_MAX, req_id);
            }
            ClientFrame::SetStats(set) => {
                self.change(|state| state.stats = Some(set.stats));
            }
            ClientFrame::JoinGroup(join) => self.join_group(&join, req_id).await,
            ClientFrame::LeaveGroup(leave) => {
                let name = leave.name.as_str();
                let changed =
                    self.change_groups(|groups| groups.retain(|other| other.name != name));
                self.report(changed.await, req_id);
            }
            ClientFrame::TopicCreate(body) => {
                self.handle_topic(TopicRequest::Create(*body), req_id).await;
            }
            ClientFrame::TopicList(_) => self.handle_topic(TopicRequest::List, req_id).await,
            ClientFrame::TopicJoin(body) => {
                self.handle_topic(TopicRequest::Join(*body), req_id).await;
            }
            ClientFrame::TopicLeave(body) => {
                self.handle_topic(TopicRequest::Leave(*body), req_id).await;
            }
            ClientFrame::TopicMembers(body) => {
                self.handle_topic(TopicRequest::Members(*body), req_id)
                    .await;
            }
            ClientFrame::TopicHistory(body) => {
                self.handle_topic(TopicRequest::History(*body), req_id)
                    .await;
            }
            ClientFrame::TopicMarkRead(body) => {
                self.handle_topic(TopicRequest::MarkRead(*body), req_id)
                    .await;
            }
            ClientFrame::SetState(set) if set.value.text().len() > STATE_VALUE_BYTES_MAX => {
                self.refuse_length("a value", STATE_VALUE_BYTES_MAX, req_id);
            }
            ClientFrame::SetState(set) => {
                let set = self
                    .broker
                    .set_state(&self.identity, &set, &self.presence_id)
                    .await;
                self.report(set, req_id);
            }
            ClientFrame::GetState(get) => {
                match self.broker.get_state(&self.mesh.id, get.key).await {
                    Ok(result) => self.send(result, req_id),
                    Err(error) => self.report(Err(error), req_id),
                }
            }
            ClientFrame::ListState(_) => match self.broker.list_state(&self.mesh.id).await {
                Ok(list) => self.send(list, req_id),
                Err(error) => self.report(Err(error), req_id),
            },
            ClientFrame::SetGrants(set) => {
                let granted = self.broker.grant(
                    &self.mesh.id,
                    &self.member_id,
                    set.member,
                    set.grants.as_deref(),
                );
                self.send_grants(granted.await, req_id);
            }
            ClientFrame::ListGrants(_) => {
                let grants = self.broker.grants_of(&self.mesh.id, &self.member_id);
                self.send_grants(grants.await, req_id);
            }
            // These do not come here.
            ClientFrame::Send(_) | ClientFrame::ClientAck(_) | ClientFrame::Unknown(_) => {}
        }
    }

    /// Counts a frame that is no message. If the member has sent too many, says in how many milliseconds it may send again.
    pub(super) fn charge_request(&self) -> Result<(), u64> {
        let rate = &self.broker.inner.request_rate;
        rate.charge(&self.mesh.id, &self.member_id, None)
    }

    fn send_grants(&self, grants: Result<PeerGrants, BrokerError>, req_id: Option<&str>) {
        match grants {
            Ok(grants) => self.send(GrantsList { grants }, req_id),
            Err(error) => self.report(Err(error), req_id),
        }
    }

    /// Says what failed; success has no answer.
    pub(super) fn report(&self, result: Result<(), BrokerError>, req_id: Option<&str>) {
        let Err(error) = result else { return };
        let code = match &error {
            BrokerError::NoSuchTopic(_) => "topic_not_found",
            BrokerError::NoSuchMesh(_)
            | BrokerError::NoSuchMember(_)
            | BrokerError::NoSuchInvite(_)
            | BrokerError::NoSuchSubscription { .. }
            | BrokerError::NoSuchItem(_)
            | BrokerError::NoSuchKey(_) => "not_found",
            BrokerError::StateFull => "state_full",
            BrokerError::TopicsFull => "topics_full",
            BrokerError::TooManySubscriptions(_) => "too_many_subscriptions",
            BrokerError::Rotation(refusal) => {
                return self.send_error(&refusal.to_string(), "the key is not replaced", req_id);
            }
            BrokerError::SlugTaken(_) | BrokerError::Join(_) | BrokerError::Ledger(_) => {
                tracing::warn!(%error, "a request of a connection failed");
                return self.send_error("unavailable", "the ledger is not available", req_id);
            }
        };
        self.send_error(code, error.to_string(), req_id);
    }

    /// Answers which features the broker has, and applies the policy about a second daemon.
    async fn negotiate(&self, request: &FeatureRequest, req_id: Option<&str>) {
        let peers = &self.broker.inner.peers;
        let (mesh_id, member_id) = (&self.mesh.id, &self.member_id);
        let elsewhere = if self.session.is_some() {
            0
        } else {
            self.daemons_elsewhere().await
        };
        // Ordering: the connections of this node are read last, so nothing is awaited before the decision about them.
        let existing = peers.connections_of(mesh_id, member_id);
        let own = existing.iter().find(|one| one.number == self.number);
        let new = MemberConnection {
            number: self.number,
            session_id: own.and_then(|own| own.session_id.clone()),
            has_session_key: self.session.is_some(),
            has_negotiated: true,
        };
        let decision = decide_connection(self.mesh.clone_policy, &new, &existing);
        if decision.is_concurrent || elsewhere > 0 {
            tracing::warn!(
                mesh = mesh_id,
                member = member_id,
                policy = self.mesh.clone_policy.as_str(),
                elsewhere,
                event = "member_concurrent_connection",
                "a member is connected twice"
            );
        }
        let is_second = elsewhere > 0 && self.mesh.clone_policy == ClonePolicy::PreferOldest;
        let second = is_second.then_some(MeshCloseCode::MemberAlreadyConnected);
        if let Some(code) = decision.refused.or(second) {
            peers.remove(mesh_id, self.number, code);
            return;
        }
        for (number, code) in decision.closed {
            peers.remove(mesh_id, number, code);
        }
        self.change(|state| {
            state.has_negotiated = true;
            if state.session.is_none() {
                state.role = PresenceRole::Service;
            }
        });
        let offer = BrokerOffer {
            window: match self.mesh.dedupe {
                DedupeRetention::Days(days) => DedupeWindow::Days(days),
                DedupeRetention::Permanent => DedupeWindow::Permanent,
            },
            clone_policy: self.mesh.clone_policy,
            compares_fingerprints: self.broker.compares_fingerprints(),
        };
        self.send(answer(&offer, request), req_id);
        self.state
            .send_if_modified(|state| !std::mem::replace(&mut state.has_negotiated, true));
    }

    /// How many other runs of the member's daemon are connected to other nodes.
    ///
    /// Two that connect to two nodes at once do not see each other here; the nodes close one of them afterwards.
    async fn daemons_elsewhere(&self) -> usize {
        let (mesh_id, member_id) = (&self.mesh.id, &self.member_id);
        let peers = &self.broker.inner.peers;
        let own = peers.update(mesh_id, &self.presence_id, |_| ());
        let session_id = own.and_then(|own| own.session_id);
        let found = self
            .broker
            .daemons_elsewhere(mesh_id, member_id, session_id.as_deref());
        found.await.unwrap_or_else(|error| {
            tracing::warn!(%error, member = self.member_id, "it is unknown who is connected to other nodes");
            0
        })
    }

    /// Changes what the peer says about itself.
    fn change(&self, change: impl FnOnce(&mut PeerState)) {
        let peers = &self.broker.inner.peers;
        peers.update(&self.mesh.id, &self.presence_id, change);
        self.broker.publish_presences();
    }

    /// The choice of a connection of the member itself is the member's: it counts also while it is away.
    async fn set_visible(&self, visible: bool, req_id: Option<&str>) {
        if self.session.is_none() {
            let stored = self
                .broker
                .change_member(&self.mesh.id, &self.member_id, |member| {
                    member.is_hidden = !visible;
                });
            self.report(stored.await.map(|_| ()), req_id);
        }
        let mut before = visible;
        self.change(|state| before = std::mem::replace(&mut state.visible, visible));
        let peers = &self.broker.inner.peers;
        let state = peers.update(&self.mesh.id, &self.presence_id, |_| ());
        if let Some(state) = state.filter(|_| before != visible) {
            self.broker.announce_visibility(&self.mesh.id, &state);
        }
    }

    fn refuse_length(&self, what: &str, bytes_max: usize, req_id: Option<&str>) {
        let text = format!("{what} of more than {bytes_max} bytes");
        self.send_error("payload_too_large", text, req_id);
    }

    async fn set_profile(&self, mut set: SetProfile, req_id: Option<&str>) {
        let name = set.display_name.take();
        let text = serde_json::to_string(&set).unwrap_or_default();
        if text.len() > PROFILE_BYTES_MAX {
            return self.refuse_length("a profile", PROFILE_BYTES_MAX, req_id);
        }
        self.change(|state| state.profile = Some(set));
        if let Some(name) = name {
            let renamed = self.broker.rename(&self.mesh.id, &self.member_id, &name);
            self.report(renamed.await.map(|_| ()), req_id);
        }
    }

    /// The groups of a connection of the member itself are the member's: it is in them also while it is away.
    async fn change_groups(
        &self,
        change: impl Fn(&mut Vec<GroupEntry>),
    ) -> Result<(), BrokerError> {
        self.change(|state| change(&mut state.groups));
        if self.session.is_some() {
            return Ok(());
        }
        let stored = self
            .broker
            .change_member(&self.mesh.id, &self.member_id, |member| {
                change(&mut member.groups);
            });
        stored.await.map(|_| ())
    }

    /// Adds a group, or changes the role in it. One that would be too many leaves the groups as they are.
    async fn join_group(&self, join: &JoinGroup, req_id: Option<&str>) {
        let group = GroupEntry {
            name: join.name.to_string(),
            role: join.role.as_deref().map(short),
        };
        let is_full = AtomicBool::new(false);
        let changed = self.change_groups(|groups| {
            if let Some(known) = groups.iter_mut().find(|other| other.name == group.name) {
                known.clone_from(&group);
            } else if groups.len() < GROUPS_MAX {
                groups.push(group.clone());
            } else {
                is_full.store(true, Ordering::Relaxed);
            }
        });
        let changed = changed.await;
        if changed.is_ok() && is_full.load(Ordering::Relaxed) {
            let text = format!("a connection has at most {GROUPS_MAX} groups");
            return self.send_error("too_many_groups", text, req_id);
        }
        self.report(changed, req_id);
    }

    /// The peers that can be seen, and this one; and the members, if they are asked for.
    async fn peers_list(&self, asked: &ListPeers) -> Result<PeersList, BrokerError> {
        let mut list = PeersList::default();
        if asked.members {
            let roster = self.broker.current_roster(&self.mesh.id).await?;
            let wanted = asked.member.as_ref().map(|text| text.to_lowercase());
            let is_wanted = |member: &&MeshMember| {
                let is_it = wanted.as_ref().is_none_or(|wanted| {
                    member.display_name.to_lowercase() == *wanted
                        || member.pubkey.to_string().starts_with(wanted)
                });
                is_it && (!member.is_hidden || member.id == self.member_id)
            };
            let active = roster.all_active().into_iter();
            let mut members: Vec<MemberEntry> = active
                .filter(is_wanted)
                .take(MEMBERS_LISTED_MAX + 1)
                .map(|member| MemberEntry {
                    pubkey: member.pubkey.to_string(),
                    display_name: member.display_name.clone(),
                })
                .collect();
            list.has_more = members.len() > MEMBERS_LISTED_MAX;
            members.truncate(MEMBERS_LISTED_MAX);
            list.members = Some(members);
        }
        let all = self.broker.inner.peers.all(&self.mesh.id).into_iter();
        let seen = all.filter(|peer| peer.visible || peer.presence_id == self.presence_id);
        list.peers = seen.map(peer_entry).collect();
        if serde_json::to_vec(&list).is_ok_and(|text| text.len() > PEERS_BYTES_MAX) {
            // Who is there matters more than what they say about themselves.
            for peer in &mut list.peers {
                (peer.summary, peer.stats, peer.profile) = (None, None, None);
                peer.groups.clear();
            }
        }
        Ok(list)
    }

    /// Replaces the key of the member. All connections of the mesh learn it, this one as well, as the answer.
    async fn rotate(&self, rotation: &KeyRotationFrame, req_id: Option<&str>) {
        let rotated = self
            .broker
            .rotate_key(&self.mesh.id, &self.member_id, rotation);
        self.report(rotated.await, req_id);
    }

    async fn message_status(&self, request: &MessageStatusRequest, req_id: Option<&str>) {
        let status = self
            .broker
            .message_status(&self.identity, &request.message_id);
        match status.await {
            Ok(Some(status)) => self.send(status, req_id),
            Ok(None) => self.send_error("not_found", "there is no such message", req_id),
            Err(error) => self.report(Err(error.into()), req_id),
        }
    }

    /// The connection ended. Its presence stays for a while.
    pub(super) fn leave(&self) {
        let peers = &self.broker.inner.peers;
        let left = peers.disconnect(&self.mesh.id, &self.presence_id, self.number);
        // Other nodes learn that the presence waits, too.
        self.broker.publish_presences();
        let Some(departure) = left else {
            return;
        };
        if let Some(state) = departure.ended {
            self.broker
                .announce_state(&self.mesh.id, "peer_left", &state);
        }
        let (broker, mesh_id) = (self.broker.clone(), self.mesh.id.clone());
        let presence_id = self.presence_id.clone();
        tokio::spawn(async move {
            tokio::time::sleep(broker.inner.settings.presence_grace).await;
            let ended = broker
                .inner
                .peers
                .end(&mesh_id, &presence_id, departure.number);
            broker.publish_presences();
            if let Some(state) = ended {
                broker.announce_state(&mesh_id, "peer_left", &state);
            }
        });
    }
}

fn peer_entry(peer: PeerState) -> PeerEntry {
    PeerEntry {
        pubkey: peer.session.unwrap_or(peer.member_key).to_string(),
        member_pubkey: Some(peer.member_key.to_string()),
        display_name: peer.display_name,
        status: peer.status,
        summary: peer.summary,
        groups: peer.groups,
        session_id: peer.session_id.unwrap_or_default(),
        connected_at: text_of_ms(peer.connected_at),
        cwd: peer.cwd,
        peer_role: Some(peer.role),
        hostname: peer.hostname,
        peer_type: peer.peer_type,
        channel: peer.channel,
        model: peer.model,
        stats: peer.stats,
        visible: Some(peer.visible),
        profile: peer
            .profile
            .and_then(|profile| serde_json::to_string(&profile).ok())
            .and_then(|text| crate::frame::RawJson::parse(&text)),
    }
}
