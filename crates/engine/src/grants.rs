//! Grants: the permissions of API keys to claim in reserved namespaces.
//!
//! Invariant: a claim in a reserved namespace commits only while its grant exists. No key has a grant unless an operator made
//! it, not even the main key.

use consign_kernel::ids::Micros;
use consign_kernel::record::{ApiKey, Grant, Key, Kind};
use consign_store::TypedReads as _;

use crate::publication::MAIN_KEY_ID;
use crate::records::Versioned;
use crate::unit_of_work::UnitOfWork;
use crate::{Engine, Error, Operator};

const PAGE: u32 = 500;

/// A grant, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantInfo {
    pub key_id: String,
    pub namespace: String,
    pub granted_at: Micros,
}

impl Engine {
    /// Lets a key, given as key or key id, claim in a namespace. A grant that exists stays unchanged. False if there is no
    /// such key.
    pub async fn grant(&self, _: Operator, key: &str, namespace: &str) -> Result<bool, Error> {
        let id = self.resolve_key_id(key).await?;
        let record = self.new_grant(&id, namespace);
        self.put_if_unchanged(record.put()).await?;
        // Ordering: the key is looked up after the write, and its revocation lists its grants after the removal of the key.
        // So one of the two removes the grant of a revoked key.
        let exists = id == MAIN_KEY_ID || self.record(ApiKey::key(&id)).await?.is_some();
        if !exists {
            self.revoke_grants(vec![record.key]).await?;
        }
        Ok(exists)
    }

    /// Answers whether there was such a grant. Further claims are refused at once; what the key holds it may settle.
    pub async fn revoke_grant(
        &self,
        _: Operator,
        key: &str,
        namespace: &str,
    ) -> Result<bool, Error> {
        let id = self.resolve_key_id(key).await?;
        let mut unit = UnitOfWork::default();
        let deleted = unit.delete(Grant::key(namespace, &id));
        self.commit(unit).await?.get(deleted)
    }

    /// All grants, by namespace.
    pub async fn grants(&self, _: Operator) -> Result<Vec<GrantInfo>, Error> {
        self.all_grants().await
    }

    /// Whether any key has a grant for the namespace.
    pub async fn is_granted_to_any(&self, namespace: &str) -> Result<bool, Error> {
        // No key id is empty, so this is before the first grant of the namespace.
        let after = Grant::key(namespace, "").name;
        let next = self.records(Kind::Grant, "", &after, 1).await?;
        Ok(next
            .first()
            .and_then(|record| Grant::parts(&record.key.name))
            .is_some_and(|(found, _)| found == namespace))
    }

    pub(crate) fn new_grant(&self, key_id: &str, namespace: &str) -> Versioned<Grant> {
        let value = Grant {
            granted_at: self.now().0,
        };
        Versioned::new(Grant::key(namespace, key_id), value)
    }

    pub(crate) async fn grants_of(&self, key_id: &str) -> Result<Vec<Key>, Error> {
        let all = self.all_grants().await?.into_iter();
        Ok(all
            .filter(|grant| grant.key_id == key_id)
            .map(|grant| Grant::key(&grant.namespace, key_id))
            .collect())
    }

    pub(crate) async fn revoke_grants(&self, keys: Vec<Key>) -> Result<(), Error> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut unit = UnitOfWork::default();
        for key in keys {
            unit.delete(key);
        }
        self.commit(unit).await.map(drop)
    }

    pub(crate) async fn all_grants(&self) -> Result<Vec<GrantInfo>, Error> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let store = &self.inner.store;
            let page = store
                .records(Kind::Grant, String::new(), after, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            after = page
                .last()
                .map(|record| record.key.name.clone())
                .unwrap_or_default();
            for record in page {
                let grant: Versioned<Grant> = Versioned::read(record)?;
                if let Some((namespace, key_id)) = Grant::parts(&grant.key.name) {
                    all.push(GrantInfo {
                        key_id: key_id.to_owned(),
                        namespace: namespace.to_owned(),
                        granted_at: Micros(grant.value.granted_at),
                    });
                }
            }
            if is_last {
                return Ok(all);
            }
        }
    }
}
