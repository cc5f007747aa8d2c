//! What the broker tells all connections of a mesh: who came and left, changed names and keys, revoked members.

use std::sync::Arc;

use serde_json::{Value, json};

use super::peers::PeerState;
use super::records::{MeshMember, RosterRecord};
use super::roster::Roster;
use super::time_text::text_of_ms;
use super::told::MemberNews;
use super::{Broker, BrokerError};
use crate::close::MeshCloseCode;
use crate::frame::{BrokerFrame, KeyRotationFrame, PushFrame, RawJson};
use crate::id::{BrokerMessageId, DisplayName, GroupName};
use crate::keys::MeshPublicKey;
use crate::limits::OPAQUE_ID_BYTES_MAX;
use crate::role::MemberRole;
use crate::rotation::{RotatingMember, check_rotation};
use consign_engine::{UnitOfWork, Versioned};

impl Broker {
    /// Tells the others about a presence.
    pub(super) fn announce(&self, mesh_id: &str, event: &str, presence_id: &str) {
        let state = self.inner.peers.update(mesh_id, presence_id, |_| ());
        if let Some(state) = state {
            self.announce_state(mesh_id, event, &state);
        }
    }

    pub(super) fn announce_state(&self, mesh_id: &str, event: &str, state: &PeerState) {
        let data = json!({
            "pubkey": state.session.unwrap_or(state.member_key),
            "memberPubkey": state.member_key,
            "memberId": state.member_id,
            "name": state.display_name,
            "displayName": state.display_name,
            "groups": state.groups,
            "sessionId": state.session_id,
            "peerRole": state.role,
        });
        let own = state.presence_id.clone();
        self.tell(mesh_id, event, &data, |peer| peer.presence_id != own);
    }

    /// Tells the others that a presence shows or hides itself.
    pub(super) fn announce_visibility(&self, mesh_id: &str, state: &PeerState) {
        let event = if state.visible {
            "peer_visible"
        } else {
            "peer_hidden"
        };
        self.announce_state(mesh_id, event, state);
    }

    /// Tells the connections of this node what they do not know of the members of a mesh.
    pub(super) fn tell_member_news(&self, mesh_id: &str, roster: &Roster) {
        let (version, members) = (roster.version(), roster.all_active());
        let news = self.inner.told.compare_members(mesh_id, version, members);
        for (member, news) in news {
            match news {
                MemberNews::Renamed { old } => self.on_renamed(member, Some(&old)),
                MemberNews::Rotated { old } => self.on_rotated(member, old),
            }
        }
    }

    /// Tells the connected admins of a mesh.
    pub(super) fn tell_admins(&self, mesh_id: &str, roster: &Roster, event: &str, data: &Value) {
        self.tell(mesh_id, event, data, |peer| {
            let member = roster.active(&peer.member_id);
            member.is_some_and(|member| member.role == MemberRole::Admin)
        });
    }

    /// Queues a system push for the connections that `wants` selects.
    fn tell(&self, mesh_id: &str, event: &str, data: &Value, wants: impl Fn(&PeerState) -> bool) {
        let data = RawJson::parse(&data.to_string());
        let id = BrokerMessageId::from_bytes(self.engine().entropy().draw().to_be_bytes());
        let (id, now) = (id.to_string(), text_of_ms(self.wall_ms()));
        let push = PushFrame::system(mesh_id, &id, &now, event, data);
        let text: Arc<str> = BrokerFrame::from(push).to_text(None).into();
        self.inner.peers.broadcast(mesh_id, &text, wants);
    }

    /// Tells the mesh that a member was revoked, and closes its connections.
    pub(super) fn end_member(&self, member: &MeshMember) {
        let data = json!({"member_id": member.id, "pubkey": member.pubkey});
        self.tell(&member.mesh_id, "member_revoked", &data, |_| true);
        let peers = &self.inner.peers;
        peers.remove_member(&member.mesh_id, &member.id, MeshCloseCode::Banned);
        self.publish_presences();
    }

    /// Changes the name of a member and tells the others.
    pub(super) async fn rename(
        &self,
        mesh_id: &str,
        member_id: &str,
        name: &DisplayName,
    ) -> Result<MeshMember, BrokerError> {
        let roster = self.current_roster(mesh_id).await?;
        let old = roster.active(member_id);
        if let Some(old) = old.filter(|_| self.has_other_nodes()) {
            self.inner.told.expect_change(old);
        }
        let member = self
            .change_member(mesh_id, member_id, |member| {
                name.as_str().clone_into(&mut member.display_name);
            })
            .await?;
        if self.has_other_nodes() {
            self.show_name(&member);
            self.publish_presences();
        } else if old.is_none_or(|old| old.display_name != name.as_str()) {
            self.on_renamed(&member, old.map(|old| old.display_name.as_str()));
        }
        Ok(member)
    }

    fn on_renamed(&self, member: &MeshMember, old: Option<&str>) {
        self.show_name(member);
        let name = &member.display_name;
        let data = json!({
            "member_id": member.id,
            "pubkey": member.pubkey,
            "old_name": old,
            "new_name": name,
            "name": name,
        });
        self.tell(&member.mesh_id, "member_renamed", &data, |_| true);
    }

    /// Replaces the key of a member, which stays the same member, and tells all connections.
    pub(super) async fn rotate_key(
        &self,
        mesh_id: &str,
        member_id: &str,
        frame: &KeyRotationFrame,
    ) -> Result<(), BrokerError> {
        let key = MeshMember::key(mesh_id, member_id);
        let missing = || BrokerError::NoSuchMember(member_id.to_owned());
        let mut member: Versioned<MeshMember> =
            self.engine().load(key).await?.ok_or_else(missing)?;
        let old = member.value.pubkey;
        if self.has_other_nodes() {
            self.inner.told.expect_change(&member.value);
        }
        let rotating = RotatingMember {
            mesh_id,
            member_id,
            key: old,
        };
        let new = check_rotation(frame, &rotating, self.now_ms())?;
        member.value.pubkey = new;
        member.value.former_keys.retain(|key| *key != new);
        member.value.former_keys.push(old);
        let key_id = Some(frame.key_id.clone());
        member.value.key_id = key_id.filter(|id| id.len() <= OPAQUE_ID_BYTES_MAX);
        let mut unit = UnitOfWork::default();
        unit.replace(&member);
        // The key of no other member, present or past.
        let by_key = MeshMember::pubkey_key(mesh_id, new);
        unit.expect(by_key.clone(), 0);
        unit.put(by_key, &member_id);
        unit.put(RosterRecord::key(mesh_id), &RosterRecord {});
        self.engine().commit(unit).await.map_err(|error| {
            if super::was_changed(&error) {
                BrokerError::Rotation(crate::rotation::RotationRefusal::Malformed)
            } else {
                error.into()
            }
        })?;
        if self.has_other_nodes() {
            self.show_key(&member.value);
            self.publish_presences();
        } else {
            self.on_rotated(&member.value, old);
        }
        Ok(())
    }

    fn on_rotated(&self, member: &MeshMember, old: MeshPublicKey) {
        self.show_key(member);
        let data = json!({
            "member_id": member.id,
            "old_pubkey": old,
            "new_pubkey": member.pubkey,
            "key_id": member.key_id,
        });
        self.tell(&member.mesh_id, "member_keypair_rotated", &data, |_| true);
    }

    fn show_name(&self, member: &MeshMember) {
        let peers = &self.inner.peers;
        peers.update_member(&member.mesh_id, &member.id, |peer| {
            peer.display_name.clone_from(&member.display_name);
        });
    }

    fn show_key(&self, member: &MeshMember) {
        let peers = &self.inner.peers;
        peers.update_member(&member.mesh_id, &member.id, |peer| {
            peer.member_key = member.pubkey;
        });
    }

    /// The groups of a presence.
    pub(super) fn groups_of(&self, mesh_id: &str, presence_id: &str) -> Vec<GroupName> {
        let state = self.inner.peers.update(mesh_id, presence_id, |_| ());
        state.map_or_else(Vec::new, |state| state.group_names().collect())
    }
}
