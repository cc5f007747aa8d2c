//! A fresh seed for every request, derived from one random value of the operating system.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

pub(crate) struct Seeds {
    secret: [u8; 32],
    given: AtomicU64,
}

impl Seeds {
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self {
            secret,
            given: AtomicU64::new(0),
        }
    }

    /// Unpredictable without the secret, and unique.
    pub(crate) fn next(&self) -> [u8; 32] {
        let count = self.given.fetch_add(1, Ordering::Relaxed);
        let mut hasher = Sha256::new();
        hasher.update(self.secret);
        hasher.update(count.to_le_bytes());
        hasher.finalize().into()
    }
}

impl fmt::Debug for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seeds(..)")
    }
}
