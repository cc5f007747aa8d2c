//! Limits how many slots one holder, and all holders together, may occupy at a time.
//!
//! Invariant: a slot is free again as soon as it is dropped, and a holder without slots needs no memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// A counter of slots; clones share it.
#[derive(Clone, Debug)]
pub struct Slots<K>(Arc<Mutex<SlotCounts<K>>>);

#[derive(Debug)]
struct SlotCounts<K> {
    total: usize,
    by_holder: HashMap<K, usize>,
}

/// One occupied slot.
#[derive(Debug)]
pub struct Slot<K: Eq + Hash> {
    slots: Slots<K>,
    holder: K,
}

impl<K> Default for Slots<K> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(SlotCounts {
            total: 0,
            by_holder: HashMap::new(),
        })))
    }
}

impl<K: Eq + Hash + Clone> Slots<K> {
    /// `None` if the holder, or all holders together, have reached their limit.
    pub fn take(&self, holder: &K, holder_max: usize, total_max: usize) -> Option<Slot<K>> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.by_holder.get(holder).copied().unwrap_or(0);
        if own >= holder_max || counts.total >= total_max {
            return None;
        }
        counts.by_holder.insert(holder.clone(), own + 1);
        counts.total += 1;
        Some(Slot {
            slots: Self(Arc::clone(&self.0)),
            holder: holder.clone(),
        })
    }
}

impl<K: Eq + Hash> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut counts = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        match counts.by_holder.get_mut(&self.holder) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(counts.by_holder.remove(&self.holder)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_has_its_limit_and_a_dropped_slot_is_free_again() {
        let slots = Slots::default();
        let first = slots.take(&"a", 2, 3).unwrap();
        let _second = slots.take(&"a", 2, 3).unwrap();
        assert!(slots.take(&"a", 2, 3).is_none(), "its limit is reached");
        let _other = slots.take(&"b", 2, 3).unwrap();
        assert!(slots.take(&"c", 2, 3).is_none(), "all slots are occupied");
        drop(first);
        assert!(slots.take(&"c", 2, 3).is_some());
    }

    #[test]
    fn a_holder_without_slots_needs_no_memory() {
        let slots = Slots::default();
        let held = [
            slots.take(&"a", 2, 3).unwrap(),
            slots.take(&"b", 2, 3).unwrap(),
        ];
        drop(held);
        let counts = slots.0.lock().unwrap();
        assert_eq!(counts.total, 0);
        assert!(counts.by_holder.is_empty());
    }
}
