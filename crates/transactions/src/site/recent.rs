//! A cache of recently authorized permissions, because an execution usually follows at once.
//!
//! Invariant: correctness does not depend on the cache. A user of an entry commits only if the ledger still has the same
//! version, and reads the ledger otherwise. The cache is bounded: when it is full, the older half is dropped.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use consign_engine::Versioned;

use super::records::PermissionRecord;
use crate::intent::SignedIntent;

const HALF_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct RecentPermissions {
    halves: Mutex<[HashMap<String, CachedPermission>; 2]>,
}

/// A stored permission and its parsed intent.
#[derive(Debug)]
pub(super) struct CachedPermission {
    pub(super) permission: Versioned<PermissionRecord>,
    pub(super) intent: SignedIntent,
}

impl RecentPermissions {
    pub(super) fn remember(&self, known: CachedPermission) {
        let halves = self.halves.lock();
        let [newer, older] = &mut *halves.unwrap_or_else(PoisonError::into_inner);
        if newer.len() >= HALF_MAX {
            *older = std::mem::take(newer);
        }
        newer.insert(known.intent.intent_id.clone(), known);
    }

    /// Removes the entry: it is out of date once it was used.
    pub(super) fn take(&self, intent_id: &str) -> Option<CachedPermission> {
        let halves = self.halves.lock();
        let [newer, older] = &mut *halves.unwrap_or_else(PoisonError::into_inner);
        newer.remove(intent_id).or_else(|| older.remove(intent_id))
    }
}
