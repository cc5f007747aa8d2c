//! Invites: signed by the owner of a mesh, stored by the digest of their token.

use consign_engine::{Error, Operator, TRIES_MAX, UnitOfWork, Versioned};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, Micros};
use consign_kernel::record::Kind;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::records::{InviteRecord, MeshRecord};
use super::{Broker, BrokerError, PAGE, was_changed};
use crate::invite::InvitePayload;
use crate::role::MemberRole;

/// The record of an invite outlives it by this time, so that a late guest learns that it has expired.
const KEPT_AFTER_END_US: i64 = 30 * DAY_US;

/// An invite to create.
#[derive(Clone, Copy, Debug)]
pub struct NewInvite {
    pub role: MemberRole,
    pub uses_max: u32,
    pub valid_for_s: u64,
}

/// An invite as operators see it: without its token, which is a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshInvite {
    /// The digest of the token.
    pub id: String,
    pub role: MemberRole,
    /// Seconds since 1970.
    pub expires_at_s: u64,
    pub uses_max: u32,
    pub uses: u32,
    pub is_revoked: bool,
}

impl Broker {
    /// The invites of a mesh, in no useful order. Those that ended 30 days ago are gone.
    pub async fn invites(
        &self,
        _operator: Operator,
        slug: &str,
    ) -> Result<Vec<MeshInvite>, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let mut invites: Vec<MeshInvite> = Vec::new();
        loop {
            let after = invites.last().map_or("", |last| &last.id).to_owned();
            let engine = self.engine();
            let page = engine
                .records(Kind::MeshInvite, &mesh.id, &after, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                let id = record.key.name.clone();
                let invite: InviteRecord = Versioned::read(record)?.value;
                invites.push(invite.shown_as(id));
            }
            if is_last {
                return Ok(invites);
            }
        }
    }

    /// Ends an invite. Members that joined with it stay.
    pub async fn revoke_invite(
        &self,
        _operator: Operator,
        slug: &str,
        id: &str,
    ) -> Result<MeshInvite, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let key = InviteRecord::key(&mesh.id, id);
        self.engine()
            .update(key, |stored: &mut Option<InviteRecord>| {
                let missing = || BrokerError::NoSuchInvite(id.to_owned());
                let invite = stored.as_mut().ok_or_else(missing)?;
                invite.is_revoked = true;
                Ok(invite.clone().shown_as(id.to_owned()))
            })
            .await
    }

    /// Creates an invite. Its token is a secret, and it is not stored.
    pub async fn invite(
        &self,
        _operator: Operator,
        slug: &str,
        new: NewInvite,
    ) -> Result<InvitePayload, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let now_s = u64::try_from(self.wall_ms() / 1_000).unwrap_or(0);
        let mut expires_at = now_s.saturating_add(new.valid_for_s);
        // Invites of one second with the same contents would be one invite: a later end tells them apart.
        for _ in 0..TRIES_MAX {
            match self.invite_until(&mesh, new, expires_at).await {
                Err(BrokerError::Ledger(error)) if was_changed(&error) => expires_at += 1,
                invited => return invited,
            }
        }
        Err(Error::Refused(Refusal::VersionMismatch).into())
    }

    async fn invite_until(
        &self,
        mesh: &MeshRecord,
        new: NewInvite,
        expires_at: u64,
    ) -> Result<InvitePayload, BrokerError> {
        let payload = InvitePayload {
            v: 0,
            mesh_id: mesh.id.clone(),
            mesh_slug: mesh.slug.clone(),
            broker_url: self.inner.settings.url.clone(),
            expires_at,
            mesh_root_key: self.root_key(mesh)?.to_string(),
            role: new.role,
            owner_pubkey: String::new(),
            signature: String::new(),
        };
        let payload = payload.signed(&self.owner_key(mesh)?);
        let record = InviteRecord {
            mesh_id: mesh.id.clone(),
            role: new.role,
            expires_at_s: expires_at,
            uses_max: new.uses_max,
            uses: 0,
            is_revoked: false,
        };
        let key = InviteRecord::key(&mesh.id, &digest(&payload.token()));
        let mut unit = UnitOfWork::default();
        unit.expect(key.clone(), 0);
        unit.put_until(key, &record, self.end_of_record(expires_at));
        self.engine().commit(unit).await?;
        Ok(payload)
    }

    pub(super) fn end_of_record(&self, expires_at_s: u64) -> Micros {
        let end_us = i64::try_from(expires_at_s)
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000)
            .saturating_add(KEPT_AFTER_END_US);
        Micros(end_us.max(self.engine().now().0))
    }
}

impl InviteRecord {
    fn shown_as(self, id: String) -> MeshInvite {
        MeshInvite {
            id,
            role: self.role,
            expires_at_s: self.expires_at_s,
            uses_max: self.uses_max,
            uses: self.uses,
            is_revoked: self.is_revoked,
        }
    }
}

/// Under which an invite is stored.
pub(super) fn digest(token: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(token))
}
