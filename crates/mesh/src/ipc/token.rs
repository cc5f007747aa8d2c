//! The token of the loopback listener.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::limits::LOCAL_TOKEN_BYTES;

/// 32 random bytes, written as 43 characters of base64url.
pub struct LocalToken(Zeroizing<String>);

impl LocalToken {
    pub fn from_random(bytes: &[u8; LOCAL_TOKEN_BYTES]) -> Self {
        Self(Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Reads the file; white space at the ends is ignored. `None` if it is no such token.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bytes = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?);
        (bytes.len() == LOCAL_TOKEN_BYTES).then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// The text, for the file.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares digests, so that the time depends neither on the token nor on its length.
    pub fn matches(&self, text: &str) -> bool {
        let own = Sha256::digest(self.0.as_bytes());
        let other = Sha256::digest(text.as_bytes());
        own.ct_eq(&other).into()
    }
}

impl fmt::Debug for LocalToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalToken(..)")
    }
}
