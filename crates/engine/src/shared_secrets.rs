//! What all nodes of one ledger must compare_secrets on: their secrets. A client that reaches another node must find its key known
//! there, its receipts signed alike, and its keys unsealed.
//!
//! Invariant: the ledger holds fingerprints, never a secret. The main key may be one that a person chose, so its
//! fingerprint is keyed with the seal key: whoever has only the database cannot try words.

use consign_kernel::command::Command;
use consign_kernel::error::Refusal;
use consign_kernel::record::{Key, Kind, Put};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::{Engine, Error};

/// A secret that the others have differently, by the name of its file.
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
    /// The public half, which is no secret.
    receipt: String,
    main: String,
}

impl Engine {
    /// Compares this node's secrets with those the ledger began with, and says which differ. In a ledger that knows none
    /// yet, this node's are the ones from now on; and so they are with `replace`.
    pub async fn compare_secrets(&self, replace: bool) -> Result<Vec<MismatchedSecret>, Error> {
        let own = self.fingerprints();
        let value =
            serde_json::to_string(&own).map_err(|error| Error::Internal(error.to_string()))?;
        loop {
            let found = self.record(key()).await?;
            if let Some(record) = found.as_ref().filter(|_| !replace) {
                let theirs = serde_json::from_str(&record.value)
                    .map_err(|_| Error::Internal("the site record is damaged".to_owned()))?;
                return Ok(differences(&own, &theirs));
            }
            let put = Put {
                key: key(),
                value: value.clone(),
                expires_at: None,
                expect: Some(found.map_or(0, |record| record.version)),
            };
            match self.apply(None, Command::Put(put)).await {
                Ok(_) => return Ok(Vec::new()),
                // Another first start was quicker.
                Err(Error::Refused(Refusal::VersionMismatch)) => {}
                Err(error) => return Err(error),
            }
        }
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
        // Under another seal key it cannot be compared.
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
