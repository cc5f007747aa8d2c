//! The members of a mesh: list them, find one by its key, revoke one.

use consign_engine::{Operator, Versioned};
use consign_kernel::record::Kind;

use super::records::MeshMember;
use super::{Broker, BrokerError, PAGE};
use crate::id::DisplayName;
use crate::keys::MeshPublicKey;

impl Broker {
    /// All members, those who joined first first. Revoked ones are among them.
    pub async fn members(
        &self,
        _operator: Operator,
        slug: &str,
    ) -> Result<Vec<MeshMember>, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let mut members: Vec<MeshMember> = Vec::new();
        loop {
            let after = members.last().map_or("", |last| &last.id).to_owned();
            let engine = self.engine();
            let page = engine
                .records(Kind::MeshMember, &mesh.id, &after, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                members.push(Versioned::read(record)?.value);
            }
            if is_last {
                return Ok(members);
            }
        }
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

    /// Ends a membership for good. The id of the member never becomes valid again.
    pub async fn revoke_member(
        &self,
        _operator: Operator,
        slug: &str,
        pubkey: MeshPublicKey,
    ) -> Result<MeshMember, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let missing = || BrokerError::NoSuchMember(pubkey.to_string());
        let member = self.member_by_key(&mesh.id, pubkey).await?;
        let member = member.ok_or_else(missing)?;
        let (key, now) = (MeshMember::key(&mesh.id, &member.id), self.wall_ms());
        self.engine()
            .update(key, |stored: &mut Option<MeshMember>| {
                let member = stored.as_mut().ok_or_else(missing)?;
                member.revoked_at.get_or_insert(now);
                Ok(member.clone())
            })
            .await
    }

    /// Changes the name that a member shows to others.
    pub async fn rename_member(
        &self,
        _operator: Operator,
        slug: &str,
        pubkey: MeshPublicKey,
        name: &DisplayName,
    ) -> Result<MeshMember, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let missing = || BrokerError::NoSuchMember(pubkey.to_string());
        let member = self.member_by_key(&mesh.id, pubkey).await?;
        let member = member.ok_or_else(missing)?;
        let key = MeshMember::key(&mesh.id, &member.id);
        self.engine()
            .update(key, |stored: &mut Option<MeshMember>| {
                let member = stored.as_mut().ok_or_else(missing)?;
                name.as_str().clone_into(&mut member.display_name);
                Ok(member.clone())
            })
            .await
    }
}
