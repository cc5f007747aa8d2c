//! The site's keys: stored in the ledger with sealed secret halves, so that all nodes sign with the same key and old receipts
//! stay valid.
//!
//! Invariant: one record holds all keys, so a change is atomic. A secret leaves this module only inside a signer.

use consign_engine::{Engine, Error};
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::record::{Key, Kind};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

use super::{LoadedKeys, Site};
use crate::document::{AtpPublicKey, SiteSigner};
use crate::keyring::{KeyStanding, Keyring, SiteKey};

/// Grace period after a rotation, in which signatures of other nodes with the previous key are still valid.
const HANDOVER_US: i64 = 5 * 60 * SECOND_US;

/// How long a node may sign with a replaced key.
const KEYS_FRESH: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum SiteKeyError {
    #[error(transparent)]
    Ledger(#[from] Error),
    #[error("the site's keys in the ledger are invalid: {0}")]
    Damaged(String),
    #[error("this site has no key {0}; `consign site key show` lists its keys")]
    Unknown(String),
    #[error(
        "the current key can be revoked only after a rotation: run `consign site key rotate` first"
    )]
    Current,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StoredKeys {
    keys: Vec<StoredKey>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredKey {
    public: String,
    /// None once the key no longer signs.
    sealed: Option<String>,
    status: String,
    valid_from: i64,
    until: Option<i64>,
    reason: Option<String>,
}

const CURRENT: &str = "current";
const NEXT: &str = "next";
const PREVIOUS: &str = "previous";
const REVOKED: &str = "revoked";

fn record_key(site: &str) -> Key {
    Key {
        kind: Kind::SiteKey,
        owner: String::new(),
        name: site.to_owned(),
    }
}

/// Reads the keys of a site; creates the first key if none exists.
pub(super) async fn open(engine: &Engine, site: &str) -> Result<LoadedKeys, SiteKeyError> {
    let create_first = |stored: &mut StoredKeys| {
        if stored.keys.is_empty() {
            stored.keys.push(fresh(engine, CURRENT)?);
        }
        keys(engine, site, stored)
    };
    engine.update(record_key(site), create_first).await
}

fn fresh(engine: &Engine, status: &str) -> Result<StoredKey, SiteKeyError> {
    let mut entropy = engine.entropy();
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&entropy.draw().to_be_bytes());
    seed[16..].copy_from_slice(&entropy.draw().to_be_bytes());
    let signer = SiteSigner::from_seed(&seed);
    let sealed = engine.seal(signer.public().id(), &HEXLOWER.encode(&seed))?;
    Ok(StoredKey {
        public: signer.public().to_string(),
        sealed: Some(sealed),
        status: status.to_owned(),
        valid_from: engine.time_of_day().0,
        until: None,
        reason: None,
    })
}

fn keys(engine: &Engine, site: &str, stored: &StoredKeys) -> Result<LoadedKeys, SiteKeyError> {
    let damaged = |what: &str| SiteKeyError::Damaged(what.to_owned());
    let mut ring = Vec::new();
    let mut signer = None;
    for key in &stored.keys {
        let public =
            AtpPublicKey::parse(&key.public).ok_or_else(|| damaged("a public key is malformed"))?;
        let until = Micros(key.until.unwrap_or_default());
        let reason = key.reason.clone().unwrap_or_default();
        let standing = match key.status.as_str() {
            CURRENT => KeyStanding::Current,
            NEXT => KeyStanding::Next,
            PREVIOUS => KeyStanding::Previous {
                valid_until: until,
                reason,
            },
            REVOKED => KeyStanding::Revoked {
                revoked_at: until,
                reason,
            },
            _ => return Err(damaged("a key has an unknown status")),
        };
        if standing == KeyStanding::Current {
            let sealed = key.sealed.as_deref().ok_or_else(|| damaged("no secret"))?;
            let seed = engine.unseal(public.id(), sealed)?;
            let seed = HEXLOWER.decode(seed.as_bytes());
            let seed: Option<[u8; 32]> = seed.ok().and_then(|seed| seed.try_into().ok());
            let seed = seed.ok_or_else(|| damaged("a secret is malformed"))?;
            signer = Some(SiteSigner::from_seed(&seed));
        }
        // It is not known yet when an announced key will begin to sign.
        let valid_from = (standing != KeyStanding::Next).then_some(Micros(key.valid_from));
        ring.push(SiteKey {
            key: public,
            standing,
            valid_from,
        });
    }
    Ok(LoadedKeys {
        signer: signer.ok_or_else(|| damaged("no current key"))?,
        ring: Keyring::new(site, ring).map_err(|error| SiteKeyError::Damaged(error.to_string()))?,
    })
}

impl Site {
    /// Reloads the keys that other nodes changed, as long as the process lives: a signature made after its key was revoked is
    /// invalid, and no receipt is signed twice.
    pub async fn follow_keys(self) {
        loop {
            tokio::time::sleep(KEYS_FRESH).await;
            if let Err(error) = self.refresh_keys().await {
                tracing::warn!(%error, "the site's keys could not be reloaded");
            }
        }
    }

    /// Reloads the keys.
    async fn refresh_keys(&self) -> Result<(), SiteKeyError> {
        let keys = open(self.engine(), self.origin()).await?;
        let mut held = self.inner.keys.write();
        let held = held.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
        **held = Arc::new(keys);
        Ok(())
    }

    /// Changes the stored keys, and loads them.
    async fn change_keys<R>(
        &self,
        change: impl FnMut(&mut StoredKeys) -> Result<R, SiteKeyError>,
    ) -> Result<R, SiteKeyError> {
        let changed = self.engine().update(record_key(self.origin()), change);
        let result = changed.await?;
        self.refresh_keys().await?;
        Ok(result)
    }

    /// Creates and publishes the key that signs after the next rotation. A key that is already announced stays.
    pub async fn announce_key(&self) -> Result<String, SiteKeyError> {
        self.change_keys(|stored| {
            if let Some(announced) = stored.keys.iter().find(|key| key.status == NEXT) {
                return Ok(announced.public.clone());
            }
            let next = fresh(self.engine(), NEXT)?;
            let public = next.public.clone();
            stored.keys.push(next);
            Ok(public)
        })
        .await
    }

    /// Makes the announced key current, or a new one if none is announced; signatures of the previous key stay valid.
    pub async fn rotate_key(&self, reason: &str) -> Result<String, SiteKeyError> {
        self.change_keys(|stored| {
            let until = self.now().plus(HANDOVER_US);
            for key in stored.keys.iter_mut().filter(|key| key.status == CURRENT) {
                PREVIOUS.clone_into(&mut key.status);
                key.sealed = None;
                key.until = Some(until.0);
                key.reason = Some(reason.to_owned());
            }
            self.promote(stored)
        })
        .await
    }

    fn promote(&self, stored: &mut StoredKeys) -> Result<String, SiteKeyError> {
        let announced = stored.keys.iter_mut().find(|key| key.status == NEXT);
        if let Some(announced) = announced {
            CURRENT.clone_into(&mut announced.status);
            announced.valid_from = self.now().0;
            return Ok(announced.public.clone());
        }
        let new = fresh(self.engine(), CURRENT)?;
        let public = new.public.clone();
        stored.keys.push(new);
        Ok(public)
    }

    /// Revokes a key: its signatures are no longer valid. An announced key is withdrawn.
    pub async fn revoke_key(&self, key_id: &str, reason: &str) -> Result<(), SiteKeyError> {
        self.change_keys(|stored| {
            let named = |key: &&mut StoredKey| {
                AtpPublicKey::parse(&key.public).is_some_and(|public| public.id() == key_id)
            };
            let Some(key) = stored.keys.iter_mut().find(named) else {
                return Err(SiteKeyError::Unknown(key_id.to_owned()));
            };
            if key.status == CURRENT {
                return Err(SiteKeyError::Current);
            }
            REVOKED.clone_into(&mut key.status);
            key.sealed = None;
            key.until = Some(self.now().0);
            key.reason = Some(reason.to_owned());
            Ok(())
        })
        .await
    }

    /// `wab.json`.
    pub fn manifest(&self) -> String {
        let keys = self.keys();
        keys.ring.manifest(&keys.signer)
    }

    /// `wab-revocations.json`.
    pub fn revocations(&self) -> String {
        let keys = self.keys();
        keys.ring.revocations(&keys.signer)
    }

    pub fn jwks(&self) -> Vec<serde_json::Value> {
        self.keys().ring.jwks()
    }

    /// The key list for offline verification.
    pub fn key_list(&self) -> serde_json::Value {
        self.keys().ring.document()
    }
}
