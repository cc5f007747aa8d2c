//! Secrets that must be kept as text, because they are made into keys or handed on.
//!
//! Where a secret is only compared, [`super::credentials::SecretDigest`] keeps less of it.

use std::fmt;

use zeroize::Zeroizing;

/// Text that is wiped from memory when dropped and never printed by `Debug`.
#[derive(Clone)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(hidden)")
    }
}
