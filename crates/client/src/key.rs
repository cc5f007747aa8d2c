//! A secret that is sent in a header: an API key or an admin token.
//!
//! Invariant: neither `Debug` nor any error shows the text; `reveal` is the only way to it.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// An API key or an admin token.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(String);

impl SecretKey {
    /// Surrounding white space is dropped, because keys are usually read from files that end with a
    /// newline.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The secret itself, for a header or a file.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Never fails: an argument parser would otherwise print a refused secret.
impl FromStr for SecretKey {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretKey(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::SecretKey;

    #[test]
    fn debug_shows_no_part_of_a_key() {
        let key = SecretKey::new("ck_0123456789\n");
        assert_eq!(key.reveal(), "ck_0123456789");
        assert_eq!(format!("{key:?}"), "SecretKey(hidden)");
        assert_eq!(format!("{:?}", Some(key)), "Some(SecretKey(hidden))");
    }
}
