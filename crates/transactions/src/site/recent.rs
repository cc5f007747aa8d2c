//! Permissions that were authorized a moment ago, so that the execution which usually follows need not look them up.
//!
//! Invariant: nothing rests on what is remembered here. Whoever takes something commits only if the ledger still has the very
//! version, and looks there otherwise. The memory is bounded: when it is full, the older half is forgotten.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::records::{PermissionRecord, Versioned};
use crate::intent::SignedIntent;

const HALF_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct RecentPermissions {
    halves: Mutex<[HashMap<String, CachedPermission>; 2]>,
}

/// A permission as the ledger has it, and what it says.
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

    /// Once: what was taken is out of date when it was used.
    pub(super) fn take(&self, intent_id: &str) -> Option<CachedPermission> {
        let halves = self.halves.lock();
        let [newer, older] = &mut *halves.unwrap_or_else(PoisonError::into_inner);
        newer.remove(intent_id).or_else(|| older.remove(intent_id))
    }
}
