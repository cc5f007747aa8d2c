//! Slots for outgoing calls: limits on the number of running calls, in total and for each target.
//!
//! Invariant: a call waits for its targets first and for the total after that, so calls that wait for a slow target take no
//! slot from others. A target without calls takes no memory.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::guard::CheckedTarget;

/// What calls are counted by. The operator has chosen a listed target, so it has slots of its own. Names and ports cost
/// nothing, so others are counted by their network: for IPv4 the /24, for IPv6 the /48.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum CallTarget {
    Listed(String),
    Network(IpAddr),
}

impl CallTarget {
    /// All of them, because the addresses of a name are tried one after the other.
    pub(super) fn of(target: &CheckedTarget) -> BTreeSet<Self> {
        if target.is_listed() {
            return BTreeSet::from([Self::Listed(target.url().authority().to_string())]);
        }
        let addresses = target.sockets().iter();
        addresses
            .map(|at| Self::Network(network(at.ip())))
            .collect()
    }
}

fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 80)).into(),
    }
}

#[derive(Debug)]
pub(super) struct CallSlots {
    total: Arc<Semaphore>,
    per_target_max: usize,
    targets: Mutex<HashMap<CallTarget, Arc<Semaphore>>>,
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
    pub(super) async fn take(&self, targets: BTreeSet<CallTarget>) -> Option<CallSlot<'_>> {
        let semaphores: Vec<Arc<Semaphore>> = {
            let mut known = self.lock();
            let new = || Arc::new(Semaphore::new(self.per_target_max));
            let semaphores = targets
                .iter()
                .map(|target| Arc::clone(known.entry(target.clone()).or_insert_with(new)));
            semaphores.collect()
        };
        // The slot exists before the waits, so that a caller that gives up also releases its entries.
        let mut slot = CallSlot {
            slots: self,
            targets,
            held: Vec::new(),
            semaphores,
        };
        // Ordering: all calls wait for their targets in the same order, so that two calls cannot wait for each other.
        for at in 0..slot.semaphores.len() {
            let semaphore = Arc::clone(&slot.semaphores[at]);
            slot.held.push(semaphore.acquire_owned().await.ok()?);
        }
        let total = Arc::clone(&self.total);
        slot.held.push(total.acquire_owned().await.ok()?);
        Some(slot)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallTarget, Arc<Semaphore>>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn targets_in_use(&self) -> usize {
        self.lock().len()
    }
}

#[derive(Debug)]
pub(super) struct CallSlot<'a> {
    slots: &'a CallSlots,
    targets: BTreeSet<CallTarget>,
    held: Vec<OwnedSemaphorePermit>,
    semaphores: Vec<Arc<Semaphore>>,
}

impl Drop for CallSlot<'_> {
    fn drop(&mut self) {
        self.held.clear();
        let mut known = self.slots.lock();
        self.semaphores.clear();
        for target in &self.targets {
            // Only the map still has it: no call runs or waits.
            if known
                .get(target)
                .is_some_and(|semaphore| Arc::strong_count(semaphore) == 1)
            {
                known.remove(target);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_network() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("198.51.100.1", "198.51.100.254"));
        assert!(!same("198.51.100.1", "198.51.101.1"));
        assert!(same("198.51.100.1", "::ffff:198.51.100.2"));
        assert!(same("2001:db8:1:2::1", "2001:db8:1:ffff::2"));
        assert!(!same("2001:db8:1::1", "2001:db8:2::1"));
    }

    #[tokio::test]
    async fn a_call_waits_for_all_networks_of_its_name() {
        let slots = CallSlots::new(10, 1);
        let network = |last: u8| CallTarget::Network([198, 51, last, 0].into());
        let first = slots.take(BTreeSet::from([network(1), network(2)])).await;
        let second = slots.take(BTreeSet::from([network(2), network(3)]));
        let waited = tokio::time::timeout(std::time::Duration::from_millis(20), second).await;
        assert!(waited.is_err(), "the second network is in use");
        assert!(slots.take(BTreeSet::from([network(3)])).await.is_some());
        drop(first);
        assert_eq!(slots.targets_in_use(), 0);
    }
}
