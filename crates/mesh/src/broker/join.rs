//! Join a mesh with an invite: one commit adds the member and counts a use of the invite.

use consign_engine::{TRIES_MAX, UnitOfWork, Versioned};

use super::invites::digest;
use super::records::{InviteRecord, MeshMember, RosterRecord};
use super::{Broker, BrokerError, was_changed};
use crate::id::{DisplayName, MeshId};
use crate::invite::{
    InvitePayload, Join, JoinFacts, JoinRefusal, StoredInvite, check_origin, decide_join,
};
use crate::keys::MeshPublicKey;
use crate::role::PeerGrants;

/// Who joins, and with which invite.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// As it was handed out.
    pub token: String,
    pub payload: InvitePayload,
    pub pubkey: MeshPublicKey,
    pub display_name: DisplayName,
}

/// The member after a request to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub member_id: String,
    pub already_member: bool,
}

impl Broker {
    pub async fn join(&self, request: &NewMember) -> Result<Joined, BrokerError> {
        for _ in 0..TRIES_MAX {
            match self.try_join(request).await {
                Err(BrokerError::Ledger(error)) if was_changed(&error) => {}
                joined => return joined,
            }
        }
        Err(BrokerError::Join(JoinRefusal::MemberInsertFailed))
    }

    async fn try_join(&self, request: &NewMember) -> Result<Joined, BrokerError> {
        let payload = &request.payload;
        let mesh = match MeshId::parse(&payload.mesh_id) {
            Ok(id) => self.mesh(id.as_str()).await?,
            Err(_) => None,
        };
        let owner = mesh.as_ref().map(|mesh| Some(mesh.owner_pubkey));
        check_origin(payload, owner).map_err(BrokerError::Join)?;
        let invite = self.stored_invite(request).await?;
        let member = self.member_by_key(&payload.mesh_id, request.pubkey).await?;
        let member = member.filter(|member| member.is_active() && member.pubkey == request.pubkey);
        let stored = invite.as_ref().map(|invite| StoredInvite {
            mesh_id: invite.value.mesh_id.clone(),
            expires_at_s: invite.value.expires_at_s,
            uses_max: invite.value.uses_max,
            uses: invite.value.uses,
            is_revoked: invite.value.is_revoked,
        });
        let facts = JoinFacts {
            mesh_exists: mesh.is_some(),
            owner: mesh.as_ref().map(|mesh| mesh.owner_pubkey),
            invite: stored.as_ref(),
            is_member: member.is_some(),
            now_s: u64::try_from(self.wall_ms() / 1_000).unwrap_or(0),
        };
        match (decide_join(payload, &facts), invite, member) {
            (Err(refusal), ..) => Err(BrokerError::Join(refusal)),
            (Ok(Join::AlreadyMember), _, Some(member)) => Ok(Joined {
                member_id: member.id,
                already_member: true,
            }),
            (Ok(Join::Admit), Some(invite), None) => self.admit(request, invite).await,
            // The decision contradicts what it was made from.
            (Ok(_), ..) => Err(BrokerError::Join(JoinRefusal::MemberInsertFailed)),
        }
    }

    async fn admit(
        &self,
        request: &NewMember,
        mut invite: Versioned<InviteRecord>,
    ) -> Result<Joined, BrokerError> {
        let mesh_id = &request.payload.mesh_id;
        let member = MeshMember {
            id: self.new_id(),
            mesh_id: mesh_id.clone(),
            pubkey: request.pubkey,
            display_name: request.display_name.to_string(),
            role: invite.value.role,
            joined_at: self.wall_ms(),
            revoked_at: None,
            former_keys: Vec::new(),
            key_id: None,
            groups: Vec::new(),
            grants: PeerGrants::default(),
            is_hidden: false,
            last_seen_host_fingerprint: None,
            clone_suspected_at: None,
        };
        invite.value.uses += 1;
        // The key of a revoked member may join again, as another member.
        let by_key = MeshMember::pubkey_key(mesh_id, request.pubkey);
        let mut by_key: Versioned<String> = self.engine().load_or_default(by_key).await?;
        if !by_key.value.is_empty() {
            let holder = MeshMember::key(mesh_id, &by_key.value);
            let holder: Option<Versioned<MeshMember>> = self.engine().load(holder).await?;
            // Messages to a former key reach the member that had it, and a rotation may have its reason in a stolen key.
            if holder.is_some_and(|holder| holder.value.pubkey != request.pubkey) {
                return Err(BrokerError::Join(JoinRefusal::KeyReplaced));
            }
        }
        by_key.value.clone_from(&member.id);
        let mut unit = UnitOfWork::default();
        unit.replace(&invite);
        unit.replace(&by_key);
        unit.put(MeshMember::key(mesh_id, &member.id), &member);
        unit.put(RosterRecord::key(mesh_id), &RosterRecord {});
        self.join_general(&mut unit, mesh_id, &member.id).await?;
        self.engine().commit(unit).await?;
        Ok(Joined {
            member_id: member.id,
            already_member: false,
        })
    }

    /// The invite of the token. One of the same mesh counts only if the payload is what the token contains.
    async fn stored_invite(
        &self,
        request: &NewMember,
    ) -> Result<Option<Versioned<InviteRecord>>, BrokerError> {
        let Ok(inside) = InvitePayload::parse(&request.token) else {
            return Ok(None);
        };
        if inside.mesh_id == request.payload.mesh_id && inside != request.payload {
            return Ok(None);
        }
        let key = InviteRecord::key(&inside.mesh_id, &digest(&inside.token()));
        Ok(self.engine().load(key).await?)
    }
}
