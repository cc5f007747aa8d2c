//! The site's keys over time: current, announced, previous and revoked.
//!
//! Invariant: exactly one key is current, at most one is announced, and no key occurs twice.
//! The ring holds public keys only, so it can be published.

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

/// A key of the site and its standing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteKey {
    pub key: AtpPublicKey,
    pub standing: KeyStanding,
    /// When it began to sign; none if that is not recorded.
    pub valid_from: Option<Micros>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyStanding {
    Current,
    /// Announced; it does not sign yet.
    Next,
    /// Replaced by a rotation. Signatures from before stay valid for ever.
    Previous {
        valid_until: Micros,
        reason: String,
    },
    /// All its signatures are invalid from then on: a stolen key can sign any date.
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

/// Why keys do not form a ring.
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
