//! Secrets that are needed as text, because keys are derived from them or they are passed on.
//!
//! If a secret is only compared, use [`super::credentials::SecretDigest`].

use std::fmt;

use zeroize::Zeroizing;

/// Text that is zeroed when dropped and never printed by `Debug`.
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
