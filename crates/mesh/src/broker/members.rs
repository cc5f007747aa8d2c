//! The members of a mesh: list them, find one by its key, revoke one.

use consign_engine::{Operator, Versioned};

use super::records::{MeshMember, MeshRecord, RosterRecord};
use super::{Broker, BrokerError};
use crate::id::DisplayName;
use crate::keys::MeshPublicKey;
use crate::role::{PeerGrant, PeerGrants};

impl Broker {
    /// All members, those who joined first first. Revoked ones are among them.
    pub async fn members(
        &self,
        _operator: Operator,
        slug: &str,
    ) -> Result<Vec<MeshMember>, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        Ok(self.members_of(&mesh.id).await?)
    }

    pub(super) async fn member_by_key(
        &self,
        mesh_id: &str,
        pubkey: MeshPublicKey,
    ) -> Result<Option<MeshMember>, BrokerError> {
        let key = MeshMember::pubkey_key(mesh_id, pubkey);
        let Some(id) = self.engine().load::<String>(key).await? else {
            return Ok(None);
        };
        let found = self.engine().load(MeshMember::key(mesh_id, &id.value));
        Ok(found.await?.map(|found| found.value))
    }

    /// The mesh, and its active member with this key.
    pub(crate) async fn active_member(
        &self,
        mesh_id: &str,
        pubkey: MeshPublicKey,
    ) -> Result<Option<(MeshRecord, MeshMember)>, BrokerError> {
        let Some(mesh) = self.mesh(mesh_id).await? else {
            return Ok(None);
        };
        let member = self.member_by_key(mesh_id, pubkey).await?;
        let member = member.filter(|member| member.is_active() && member.pubkey == pubkey);
        Ok(member.map(|member| (mesh, member)))
    }

    /// Ends a membership for good. The id of the member never becomes valid again.
    pub async fn revoke_member(
        &self,
        _operator: Operator,
        slug: &str,
        pubkey: MeshPublicKey,
    ) -> Result<MeshMember, BrokerError> {
        let (mesh, id) = self.named_member(slug, pubkey).await?;
        self.leave(&mesh, &id).await
    }

    /// The same by the member itself.
    pub(crate) async fn leave(&self, mesh_id: &str, id: &str) -> Result<MeshMember, BrokerError> {
        let now = self.wall_ms();
        let member = self
            .change_member(mesh_id, id, |member| {
                member.revoked_at.get_or_insert(now);
            })
            .await?;
        self.end_member(&member);
        Ok(member)
    }

    /// Changes the name that a member shows to others.
    pub async fn rename_member(
        &self,
        _operator: Operator,
        slug: &str,
        pubkey: MeshPublicKey,
        name: &DisplayName,
    ) -> Result<MeshMember, BrokerError> {
        let (mesh, id) = self.named_member(slug, pubkey).await?;
        self.rename(&mesh, &id, name).await
    }

    /// Replaces what a member lets another one do; without a list, that is the default. Returns all of its lists.
    pub(super) async fn grant(
        &self,
        mesh_id: &str,
        id: &str,
        to: MeshPublicKey,
        grants: Option<&[PeerGrant]>,
    ) -> Result<PeerGrants, BrokerError> {
        let roster = self.current_roster(mesh_id).await?;
        let to = roster.by_key(to);
        let to = to.ok_or_else(|| BrokerError::NoSuchMember("this key".to_owned()))?;
        let keys: Vec<MeshPublicKey> = to.keys().collect();
        let changed = self.change_member(mesh_id, id, |member| {
            member.grants.0.retain(|key, _| !keys.contains(key));
            if let Some(grants) = grants {
                member.grants.0.insert(to.pubkey, sorted(grants));
            }
        });
        Ok(changed.await?.grants)
    }

    /// The same by an operator.
    pub async fn grant_for(
        &self,
        _operator: Operator,
        slug: &str,
        pubkey: MeshPublicKey,
        to: MeshPublicKey,
        grants: Option<&[PeerGrant]>,
    ) -> Result<MeshMember, BrokerError> {
        let (mesh, id) = self.named_member(slug, pubkey).await?;
        self.grant(&mesh, &id, to, grants).await?;
        let member = self.engine().load(MeshMember::key(&mesh, &id)).await?;
        let member = member.ok_or_else(|| BrokerError::NoSuchMember(pubkey.to_string()))?;
        Ok(member.value)
    }

    /// What a member lets others do, where it is not the default.
    pub(super) async fn grants_of(
        &self,
        mesh_id: &str,
        id: &str,
    ) -> Result<PeerGrants, BrokerError> {
        let roster = self.current_roster(mesh_id).await?;
        let grants = roster.active(id).map(|member| member.grants.clone());
        Ok(grants.unwrap_or_default())
    }

    async fn named_member(
        &self,
        slug: &str,
        pubkey: MeshPublicKey,
    ) -> Result<(String, String), BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let member = self.member_by_key(&mesh.id, pubkey).await?;
        let member = member.ok_or_else(|| BrokerError::NoSuchMember(pubkey.to_string()))?;
        Ok((mesh.id, member.id))
    }

    /// Changes a member, and with it the version of the list of members.
    pub(super) async fn change_member(
        &self,
        mesh_id: &str,
        id: &str,
        change: impl Fn(&mut MeshMember),
    ) -> Result<MeshMember, BrokerError> {
        let missing = || BrokerError::NoSuchMember(id.to_owned());
        self.engine()
            .update_with(
                MeshMember::key(mesh_id, id),
                |stored: &mut Versioned<Option<MeshMember>>, unit| {
                    let member = stored.value.as_mut().ok_or_else(missing)?;
                    let before = member.clone();
                    change(member);
                    if *member != before {
                        unit.put(RosterRecord::key(mesh_id), &RosterRecord {});
                    }
                    Ok(member.clone())
                },
            )
            .await
    }
}

/// Each grant once.
fn sorted(grants: &[PeerGrant]) -> Vec<PeerGrant> {
    let mut grants = grants.to_vec();
    grants.sort_unstable();
    grants.dedup();
    grants
}
