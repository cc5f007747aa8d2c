//! The places for uploads and downloads of files.
//!
//! Invariant: a member has a few of them, so that slow transfers of one member leave places for the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{BLOB_TRANSFERS_MAX, BLOB_TRANSFERS_PER_MEMBER_MAX};

#[derive(Clone, Debug, Default)]
pub(super) struct BlobTransfers(Arc<Mutex<HashMap<String, usize>>>);

/// Why a transfer does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransfersBusy {
    All,
    Member,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct BlobPermit {
    transfers: BlobTransfers,
    member_id: String,
}

impl BlobTransfers {
    fn by_member(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, member_id: &str) -> Result<BlobPermit, TransfersBusy> {
        let mut by_member = self.by_member();
        if by_member.values().sum::<usize>() >= BLOB_TRANSFERS_MAX {
            return Err(TransfersBusy::All);
        }
        let own = by_member.entry(member_id.to_owned()).or_default();
        if *own >= BLOB_TRANSFERS_PER_MEMBER_MAX {
            return Err(TransfersBusy::Member);
        }
        *own += 1;
        Ok(BlobPermit {
            transfers: self.clone(),
            member_id: member_id.to_owned(),
        })
    }
}

impl Drop for BlobPermit {
    fn drop(&mut self) {
        let mut by_member = self.transfers.by_member();
        if let Some(own) = by_member.get_mut(&self.member_id) {
            *own -= 1;
            if *own == 0 {
                by_member.remove(&self.member_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_a_few_places_and_all_members_together_have_more() {
        let transfers = BlobTransfers::default();
        let take = |member: &str| transfers.begin(member);
        let mut held: Vec<BlobPermit> = Vec::new();
        for member in ["a", "b", "c"] {
            for _ in 0..BLOB_TRANSFERS_PER_MEMBER_MAX {
                held.push(take(member).unwrap());
            }
            assert_eq!(take(member).unwrap_err(), TransfersBusy::Member);
        }
        while held.len() < BLOB_TRANSFERS_MAX {
            held.push(take("d").unwrap());
        }
        assert_eq!(take("e").unwrap_err(), TransfersBusy::All);
        held.clear();
        assert!(transfers.by_member().is_empty());
        assert!(take("a").is_ok());
    }
}
