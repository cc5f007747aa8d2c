//! The container of a backup: Argon2id makes a key of the passphrase, and a secretbox protects the content.
//!
//! Invariant: the cost in a file is checked before memory is used for it, because the file may come from anywhere.

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::BackupError;
use crate::daemon::random;
use crate::nacl::{KEY_BYTES, NONCE_BYTES, SymmetricKey};

const VERSION: u32 = 1;
const ALGORITHM: &str = "argon2id";
const SALT_BYTES: usize = 16;
/// One gibibyte, and as many passes and lanes as no honest backup has.
const COST_MAX: KdfCost = KdfCost {
    memory_kib: 1 << 20,
    passes: 64,
    lanes: 16,
};

/// What a key costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KdfCost {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

impl Default for KdfCost {
    /// 64 MiB and three passes, the second recommendation of RFC 9106 with one lane.
    fn default() -> Self {
        Self {
            memory_kib: 64 << 10,
            passes: 3,
            lanes: 1,
        }
    }
}

/// The file.
#[derive(Serialize, Deserialize)]
pub(super) struct SealedBackup {
    v: u32,
    kdf: KdfRecord,
    nonce: String,
    ciphertext: String,
}

#[derive(Serialize, Deserialize)]
struct KdfRecord {
    alg: String,
    /// Kibibytes.
    m: u32,
    t: u32,
    p: u32,
    salt: String,
}

impl SealedBackup {
    pub(super) fn seal(
        plain: &[u8],
        passphrase: &str,
        cost: KdfCost,
    ) -> Result<String, BackupError> {
        let salt = random::bytes::<SALT_BYTES>();
        let nonce = random::bytes::<NONCE_BYTES>();
        let key = derive(passphrase, &salt, cost)?;
        let sealed = Self {
            v: VERSION,
            kdf: KdfRecord {
                alg: ALGORITHM.to_owned(),
                m: cost.memory_kib,
                t: cost.passes,
                p: cost.lanes,
                salt: BASE64_STANDARD.encode(salt),
            },
            nonce: BASE64_STANDARD.encode(nonce),
            ciphertext: BASE64_STANDARD.encode(key.seal(plain, &nonce)),
        };
        Ok(serde_json::to_string_pretty(&sealed).expect("strings and numbers are JSON"))
    }

    pub(super) fn open(text: &str, passphrase: &str) -> Result<Zeroizing<Vec<u8>>, BackupError> {
        let sealed: Self = serde_json::from_str(text).map_err(|_| BackupError::Malformed)?;
        let decode = |text: &str| {
            let bytes = BASE64_STANDARD.decode(text);
            bytes.map_err(|_| BackupError::Malformed)
        };
        let salt = decode(&sealed.kdf.salt)?;
        let nonce = decode(&sealed.nonce)?;
        let nonce = nonce.try_into().map_err(|_| BackupError::Malformed)?;
        let ciphertext = decode(&sealed.ciphertext)?;
        if sealed.v != VERSION || sealed.kdf.alg != ALGORITHM {
            return Err(BackupError::Malformed);
        }
        let cost = KdfCost {
            memory_kib: sealed.kdf.m,
            passes: sealed.kdf.t,
            lanes: sealed.kdf.p,
        };
        let key = derive(passphrase, &salt, cost)?;
        key.open(&ciphertext, &nonce).ok_or(BackupError::Closed)
    }
}

fn derive(passphrase: &str, salt: &[u8], cost: KdfCost) -> Result<SymmetricKey, BackupError> {
    if passphrase.is_empty() {
        return Err(BackupError::NoPassphrase);
    }
    let KdfCost {
        memory_kib,
        passes,
        lanes,
    } = cost;
    let is_allowed =
        memory_kib <= COST_MAX.memory_kib && passes <= COST_MAX.passes && lanes <= COST_MAX.lanes;
    if !is_allowed {
        return Err(BackupError::TooExpensive);
    }
    let params = Params::new(memory_kib, passes, lanes, Some(KEY_BYTES));
    let params = params.map_err(|_| BackupError::Malformed)?;
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passphrase.as_bytes(), salt, &mut *key)
        .map_err(|_| BackupError::Malformed)?;
    Ok(SymmetricKey::from_bytes(&key))
}
