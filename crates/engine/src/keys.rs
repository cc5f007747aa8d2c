//! API keys: creation, lookup by digest, rotation, encrypted storage.
//!
//! The id of a key follows from its first secret and never changes: intents, grants and limits refer to it. A secret that a
//! rotation made finds the key through an alias record under the id that a key made with that secret would have.
//!
//! Invariant: the plain text of a key leaves this module once, when the key is created. In the database it is
//! encrypted with the seal key, so the database alone contains no usable key.

mod change;
mod rights;

use std::fmt;
use std::sync::Arc;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use consign_kernel::command::Forget;
use consign_kernel::ids::Micros;
use consign_kernel::limits;
use consign_kernel::record::{ApiKey, ApiKeyAlias, Kind, Record};
use consign_store::TypedReads as _;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::publication::MAIN_KEY_ID;
use crate::records::Versioned;
use crate::unit_of_work::UnitOfWork;
use crate::{Caller, Engine, Error, Operator};

pub(crate) use rights::KeyRights;
pub use rights::{Authenticated, KeyEnd, KeyInfo, KeySettings};

/// The main key has no record.
const MAIN: &str = MAIN_KEY_ID;
const PAGE: u32 = 500;

/// The key that encrypts API keys. Zeroed when dropped.
pub struct SealKey(Zeroizing<[u8; 32]>);

impl SealKey {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }

    /// A fingerprint of this key and further bytes, which reveals neither.
    pub(crate) fn mark(&self, purpose: &[u8], of: &[u8]) -> String {
        let mut hash = Sha256::new();
        for part in [purpose, &[0], self.0.as_slice(), of] {
            hash.update(part);
        }
        HEXLOWER.encode(&hash.finalize())
    }

    /// The key id is authenticated too, so that an encrypted key cannot be moved to another record.
    fn seal(&self, id: &str, secret: &str) -> Result<String, Error> {
        let mut nonce = [0_u8; 24];
        getrandom::fill(&mut nonce).map_err(|error| Error::Internal(error.to_string()))?;
        let payload = Payload {
            msg: secret.as_bytes(),
            aad: id.as_bytes(),
        };
        let sealed = self
            .cipher()
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|error| Error::Seal(error.to_string()))?;
        Ok(HEXLOWER.encode(&[nonce.as_slice(), sealed.as_slice()].concat()))
    }

    fn open(&self, id: &str, sealed: &str) -> Result<Zeroizing<String>, Error> {
        let unfit = || Error::Seal(id.to_owned());
        let bytes = HEXLOWER.decode(sealed.as_bytes()).map_err(|_| unfit())?;
        let (nonce, sealed) = bytes.split_at_checked(24).ok_or_else(unfit)?;
        let nonce: [u8; 24] = nonce.try_into().map_err(|_| unfit())?;
        let payload = Payload {
            msg: sealed,
            aad: id.as_bytes(),
        };
        let opened = self
            .cipher()
            .decrypt(&XNonce::from(nonce), payload)
            .map_err(|_| unfit())?;
        String::from_utf8(opened)
            .map(Zeroizing::new)
            .map_err(|_| unfit())
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

/// A new key. Its plain text is available only here.
#[derive(Clone)]
pub struct NewKey {
    pub id: String,
    pub secret: String,
    pub owner: String,
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey")
            .field("id", &self.id)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

pub(crate) fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// The public id of a key: enough of its digest to be unique, too little to be used as a key.
pub fn key_id(secret: &str) -> String {
    id_of(&digest(secret))
}

fn id_of(digest: &[u8; 32]) -> String {
    format!("k_{}", HEXLOWER.encode(&digest[..8]))
}

/// The same for a digest as it is stored.
fn id_of_digest(digest: &str) -> String {
    format!("k_{}", digest.get(..16).unwrap_or(digest))
}

fn new_secret() -> Result<String, Error> {
    let mut random = [0_u8; 20];
    getrandom::fill(&mut random).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(format!("tk_{}", HEXLOWER.encode(&random)))
}

impl Engine {
    /// Encrypts a secret that a face stores in the ledger, bound to a name.
    pub fn seal(&self, name: &str, secret: &str) -> Result<String, Error> {
        self.inner.seal.seal(name, secret)
    }

    /// Decrypts what [`Engine::seal`] encrypted under this name.
    pub fn unseal(&self, name: &str, sealed: &str) -> Result<Zeroizing<String>, Error> {
        self.inner.seal.open(name, sealed)
    }

    /// The caller with this key. The comparison takes constant time.
    pub async fn authenticate(&self, secret: &str) -> Result<Authenticated, Error> {
        let digest = digest(secret);
        if digest.ct_eq(&self.inner.main_digest).into() {
            return Ok(Authenticated::Caller(Caller {
                id: MAIN.to_owned(),
                main: true,
                rights: None,
            }));
        }
        let secret_id = id_of(&digest);
        let Some(record) = self.key_record(&secret_id).await? else {
            return Ok(Authenticated::Unknown);
        };
        let key = parse(&record)?;
        let digest = HEXLOWER.encode(&digest);
        let matches = |stored: &str| bool::from(digest.as_bytes().ct_eq(stored.as_bytes()));
        let now = self.now();
        if !matches(&key.digest) {
            match key.past_secrets.iter().find(|past| matches(&past.digest)) {
                None => return Ok(Authenticated::Unknown),
                Some(past) if past.until <= now.0 => {
                    return Ok(Authenticated::Expired(Micros(past.until)));
                }
                Some(_) => {}
            }
        }
        if let Some(end) = key.expires_at.filter(|_| key.is_expired(now)) {
            return Ok(Authenticated::Expired(Micros(end)));
        }
        Ok(Authenticated::Caller(Caller {
            id: record.key.name,
            main: false,
            rights: Some(Arc::new(KeyRights {
                scopes: key.scopes().to_vec(),
                open_max: key.open_max(),
                has_own_rate: key.rate.is_some(),
                namespaces: key.namespaces,
                secret_id,
            })),
        }))
    }

    /// The record of a key by its id, or by the id that follows from one of its secrets.
    async fn key_record(&self, id: &str) -> Result<Option<Record>, Error> {
        if let Some(record) = self.record(ApiKey::key(id)).await? {
            return Ok(Some(record));
        }
        let alias: Option<Versioned<ApiKeyAlias>> = self.load(ApiKeyAlias::key(id)).await?;
        match alias {
            Some(alias) => self.record(ApiKey::key(&alias.value.key_id)).await,
            None => Ok(None),
        }
    }

    /// The id of the key that clients name by a key, a secret of a rotation, or a key id. A name of no key is returned as an
    /// id that no key has.
    pub async fn resolve_key_id(&self, text: &str) -> Result<String, Error> {
        let id = self.publisher_id(text);
        if id == MAIN {
            return Ok(id);
        }
        let record = self.key_record(&id).await?;
        Ok(record.map_or(id, |record| record.key.name))
    }

    /// The key id for a `publisher` field: clients send a key or a key id.
    pub fn publisher_id(&self, text: &str) -> String {
        if text.starts_with("k_") && text.len() == 18 || text == MAIN {
            return text.to_owned();
        }
        self.id_of_key(text)
    }

    /// The key id of a key. A key that looks like a key id gets an id of its own.
    pub(crate) fn id_of_key(&self, key: &str) -> String {
        let digest = digest(key);
        if digest.ct_eq(&self.inner.main_digest).into() {
            MAIN.to_owned()
        } else {
            id_of(&digest)
        }
    }

    /// Creates a key that may claim in these reserved namespaces.
    pub async fn create_key(
        &self,
        operator: Operator,
        owner: &str,
        granted: &[String],
    ) -> Result<NewKey, Error> {
        let settings = KeySettings::default();
        self.create_key_with(operator, owner, granted, settings)
            .await
    }

    /// The same with settings of its own.
    pub async fn create_key_with(
        &self,
        _: Operator,
        owner: &str,
        granted: &[String],
        settings: KeySettings,
    ) -> Result<NewKey, Error> {
        let secret = new_secret()?;
        let (id, mut key) = self.new_key(&secret, owner, self.now(), 0)?;
        settings.apply_to(&mut key);
        let label = key.label.clone();
        let mut unit = UnitOfWork::default();
        unit.replace(&Versioned::new(ApiKey::key(&id), key));
        for namespace in granted {
            let grant = self.new_grant(&id, namespace);
            unit.put(grant.key, &grant.value);
        }
        self.commit(unit).await?;
        Ok(NewKey {
            id,
            secret,
            owner: label,
        })
    }

    /// Stores a key that was created elsewhere. A key that exists stays unchanged.
    pub async fn adopt_key(
        &self,
        _: Operator,
        secret: &str,
        owner: &str,
        created_at: Micros,
        total_requests: u64,
    ) -> Result<NewKey, Error> {
        let (id, key) = self.new_key(secret, owner, created_at, total_requests)?;
        let label = key.label.clone();
        let put = Versioned::new(ApiKey::key(&id), key).put();
        self.put_if_unchanged(put).await?;
        Ok(NewKey {
            id,
            secret: secret.to_owned(),
            owner: label,
        })
    }

    fn new_key(
        &self,
        secret: &str,
        owner: &str,
        created_at: Micros,
        total_requests: u64,
    ) -> Result<(String, ApiKey), Error> {
        let digest = digest(secret);
        let id = id_of(&digest);
        let key = ApiKey {
            digest: HEXLOWER.encode(&digest),
            sealed: self.inner.seal.seal(&id, secret)?,
            label: owner.chars().take(limits::OWNER_CHARS_MAX).collect(),
            created_at: created_at.0,
            total_requests,
            ..ApiKey::default()
        };
        Ok((id, key))
    }

    /// Revokes a key, given as key or key id. Its requests are refused from now on; its intents stay.
    pub async fn revoke_key(&self, _: Operator, key: &str) -> Result<bool, Error> {
        let id = self.resolve_key_id(key).await?;
        if id == MAIN {
            // The main key has no record, and its nonces must outlive the replays that they prevent.
            return Ok(false);
        }
        let mut unit = UnitOfWork::default();
        if let Some(key) = self.load::<ApiKey>(ApiKey::key(&id)).await? {
            let past = key.value.past_secrets.iter().map(|past| &past.digest);
            for digest in past.chain([&key.value.digest]) {
                unit.delete(ApiKeyAlias::key(&id_of_digest(digest)));
            }
        }
        let deleted = unit.delete(ApiKey::key(&id));
        unit.forget(Forget::OnceOf { owner: id.clone() });
        for grant in self.grants_of(&id).await? {
            unit.delete(grant);
        }
        let deleted = self.commit(unit).await?.get(deleted)?;
        // A grant that was made at the same time.
        self.revoke_grants(self.grants_of(&id).await?).await?;
        Ok(deleted)
    }

    pub async fn keys(&self, _: Operator) -> Result<Vec<KeyInfo>, Error> {
        let grants = self.all_grants().await?;
        let mut keys = Vec::new();
        for record in self.key_records().await? {
            let key = parse(&record)?;
            let own = grants
                .iter()
                .filter(|grant| grant.key_id == record.key.name);
            let own = own.map(|grant| grant.namespace.clone()).collect();
            keys.push(KeyInfo::new(record.key.name, key, own, self.now()));
        }
        Ok(keys)
    }

    /// One key, given as key or key id.
    pub async fn key(&self, _: Operator, key: &str) -> Result<Option<KeyInfo>, Error> {
        let id = self.resolve_key_id(key).await?;
        self.key_info(&id).await
    }

    async fn key_info(&self, id: &str) -> Result<Option<KeyInfo>, Error> {
        let Some(record) = self.record(ApiKey::key(id)).await? else {
            return Ok(None);
        };
        let grants = self.all_grants().await?.into_iter();
        let own = grants.filter(|grant| grant.key_id == id);
        let own = own.map(|grant| grant.namespace).collect();
        let key = parse(&record)?;
        Ok(Some(KeyInfo::new(record.key.name, key, own, self.now())))
    }

    /// Checks at start that the seal key can decrypt the stored keys.
    pub async fn check_seal(&self) -> Result<(), Error> {
        let first = self
            .inner
            .store
            .records(Kind::ApiKey, String::new(), String::new(), 1)
            .await?;
        if let Some(record) = first.first() {
            let key = parse(record)?;
            self.inner.seal.open(&record.key.name, &key.sealed)?;
        }
        Ok(())
    }

    /// Clears rate windows that ended long ago and returns their number.
    pub(crate) async fn forget_windows(&self) -> Result<u64, Error> {
        let before = self.now().minus(limits::RATE_MEMORY_US);
        self.clear_windows(|key| key.window_at < before.0).await
    }

    pub(crate) async fn forget_all_windows(&self) -> Result<u64, Error> {
        self.clear_windows(|_| true).await
    }

    async fn clear_windows(&self, over: impl Fn(&ApiKey) -> bool) -> Result<u64, Error> {
        let mut cleared = 0;
        for record in self.key_records().await? {
            let mut record: Versioned<ApiKey> = Versioned::read(record)?;
            let key = &mut record.value;
            if key.window_at == 0 || !over(key) {
                continue;
            }
            (key.window_at, key.window_count) = (0, 0);
            // A key that was used meanwhile has a new window and keeps it.
            let written = self.put_if_unchanged(record.put()).await?;
            cleared += u64::from(written.is_some());
        }
        Ok(cleared)
    }

    async fn key_records(&self) -> Result<Vec<Record>, Error> {
        let mut all: Vec<Record> = Vec::new();
        loop {
            let after = all
                .last()
                .map(|record| record.key.name.clone())
                .unwrap_or_default();
            let page = self
                .inner
                .store
                .records(Kind::ApiKey, String::new(), after, PAGE)
                .await?;
            let last = page.len() < PAGE as usize;
            all.extend(page);
            if last {
                return Ok(all);
            }
        }
    }
}

fn parse(record: &Record) -> Result<ApiKey, Error> {
    serde_json::from_str(&record.value)
        .map_err(|_| Error::Internal(format!("key record {} is damaged", record.key.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_key_opens_only_with_its_seal_and_its_id() {
        let seal = SealKey::new([7; 32]);
        let sealed = seal.seal("k_1", "tk_secret").unwrap();
        assert!(!sealed.contains("secret"));
        assert_eq!(seal.open("k_1", &sealed).unwrap().as_str(), "tk_secret");
        assert!(seal.open("k_2", &sealed).is_err());
        assert!(SealKey::new([8; 32]).open("k_1", &sealed).is_err());
    }
}
