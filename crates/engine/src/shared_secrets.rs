//! The secrets that all nodes of one ledger share. A client must be able to use its key on every node, and every node
//! must sign receipts with the same key and decrypt the same API keys.
//!
//! Invariant: the ledger holds fingerprints, never a secret. The main key may be chosen by a person, so its
//! fingerprint is keyed with the seal key: the database alone does not allow a dictionary attack.

use consign_kernel::record::{Key, Kind};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::records::new_put;
use crate::{Engine, Error};

/// A secret that differs from that of the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MismatchedSecret {
    SealKey,
    ReceiptSeed,
    BusSecret,
}

impl MismatchedSecret {
    pub const fn file(self) -> &'static str {
        match self {
            Self::SealKey => "seal_key",
            Self::ReceiptSeed => "receipt_seed",
            Self::BusSecret => "bus_secret",
        }
    }
}

/// The value of the one [`Kind::Site`] record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Fingerprints {
    seal: String,
    /// The public key, which is not secret.
    receipt: String,
    main: String,
}

impl Engine {
    /// Compares this node's secrets with the fingerprints in the ledger and returns those that differ. In a ledger
    /// without fingerprints, or with `replace`, this node's fingerprints are stored.
    pub async fn compare_secrets(&self, replace: bool) -> Result<Vec<MismatchedSecret>, Error> {
        let own = self.fingerprints();
        if replace {
            // A stored value that cannot be read is replaced as well.
            self.put(new_put(key(), &own)).await?;
            return Ok(Vec::new());
        }
        let compare = |stored: &mut Option<Fingerprints>| {
            let theirs = stored.get_or_insert_with(|| own.clone());
            Ok(differences(&own, theirs))
        };
        self.update(key(), compare).await
    }

    fn fingerprints(&self) -> Fingerprints {
        let seal = &self.inner.seal;
        Fingerprints {
            seal: seal.mark(b"consign seal key", &[]),
            receipt: HEXLOWER.encode(&self.inner.signer.public_key()),
            main: seal.mark(b"consign main key", &self.inner.main_digest),
        }
    }
}

fn differences(own: &Fingerprints, theirs: &Fingerprints) -> Vec<MismatchedSecret> {
    let mut differing = Vec::new();
    if own.receipt != theirs.receipt {
        differing.push(MismatchedSecret::ReceiptSeed);
    }
    if own.seal != theirs.seal {
        differing.push(MismatchedSecret::SealKey);
    } else if own.main != theirs.main {
        // The fingerprint of the main key depends on the seal key, so it cannot be compared.
        differing.push(MismatchedSecret::BusSecret);
    }
    differing
}

fn key() -> Key {
    Key {
        kind: Kind::Site,
        owner: String::new(),
        name: "secrets".to_owned(),
    }
}
