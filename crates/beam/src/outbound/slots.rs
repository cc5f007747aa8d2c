//! Slots for outgoing calls: limits on the number of running calls, in total and for each target.
//!
//! Invariant: a call waits for its target first and for the total after that, so calls that wait for a slow target take no
//! slot from others. A target without calls takes no memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::url::TargetAuthority;

#[derive(Debug)]
pub(super) struct CallSlots {
    total: Arc<Semaphore>,
    per_target_max: usize,
    targets: Mutex<HashMap<TargetAuthority, Arc<Semaphore>>>,
}

impl CallSlots {
    pub(super) fn new(total_max: usize, per_target_max: usize) -> Self {
        Self {
            total: Arc::new(Semaphore::new(total_max)),
            per_target_max,
            targets: Mutex::default(),
        }
    }

    /// Waits for a slot, which is free again when the result is dropped. Returns nothing only if a semaphore was closed,
    /// which this module never does.
    pub(super) async fn take(&self, target: &TargetAuthority) -> Option<CallSlot<'_>> {
        let semaphore = {
            let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(self.per_target_max));
            Arc::clone(targets.entry(target.clone()).or_insert_with(new))
        };
        // The slot exists before the waits, so that a caller that gives up also releases its entry.
        let mut slot = CallSlot {
            slots: self,
            target: target.clone(),
            held: Vec::new(),
            semaphore: Some(Arc::clone(&semaphore)),
        };
        slot.held.push(semaphore.acquire_owned().await.ok()?);
        let total = Arc::clone(&self.total);
        slot.held.push(total.acquire_owned().await.ok()?);
        Some(slot)
    }

    #[cfg(test)]
    pub(super) fn targets_in_use(&self) -> usize {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.len()
    }
}

#[derive(Debug)]
pub(super) struct CallSlot<'a> {
    slots: &'a CallSlots,
    target: TargetAuthority,
    held: Vec<OwnedSemaphorePermit>,
    semaphore: Option<Arc<Semaphore>>,
}

impl Drop for CallSlot<'_> {
    fn drop(&mut self) {
        self.held.clear();
        let mut targets = self
            .slots
            .targets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.semaphore = None;
        // Only the map still has it: no call runs or waits.
        if targets
            .get(&self.target)
            .is_some_and(|semaphore| Arc::strong_count(semaphore) == 1)
        {
            targets.remove(&self.target);
        }
    }
}
