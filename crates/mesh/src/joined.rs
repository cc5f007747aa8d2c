//! `config.json` of upstream's client: the meshes that a user has joined. It is read unchanged and written in the same shape.
//!
//! Invariant: members that this version does not know are kept when the file is written again. Secret keys are not printed, and are wiped
//! from memory when they are dropped.

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::keys::{MeshKeyError, MeshPrivateKey};

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinedMeshes {
    pub version: u32,
    #[serde(default)]
    pub meshes: Vec<JoinedMesh>,
    /// Everything else, such as `displayName`, `role` and `groups`.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// One mesh with the member's keys.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinedMesh {
    pub mesh_id: String,
    pub member_id: String,
    pub slug: String,
    pub name: String,
    pub pubkey: String,
    #[serde(with = "wiped")]
    pub secret_key: Zeroizing<String>,
    pub broker_url: String,
    pub joined_at: String,
    /// Everything else, such as `rootKey` and `inviteVersion`.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl JoinedMeshes {
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The mesh of that slug.
    pub fn get(&self, slug: &str) -> Option<&JoinedMesh> {
        self.meshes.iter().find(|mesh| mesh.slug == slug)
    }

    /// Adds a mesh, or replaces the one with the same id.
    pub fn put(&mut self, mesh: JoinedMesh) {
        self.meshes.retain(|other| other.mesh_id != mesh.mesh_id);
        self.meshes.push(mesh);
    }
}

impl JoinedMesh {
    pub fn key(&self) -> Result<MeshPrivateKey, MeshKeyError> {
        let key = MeshPrivateKey::parse(&self.secret_key)?;
        if key.public_key().to_string() == self.pubkey.to_lowercase() {
            Ok(key)
        } else {
            Err(MeshKeyError::HalvesDiffer)
        }
    }
}

/// A text that is wiped when it is dropped, as JSON.
mod wiped {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use zeroize::Zeroizing;

    pub(super) fn serialize<S: Serializer>(
        text: &Zeroizing<String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Zeroizing<String>, D::Error> {
        String::deserialize(deserializer).map(Zeroizing::new)
    }
}

impl fmt::Debug for JoinedMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinedMesh")
            .field("slug", &self.slug)
            .field("member_id", &self.member_id)
            .field("pubkey", &self.pubkey)
            .finish_non_exhaustive()
    }
}
