//! The keys agreed with other members. Agreeing on one takes many times as long as encrypting a message with it.
//!
//! Invariant: they belong to one own key and are dropped with it, and their number is bounded, whoever sends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::keys::{MeshPublicKey, X25519Secret};
use crate::nacl::SymmetricKey;

/// Beyond it, all are agreed on again.
const KEYS_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct AgreedKeys(Mutex<HashMap<MeshPublicKey, Arc<SymmetricKey>>>);

impl AgreedKeys {
    /// The key between `own` and a member; `None` if nothing can be encrypted to the member's key.
    pub(super) fn with(
        &self,
        own: &X25519Secret,
        member: MeshPublicKey,
    ) -> Option<Arc<SymmetricKey>> {
        let known = self.known(|keys| keys.get(&member).cloned());
        if known.is_some() {
            return known;
        }
        let key = Arc::new(SymmetricKey::agreed(own, member.to_x25519()?)?);
        self.known(|keys| {
            if keys.len() >= KEYS_MAX {
                keys.clear();
            }
            keys.insert(member, Arc::clone(&key));
        });
        Some(key)
    }

    fn known<T>(
        &self,
        look: impl FnOnce(&mut HashMap<MeshPublicKey, Arc<SymmetricKey>>) -> T,
    ) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::MeshPrivateKey;

    #[test]
    fn a_key_is_agreed_once_and_is_the_one_of_the_other_side() {
        let own = MeshPrivateKey::from_seed(&[1; 32]);
        let other = MeshPrivateKey::from_seed(&[2; 32]);
        let keys = AgreedKeys::default();
        let first = keys.with(&own.to_x25519(), other.public_key()).unwrap();
        let again = keys.with(&own.to_x25519(), other.public_key()).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let of_other = AgreedKeys::default();
        let theirs = of_other.with(&other.to_x25519(), own.public_key()).unwrap();
        assert_eq!(first.reveal(), theirs.reveal());
    }

    #[test]
    fn the_number_of_kept_keys_is_bounded() {
        let own = MeshPrivateKey::from_seed(&[1; 32]).to_x25519();
        let keys = AgreedKeys::default();
        let others = (0..=KEYS_MAX).map(|number| {
            let mut seed = [3; 32];
            seed[..8].copy_from_slice(&number.to_le_bytes());
            MeshPrivateKey::from_seed(&seed).public_key()
        });
        for other in others {
            keys.with(&own, other).unwrap();
        }
        assert_eq!(keys.known(|keys| keys.len()), 1);
    }
}
