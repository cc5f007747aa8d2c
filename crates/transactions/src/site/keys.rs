//! The site's keys: kept in the ledger, the secret halves sealed, so that all nodes sign alike and old receipts stay good.
//!
//! Invariant: one record holds all of them, so a change is seen whole. A secret leaves here only as a signer.

use consign_engine::{Engine, Error};
use consign_kernel::command::Command;
use consign_kernel::error::Refusal;
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::record::{Key, Kind, Put};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

use super::{LoadedKeys, Site};
use crate::document::{AtpPublicKey, SiteSigner};
use crate::keyring::{KeyStanding, Keyring, SiteKey};

/// How long what other nodes still sign with the key before counts as signed in time.
const HANDOVER_US: i64 = 5 * 60 * SECOND_US;

/// How long a node may sign with what another one has replaced.
const KEYS_FRESH: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum SiteKeyError {
    #[error(transparent)]
    Ledger(#[from] Error),
    #[error("the site's keys in the ledger are damaged: {0}")]
    Damaged(String),
    #[error("there is no key {0} of this site; `consign site key show` lists them")]
    Unknown(String),
    #[error("the current key can only be revoked after it was replaced: rotate first")]
    Current,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StoredKeys {
    keys: Vec<StoredKey>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredKey {
    public: String,
    /// None once it signs nothing any more.
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

/// Reads the keys of a site, and makes the first one if there is none.
pub(super) async fn open(engine: &Engine, site: &str) -> Result<LoadedKeys, SiteKeyError> {
    loop {
        let (stored, version) = load(engine, site).await?;
        if !stored.keys.is_empty() {
            return keys(engine, site, &stored);
        }
        let first = StoredKeys {
            keys: vec![fresh(engine, CURRENT)?],
        };
        if save(engine, site, &first, version).await? {
            return keys(engine, site, &first);
        }
    }
}

async fn load(engine: &Engine, site: &str) -> Result<(StoredKeys, u64), SiteKeyError> {
    let Some(record) = engine.record(record_key(site)).await? else {
        return Ok((StoredKeys::default(), 0));
    };
    let stored = serde_json::from_str(&record.value)
        .map_err(|error| SiteKeyError::Damaged(error.to_string()))?;
    Ok((stored, record.version))
}

/// Whether nobody else was quicker.
async fn save(
    engine: &Engine,
    site: &str,
    stored: &StoredKeys,
    version: u64,
) -> Result<bool, SiteKeyError> {
    let put = Command::Put(Put {
        key: record_key(site),
        value: serde_json::to_string(stored).expect("keys of ours have string names only"),
        expires_at: None,
        expect: Some(version),
    });
    match engine.apply(None, put).await {
        Ok(_) => Ok(true),
        Err(Error::Refused(Refusal::VersionMismatch)) => Ok(false),
        Err(error) => Err(error.into()),
    }
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
        let public = AtpPublicKey::parse(&key.public).ok_or_else(|| damaged("a key is none"))?;
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
            _ => return Err(damaged("a key has no known status")),
        };
        if standing == KeyStanding::Current {
            let sealed = key.sealed.as_deref().ok_or_else(|| damaged("no secret"))?;
            let seed = engine.unseal(public.id(), sealed)?;
            let seed = HEXLOWER.decode(seed.as_bytes());
            let seed: Option<[u8; 32]> = seed.ok().and_then(|seed| seed.try_into().ok());
            let seed = seed.ok_or_else(|| damaged("a secret is none"))?;
            signer = Some(SiteSigner::from_seed(&seed));
        }
        // When an announced key will begin to sign is not known yet.
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
    /// Takes over what other nodes do to the keys, for as long as the process lives: what a key signs after it was revoked is
    /// good for nothing, and no receipt is signed twice.
    pub async fn follow_keys(self) {
        loop {
            tokio::time::sleep(KEYS_FRESH).await;
            if let Err(error) = self.refresh_keys().await {
                tracing::warn!(%error, "the site's keys could not be read again");
            }
        }
    }

    /// Takes over what another node did to the keys.
    async fn refresh_keys(&self) -> Result<(), SiteKeyError> {
        let keys = open(self.engine(), self.origin()).await?;
        let mut held = self.inner.keys.write();
        let held = held.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
        **held = Arc::new(keys);
        Ok(())
    }

    /// Makes the key that will sign after the next rotation, and makes it known. One that is announced already stays.
    pub async fn announce_key(&self) -> Result<String, SiteKeyError> {
        loop {
            let (mut stored, version) = load(self.engine(), self.origin()).await?;
            let announced = stored.keys.iter().find(|key| key.status == NEXT);
            if let Some(announced) = announced {
                let public = announced.public.clone();
                self.refresh_keys().await?;
                return Ok(public);
            }
            let next = fresh(self.engine(), NEXT)?;
            let public = next.public.clone();
            stored.keys.push(next);
            if save(self.engine(), self.origin(), &stored, version).await? {
                self.refresh_keys().await?;
                return Ok(public);
            }
        }
    }

    /// The announced key signs from now on, or a new one if none is announced; what the one before signed stays good.
    pub async fn rotate_key(&self, reason: &str) -> Result<String, SiteKeyError> {
        loop {
            let (mut stored, version) = load(self.engine(), self.origin()).await?;
            let until = self.now().plus(HANDOVER_US);
            for key in stored.keys.iter_mut().filter(|key| key.status == CURRENT) {
                PREVIOUS.clone_into(&mut key.status);
                key.sealed = None;
                key.until = Some(until.0);
                key.reason = Some(reason.to_owned());
            }
            let public = self.promote(&mut stored)?;
            if save(self.engine(), self.origin(), &stored, version).await? {
                self.refresh_keys().await?;
                return Ok(public);
            }
        }
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

    /// Nothing that this key signed is vouched for any more. One that is only announced is withdrawn by it.
    pub async fn revoke_key(&self, key_id: &str, reason: &str) -> Result<(), SiteKeyError> {
        loop {
            let (mut stored, version) = load(self.engine(), self.origin()).await?;
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
            if save(self.engine(), self.origin(), &stored, version).await? {
                return self.refresh_keys().await;
            }
        }
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

    /// For whoever verifies offline.
    pub fn key_list(&self) -> serde_json::Value {
        self.keys().ring.document()
    }
}
