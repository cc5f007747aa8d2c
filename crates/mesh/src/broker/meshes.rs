//! Meshes: create one, list them, find one by its slug.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use consign_engine::{Operator, UnitOfWork, Versioned};
use consign_kernel::record::Kind;

use super::records::{DedupeRetention, MeshRecord};
use super::{Broker, BrokerError, PAGE, was_changed};
use crate::id::{DisplayName, MeshSlug};
use crate::keys::MeshPrivateKey;
use crate::role::ClonePolicy;

/// A mesh to create.
#[derive(Clone, Debug)]
pub struct NewMesh {
    pub slug: MeshSlug,
    pub name: DisplayName,
    pub clone_policy: ClonePolicy,
    pub dedupe: DedupeRetention,
    pub message_days: u32,
}

impl Broker {
    /// Creates a mesh with an owner's key and a root key of its own.
    pub async fn create_mesh(
        &self,
        _operator: Operator,
        new: NewMesh,
    ) -> Result<MeshRecord, BrokerError> {
        let id = self.new_id();
        let owner = MeshPrivateKey::from_seed(&self.random());
        let root_key = BASE64_URL_SAFE_NO_PAD.encode(*self.random::<32>());
        let root_key = zeroize::Zeroizing::new(root_key);
        let engine = self.engine();
        let mesh = MeshRecord {
            slug: new.slug.to_string(),
            name: new.name.to_string(),
            owner_pubkey: owner.public_key(),
            owner_secret: engine.seal(&owner_secret_name(&id), &owner.reveal())?,
            root_key: engine.seal(&root_key_name(&id), &root_key)?,
            clone_policy: new.clone_policy,
            dedupe: new.dedupe,
            message_days: new.message_days,
            created_at: self.wall_ms(),
            id,
        };
        let slug = MeshRecord::slug_key(&mesh.slug);
        let mut unit = UnitOfWork::default();
        unit.expect(slug.clone(), 0);
        unit.put(slug, &mesh.id);
        unit.put(MeshRecord::key(&mesh.id), &mesh);
        match engine.commit(unit).await {
            Ok(_) => Ok(mesh),
            Err(error) if was_changed(&error) => Err(BrokerError::SlugTaken(mesh.slug)),
            Err(error) => Err(error.into()),
        }
    }

    /// All meshes, oldest first.
    pub async fn meshes(&self, _operator: Operator) -> Result<Vec<MeshRecord>, BrokerError> {
        let mut meshes: Vec<MeshRecord> = Vec::new();
        loop {
            let after = meshes.last().map_or("", |last| &last.id).to_owned();
            let page = self.engine().records(Kind::Mesh, "", &after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                meshes.push(Versioned::read(record)?.value);
            }
            if is_last {
                return Ok(meshes);
            }
        }
    }

    pub async fn mesh_by_slug(&self, slug: &str) -> Result<MeshRecord, BrokerError> {
        let id = self.engine().load::<String>(MeshRecord::slug_key(slug));
        let missing = || BrokerError::NoSuchMesh(slug.to_owned());
        let id = id.await?.ok_or_else(missing)?.value;
        self.mesh(&id).await?.ok_or_else(missing)
    }

    pub async fn mesh(&self, id: &str) -> Result<Option<MeshRecord>, BrokerError> {
        let found = self.engine().load(MeshRecord::key(id)).await?;
        Ok(found.map(|found| found.value))
    }

    /// The key that signs the invites of a mesh.
    pub(super) fn owner_key(&self, mesh: &MeshRecord) -> Result<MeshPrivateKey, BrokerError> {
        let name = owner_secret_name(&mesh.id);
        let secret = self.engine().unseal(&name, &mesh.owner_secret)?;
        MeshPrivateKey::parse(&secret).map_err(|error| {
            let text = format!(
                "the owner's key of mesh {} cannot be read: {error}",
                mesh.id
            );
            consign_engine::Error::Internal(text).into()
        })
    }

    /// What members encrypt with that have no keys of each other yet, base64url.
    pub(super) fn root_key(
        &self,
        mesh: &MeshRecord,
    ) -> Result<zeroize::Zeroizing<String>, BrokerError> {
        Ok(self
            .engine()
            .unseal(&root_key_name(&mesh.id), &mesh.root_key)?)
    }
}

/// The name under which a secret is encrypted, so that it cannot take the place of another one.
fn owner_secret_name(mesh_id: &str) -> String {
    format!("mesh owner {mesh_id}")
}

fn root_key_name(mesh_id: &str) -> String {
    format!("mesh root key {mesh_id}")
}
