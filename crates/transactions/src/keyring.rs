//! The site's keys over time: the one that signs, the one announced, those before, and those revoked.
//!
//! Invariant: exactly one key is current, at most one is announced, and no key stands here twice.
//! The ring holds public halves only, so it can be published and handed around.

mod pinned;
mod publish;
#[cfg(test)]
mod tests;
mod verify;

use consign_kernel::ids::Micros;

use crate::document::AtpPublicKey;

pub use pinned::PinError;
pub use publish::BASE_PATH;
pub use verify::{InvalidReason, Verification};

/// All keys that a site has or had.
#[derive(Clone, Debug)]
pub struct Keyring {
    site: String,
    keys: Vec<SiteKey>,
}

/// A key of the site and what it may still do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteKey {
    pub key: AtpPublicKey,
    pub standing: KeyStanding,
    /// From when on it signs; none if that was never written down.
    pub valid_from: Option<Micros>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyStanding {
    Current,
    /// Announced; it signs nothing yet.
    Next,
    /// Replaced as planned. What it signed until then stays good for ever.
    Previous {
        valid_until: Micros,
        reason: String,
    },
    /// Nothing it ever signed is vouched for from then on: a stolen key can put any date on a document.
    Revoked {
        revoked_at: Micros,
        reason: String,
    },
}

impl KeyStanding {
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Next => "next",
            Self::Previous { .. } => "previous",
            Self::Revoked { .. } => "revoked",
        }
    }
}

/// Why some keys make no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error("a site needs exactly one current key")]
    NotOneCurrent,
    #[error("a site can announce only one next key")]
    SeveralNext,
    #[error("a key stands in the ring twice")]
    Repeated,
}

impl Keyring {
    pub fn new(site: impl Into<String>, keys: Vec<SiteKey>) -> Result<Self, KeyringError> {
        let count =
            |standing: &KeyStanding| keys.iter().filter(|key| key.standing == *standing).count();
        if count(&KeyStanding::Current) != 1 {
            return Err(KeyringError::NotOneCurrent);
        }
        if count(&KeyStanding::Next) > 1 {
            return Err(KeyringError::SeveralNext);
        }
        let repeats = |at: usize| {
            keys[..at]
                .iter()
                .any(|other| other.key.id() == keys[at].key.id())
        };
        if (0..keys.len()).any(repeats) {
            return Err(KeyringError::Repeated);
        }
        Ok(Self {
            site: site.into(),
            keys,
        })
    }

    pub fn site(&self) -> &str {
        &self.site
    }

    pub fn keys(&self) -> &[SiteKey] {
        &self.keys
    }

    /// The key that signs now.
    pub fn current(&self) -> &SiteKey {
        let current = |key: &&SiteKey| key.standing == KeyStanding::Current;
        self.keys
            .iter()
            .find(current)
            .expect("a ring has a current key")
    }

    fn find(&self, id: &str) -> Option<&SiteKey> {
        self.keys.iter().find(|key| key.key.id() == id)
    }
}
