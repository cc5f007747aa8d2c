//! What the connections of this node know of their meshes: names and keys of members, and shared values.
//!
//! Invariant: a change is told once on each node, by the loop that follows the ledger, whether it happened here or at another
//! node. Only meshes that are in use here are kept, and only on a ledger that has several nodes: a node that is alone tells at
//! once what it does itself.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::records::MeshMember;
use crate::keys::MeshPublicKey;

#[derive(Debug, Default)]
pub(super) struct ToldMeshes(Mutex<HashMap<String, ToldMesh>>);

#[derive(Debug, Default)]
struct ToldMesh {
    /// By id.
    members: HashMap<String, ToldMember>,
    /// The version of the list of members that was compared last.
    roster: Option<u64>,
    /// The versions of the shared values, by key.
    values: HashMap<String, u64>,
    /// The version of the mark of the shared values that was compared last.
    mark: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ToldMember {
    name: String,
    key: MeshPublicKey,
}

/// What the connections of a node do not know of a member yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberNews {
    Renamed { old: String },
    Rotated { old: MeshPublicKey },
}

impl ToldMember {
    fn of(member: &MeshMember) -> Self {
        Self {
            name: member.display_name.clone(),
            key: member.pubkey,
        }
    }

    fn news_of(&self, member: &MeshMember) -> impl Iterator<Item = MemberNews> + use<> {
        let renamed = (self.name != member.display_name).then(|| MemberNews::Renamed {
            old: self.name.clone(),
        });
        let rotated = (self.key != member.pubkey).then_some(MemberNews::Rotated { old: self.key });
        renamed.into_iter().chain(rotated)
    }
}

impl ToldMeshes {
    fn meshes(&self) -> MutexGuard<'_, HashMap<String, ToldMesh>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the meshes that are not in use here.
    pub(super) fn keep(&self, is_in_use: impl Fn(&str) -> bool) {
        self.meshes().retain(|mesh_id, _| is_in_use(mesh_id));
    }

    /// Notes a member before it is changed here, so that the change is news also to a node that has not compared the mesh yet.
    pub(super) fn expect_change(&self, member: &MeshMember) {
        let mut meshes = self.meshes();
        let mesh = meshes.entry(member.mesh_id.clone()).or_default();
        let known = || ToldMember::of(member);
        mesh.members.entry(member.id.clone()).or_insert_with(known);
    }

    /// The same for a shared value, which has version 0 before it is set.
    pub(super) fn expect_value(&self, mesh_id: &str, name: &str, version: u64) {
        let mut meshes = self.meshes();
        let mesh = meshes.entry(mesh_id.to_owned()).or_default();
        mesh.values.entry(name.to_owned()).or_insert(version);
    }

    /// What is new of the members of a mesh; it counts as told from now on. A member that is seen for the first time is no news.
    pub(super) fn compare_members<'a>(
        &self,
        mesh_id: &str,
        version: u64,
        members: impl IntoIterator<Item = &'a MeshMember>,
    ) -> Vec<(&'a MeshMember, MemberNews)> {
        let mut meshes = self.meshes();
        let mesh = meshes.entry(mesh_id.to_owned()).or_default();
        if mesh.roster == Some(version) {
            return Vec::new();
        }
        mesh.roster = Some(version);
        let mut news = Vec::new();
        for member in members {
            let known = mesh
                .members
                .insert(member.id.clone(), ToldMember::of(member));
            let of_member = known.iter().flat_map(|known| known.news_of(member));
            news.extend(of_member.map(|one| (member, one)));
        }
        news
    }

    /// Whether shared values may have changed since they were compared.
    pub(super) fn is_mark_new(&self, mesh_id: &str, mark: u64) -> bool {
        let meshes = self.meshes();
        meshes.get(mesh_id).and_then(|mesh| mesh.mark) != Some(mark)
    }

    /// The names of the values that are new; they count as told from now on. `mark` was read before the values. The first time
    /// only those are news that are set here.
    pub(super) fn compare_values(
        &self,
        mesh_id: &str,
        mark: u64,
        values: &[(String, u64)],
    ) -> Vec<String> {
        let mut meshes = self.meshes();
        let mesh = meshes.entry(mesh_id.to_owned()).or_default();
        let is_first = mesh.mark.replace(mark).is_none();
        let mut news = Vec::new();
        for (name, version) in values {
            let known = mesh.values.insert(name.clone(), *version);
            if known.map_or(!is_first, |known| known < *version) {
                news.push(name.clone());
            }
        }
        news
    }
}
