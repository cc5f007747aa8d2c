//! The members of a mesh as one value, which is kept between messages.
//!
//! Invariant: a list is only used together with its version. Each change of a member writes the record `mesh_roster` of its
//! mesh, and a commit that relies on a list expects the version of that record, so a list of another node's past refuses
//! the commit instead of admitting a message for a member that is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::record::Kind;

use super::records::{MeshMember, RosterRecord};
use super::{Broker, PAGE};
use crate::keys::MeshPublicKey;

/// Lists that are kept; with more meshes than this in use, lists are read again.
const KEPT_MAX: usize = 1_000;

/// The members of one mesh, revoked ones as well.
#[derive(Debug, Default)]
pub(super) struct Roster {
    mesh_id: String,
    version: u64,
    members: HashMap<String, MeshMember>,
    /// Current and former keys.
    by_key: HashMap<MeshPublicKey, String>,
}

impl Roster {
    fn new(mesh_id: &str, version: u64, members: Vec<MeshMember>) -> Self {
        let mut roster = Self {
            mesh_id: mesh_id.to_owned(),
            version,
            ..Self::default()
        };
        // A former key is looked up only if it is no member's present key, and revoked members last.
        let mut owners: Vec<(bool, bool, MeshPublicKey, String)> = Vec::new();
        for member in members {
            let is_active = member.is_active();
            let keys = member.former_keys.iter().map(|key| (true, *key));
            for (is_former, key) in keys.chain([(false, member.pubkey)]) {
                owners.push((is_active, !is_former, key, member.id.clone()));
            }
            roster.members.insert(member.id.clone(), member);
        }
        owners.sort_unstable();
        let by_key = owners.into_iter().map(|(_, _, key, id)| (key, id));
        roster.by_key = by_key.collect();
        roster
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// The active member with this id.
    pub(super) fn active(&self, id: &str) -> Option<&MeshMember> {
        self.members.get(id).filter(|member| member.is_active())
    }

    /// The member that has this key now, or had it when it was revoked.
    pub(super) fn holder_of(&self, key: MeshPublicKey) -> Option<&MeshMember> {
        let member = self.members.get(self.by_key.get(&key)?)?;
        Some(member).filter(|member| member.pubkey == key)
    }

    /// Whether a member has or had this key, whoever it is.
    pub(super) fn is_of_member(&self, key: MeshPublicKey) -> bool {
        self.by_key.contains_key(&key)
    }

    /// The member with this id, if it was revoked.
    pub(super) fn revoked(&self, id: &str) -> Option<&MeshMember> {
        self.members.get(id).filter(|member| !member.is_active())
    }

    /// The active member that has or had this key.
    pub(super) fn by_key(&self, key: MeshPublicKey) -> Option<&MeshMember> {
        self.active(self.by_key.get(&key)?)
    }

    /// All active members, by their ids.
    pub(super) fn all_active(&self) -> Vec<&MeshMember> {
        let active = self.members.values().filter(|member| member.is_active());
        let mut active: Vec<&MeshMember> = active.collect();
        active.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        active
    }

    /// Refuses the commit if a member was changed since the list was read.
    pub(super) fn expect_unchanged(&self, unit: &mut UnitOfWork) {
        unit.expect(RosterRecord::key(&self.mesh_id), self.version);
    }
}

/// The lists that were read last.
#[derive(Debug, Default)]
pub(super) struct Rosters(Mutex<HashMap<String, Arc<Roster>>>);

impl Rosters {
    fn kept(&self) -> MutexGuard<'_, HashMap<String, Arc<Roster>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Broker {
    /// The members as of some moment: good for a commit that expects the version.
    pub(super) async fn roster(&self, mesh_id: &str) -> Result<Arc<Roster>, Error> {
        let kept = self.inner.rosters.kept().get(mesh_id).cloned();
        match kept {
            Some(roster) => Ok(roster),
            None => self.current_roster(mesh_id).await,
        }
    }

    /// The members as of now. They are read only if the kept list is outdated.
    pub(super) async fn current_roster(&self, mesh_id: &str) -> Result<Arc<Roster>, Error> {
        let record = self
            .engine()
            .load::<RosterRecord>(RosterRecord::key(mesh_id));
        // Ordering: the version is read before the members, so a list is never older than its version.
        let version = record.await?.map_or(0, |record| record.version);
        let kept = self.inner.rosters.kept().get(mesh_id).cloned();
        if let Some(roster) = kept.filter(|roster| roster.version == version) {
            return Ok(roster);
        }
        let members = self.members_of(mesh_id).await?;
        let roster = Arc::new(Roster::new(mesh_id, version, members));
        let mut kept = self.inner.rosters.kept();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(mesh_id.to_owned(), Arc::clone(&roster));
        Ok(roster)
    }

    /// All members that a mesh ever had, those who joined first first.
    pub(super) async fn members_of(&self, mesh_id: &str) -> Result<Vec<MeshMember>, Error> {
        let mut members: Vec<MeshMember> = Vec::new();
        loop {
            let after = members.last().map_or("", |last| &last.id).to_owned();
            let engine = self.engine();
            let page = engine
                .records(Kind::MeshMember, mesh_id, &after, PAGE)
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
}
