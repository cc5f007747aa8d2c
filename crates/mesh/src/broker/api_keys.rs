//! API keys: a program that has one acts as one member of one mesh, within capabilities and topics.
//!
//! Invariant: only the digest of a key is stored, so a key is shown once. A key ends with its member.

use consign_engine::{Operator, Versioned};
use consign_kernel::record::{Key, Kind};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{Broker, BrokerError, MeshMember, MeshRecord, PAGE};
use crate::id::TopicName;
use crate::keys::MeshPublicKey;
use crate::role::{ApiCapability, ApiScope};

/// What every key begins with, so that it is recognised in logs and by scanners.
const PREFIX: &str = "cmk_";
/// Longer texts are no key.
const KEY_CHARS_MAX: usize = 128;

/// A key to create.
#[derive(Clone, Debug)]
pub struct NewMeshApiKey {
    pub member: MeshPublicKey,
    pub label: String,
    pub scope: ApiScope,
}

/// A key without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshApiKey {
    /// The digest of the key.
    pub id: String,
    pub member_id: String,
    pub label: String,
    pub scope: ApiScope,
    /// Milliseconds since 1970.
    pub created_at: i64,
    pub is_revoked: bool,
}

/// Who a request with a key acts as.
#[derive(Clone, Debug)]
pub(crate) struct KeyHolder {
    pub(crate) mesh: MeshRecord,
    pub(crate) member: MeshMember,
    pub(crate) scope: ApiScope,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ApiKeyRecord {
    mesh_id: String,
    member_id: String,
    label: String,
    capabilities: Vec<ApiCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topics: Option<Vec<TopicName>>,
    created_at: i64,
    #[serde(default)]
    is_revoked: bool,
}

impl Broker {
    /// Creates a key. Its text is not stored.
    pub async fn create_api_key(
        &self,
        _operator: Operator,
        slug: &str,
        new: NewMeshApiKey,
    ) -> Result<(Zeroizing<String>, MeshApiKey), BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let member = self.member_by_key(&mesh.id, new.member).await?;
        let member = member.filter(|member| member.revoked_at.is_none());
        let member = member.ok_or_else(|| BrokerError::NoSuchMember(new.member.to_string()))?;
        let secret = BASE64URL_NOPAD.encode(&*self.random::<32>());
        let text = Zeroizing::new(format!("{PREFIX}{secret}"));
        let record = ApiKeyRecord {
            mesh_id: mesh.id,
            member_id: member.id,
            label: new.label,
            capabilities: new.scope.capabilities,
            topics: new.scope.topics,
            created_at: self.wall_ms(),
            is_revoked: false,
        };
        let id = digest(&text);
        let put = consign_engine::new_put(record_key(&id), &record);
        self.engine().put(put).await?;
        Ok((text, record.shown_as(id)))
    }

    /// The keys of a mesh, oldest first. Revoked ones are among them.
    pub async fn api_keys(
        &self,
        _operator: Operator,
        slug: &str,
    ) -> Result<Vec<MeshApiKey>, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let (mut keys, mut after) = (Vec::new(), String::new());
        loop {
            let engine = self.engine();
            let page = engine.records(Kind::MeshApiKey, "", &after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                after.clone_from(&record.key.name);
                let key: ApiKeyRecord = Versioned::read(record)?.value;
                if key.mesh_id == mesh.id {
                    keys.push(key.shown_as(after.clone()));
                }
            }
            if is_last {
                break;
            }
        }
        keys.sort_by_key(|key| key.created_at);
        Ok(keys)
    }

    /// Ends a key at once.
    pub async fn revoke_api_key(
        &self,
        _operator: Operator,
        slug: &str,
        id: &str,
    ) -> Result<MeshApiKey, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        self.engine()
            .update(record_key(id), |stored: &mut Option<ApiKeyRecord>| {
                let key = stored.as_mut().filter(|key| key.mesh_id == mesh.id);
                let key = key.ok_or_else(|| BrokerError::NoSuchKey(id.to_owned()))?;
                key.is_revoked = true;
                Ok(key.clone().shown_as(id.to_owned()))
            })
            .await
    }

    /// Who a key stands for; `None` if it is unknown or revoked, or if its member is.
    pub(crate) async fn key_holder(&self, text: &str) -> Result<Option<KeyHolder>, BrokerError> {
        if !text.starts_with(PREFIX) || text.len() > KEY_CHARS_MAX {
            return Ok(None);
        }
        let found = self
            .engine()
            .load::<ApiKeyRecord>(record_key(&digest(text)));
        let Some(key) = found.await?.map(|found| found.value) else {
            return Ok(None);
        };
        let member = MeshMember::key(&key.mesh_id, &key.member_id);
        let member = self.engine().load::<MeshMember>(member).await?;
        let member = member.map(|found| found.value);
        let member = member.filter(|member| member.revoked_at.is_none() && !key.is_revoked);
        let mesh = self.mesh(&key.mesh_id).await?;
        Ok(mesh.zip(member).map(|(mesh, member)| KeyHolder {
            mesh,
            member,
            scope: key.scope(),
        }))
    }
}

impl ApiKeyRecord {
    fn scope(&self) -> ApiScope {
        ApiScope {
            capabilities: self.capabilities.clone(),
            topics: self.topics.clone(),
        }
    }

    fn shown_as(self, id: String) -> MeshApiKey {
        MeshApiKey {
            id,
            scope: self.scope(),
            member_id: self.member_id,
            label: self.label,
            created_at: self.created_at,
            is_revoked: self.is_revoked,
        }
    }
}

/// The key has 256 random bits, so its digest needs no salt.
fn digest(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text))
}

fn record_key(id: &str) -> Key {
    Key {
        kind: Kind::MeshApiKey,
        owner: String::new(),
        name: id.to_owned(),
    }
}
