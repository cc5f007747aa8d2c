//! Who waits for which lanes. A wake is a hint: the woken one asks the ledger, and nobody relies on being woken.
//!
//! Invariant: a waiter registers before it looks, so a row that becomes claimable in between is never missed;
//! a hint given to a waiter that goes away is passed on, also when it goes while it looks or when its look fails.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_kernel::lane::Probe;
use consign_kernel::plant::{self, Plant};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Wakes {
    waiting: Mutex<HashMap<Probe, VecDeque<Arc<Waiter>>>>,
}

#[derive(Debug, Default)]
struct Waiter {
    woken: AtomicBool,
    notify: Notify,
}

/// A place in the lines of some lanes; leaving it frees the place.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    wakes: &'a Wakes,
    waiter: Arc<Waiter>,
    probes: Vec<Probe>,
    /// Woken, and has not looked since.
    hinted: AtomicBool,
}

impl Wakes {
    pub(crate) fn register(&self, probes: Vec<Probe>) -> Ticket<'_> {
        let waiter = Arc::new(Waiter::default());
        let mut waiting = self.waiting();
        for probe in &probes {
            waiting
                .entry(*probe)
                .or_default()
                .push_back(Arc::clone(&waiter));
        }
        drop(waiting);
        Ticket {
            wakes: self,
            waiter,
            probes,
            hinted: AtomicBool::new(false),
        }
    }

    /// Wakes the first one in line for each lane.
    pub(crate) fn wake(&self, ripe: &[Probe]) {
        if ripe.is_empty() || plant::on(Plant::LostWake) {
            return;
        }
        let waiting = self.waiting();
        if waiting.is_empty() {
            return;
        }
        for probe in ripe {
            let line = waiting.get(probe).into_iter().flatten();
            if let Some(waiter) = line
                .into_iter()
                .find(|waiter| !waiter.woken.swap(true, Ordering::AcqRel))
            {
                waiter.notify.notify_one();
            }
        }
    }

    pub(crate) fn wake_all(&self) {
        for waiter in self.waiting().values().flatten() {
            if !waiter.woken.swap(true, Ordering::AcqRel) {
                waiter.notify.notify_one();
            }
        }
    }

    pub(crate) fn waiters(&self) -> usize {
        self.waiting().values().map(VecDeque::len).sum()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Probe, VecDeque<Arc<Waiter>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket<'_> {
    /// Returns when a row became claimable in one of the lanes.
    pub(crate) async fn woken(&self) {
        self.waiter.notify.notified().await;
        self.hinted.store(true, Ordering::Relaxed);
        self.waiter.woken.store(false, Ordering::Release);
    }

    /// The ledger was asked and answered, so the hint has done its work.
    pub(crate) fn looked(&self) {
        self.hinted.store(false, Ordering::Relaxed);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut waiting = self.wakes.waiting();
        for probe in &self.probes {
            if let Some(line) = waiting.get_mut(probe) {
                line.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
                if line.is_empty() {
                    waiting.remove(probe);
                }
            }
        }
        drop(waiting);
        if self.waiter.woken.load(Ordering::Acquire) || self.hinted.load(Ordering::Relaxed) {
            self.wakes.wake(&self.probes);
        }
    }
}
