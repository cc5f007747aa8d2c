//! A key ring read from a saved document of a site, for offline verification.
//!
//! Invariant: this module does not establish trust; the verifier must know that the saved document is the site's.

use consign_kernel::ids::Micros;
use serde::Deserialize;

use super::{KeyStanding, Keyring, KeyringError, SiteKey};
use crate::document::{AtpDocument, AtpPublicKey, VERIFY_BYTES_MAX};
use crate::instant;

/// Why a file has no usable keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    #[error("it is neither a site's key list nor a site's manifest: {0}")]
    Unreadable(String),
    #[error("{0} is not a public key")]
    NoKey(String),
    #[error("{0} is not a time")]
    NoInstant(String),
    #[error("{0} is not a key status")]
    NoStatus(String),
    #[error("the manifest is not signed by the key that it names: it was altered or cut")]
    Altered,
    #[error(transparent)]
    Ring(#[from] KeyringError),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PublishedKeys {
    List {
        site: String,
        keys: Vec<ListedKey>,
    },
    Manifest {
        site: String,
        public_key: String,
        #[serde(default)]
        previous_keys: Vec<FormerKey>,
        #[serde(default)]
        next_public_key: Option<String>,
    },
}

#[derive(Deserialize)]
struct ListedKey {
    public_key: String,
    status: String,
    #[serde(default)]
    valid_from: Option<String>,
    #[serde(default)]
    valid_until: Option<String>,
}

#[derive(Deserialize)]
struct FormerKey {
    key: String,
    valid_until: String,
    #[serde(default)]
    reason: String,
}

impl Keyring {
    /// From a saved `/api/atp/keys` or `/.well-known/wab.json`. The manifest contains no revocations.
    pub fn read(text: &str) -> Result<Self, PinError> {
        let unreadable = |error: &dyn std::error::Error| PinError::Unreadable(error.to_string());
        // Refuses repeated members; the parser below would take the last one.
        let document = AtpDocument::read(text.as_bytes(), VERIFY_BYTES_MAX)
            .map_err(|problem| unreadable(&problem))?;
        let published = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        match published {
            PublishedKeys::List { site, keys } => {
                let keys = keys.into_iter().map(ListedKey::read);
                Ok(Self::new(site, keys.collect::<Result<_, _>>()?)?)
            }
            PublishedKeys::Manifest {
                site,
                public_key,
                previous_keys,
                next_public_key,
            } => {
                let current = site_key(&public_key, KeyStanding::Current)?;
                if !document.is_signed_by(&current.key) {
                    return Err(PinError::Altered);
                }
                let mut keys = vec![current];
                for former in previous_keys {
                    keys.push(former.read()?);
                }
                if let Some(next) = next_public_key {
                    keys.push(site_key(&next, KeyStanding::Next)?);
                }
                Ok(Self::new(site, keys)?)
            }
        }
    }

    /// One key of a site without dates: all its signatures are valid.
    pub fn of_one(site: impl Into<String>, key: AtpPublicKey) -> Self {
        Self {
            site: site.into(),
            keys: vec![SiteKey {
                key,
                standing: KeyStanding::Current,
                valid_from: None,
            }],
        }
    }
}

impl ListedKey {
    fn read(self) -> Result<SiteKey, PinError> {
        let until = |text: Option<String>| match text {
            Some(text) => at(&text),
            None => Err(PinError::NoInstant("a missing valid_until".to_owned())),
        };
        let standing = match self.status.as_str() {
            "current" => KeyStanding::Current,
            "next" => KeyStanding::Next,
            "previous" => KeyStanding::Previous {
                valid_until: until(self.valid_until)?,
                reason: String::new(),
            },
            "revoked" => KeyStanding::Revoked {
                revoked_at: until(self.valid_until)?,
                reason: String::new(),
            },
            _ => return Err(PinError::NoStatus(self.status)),
        };
        let valid_from = self.valid_from.as_deref().map(at).transpose()?;
        Ok(SiteKey {
            valid_from,
            ..site_key(&self.public_key, standing)?
        })
    }
}

impl FormerKey {
    fn read(self) -> Result<SiteKey, PinError> {
        let standing = KeyStanding::Previous {
            valid_until: at(&self.valid_until)?,
            reason: self.reason,
        };
        site_key(&self.key, standing)
    }
}

fn site_key(text: &str, standing: KeyStanding) -> Result<SiteKey, PinError> {
    let key = AtpPublicKey::parse(text).ok_or_else(|| PinError::NoKey(text.to_owned()))?;
    Ok(SiteKey {
        key,
        standing,
        valid_from: None,
    })
}

fn at(text: &str) -> Result<Micros, PinError> {
    instant::parse(text).ok_or_else(|| PinError::NoInstant(text.to_owned()))
}
