//! Who waits for which lanes. A wake is a hint: the woken one asks the ledger, and nobody relies on being woken.
//!
//! Invariant: a waiter registers before it looks, so a row that becomes claimable in between is never missed;
//! a hint given to a waiter that goes away is passed on, also when it goes while it looks or when its look fails.
//! Another node names a lane once, however many rows it put there, so whoever finds one of them wakes the next in line; the first
//! that finds nothing wakes nobody.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_kernel::lane::Probe;
use consign_kernel::plant::{self, Plant};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Wakes {
    waiting: Mutex<HashMap<Probe, VecDeque<Arc<Waiter>>>>,
}

/// How many are woken by one that found something another node told of: a burst doubles its takers until it is taken, and at most
/// every second look of them is in vain.
const WOKEN_BY_A_FIND: usize = 2;

/// Why somebody looks.
#[derive(Clone, Copy, Debug)]
enum Hint {
    /// One row became claimable, and each row has its own hint.
    Row,
    /// Another node put rows into this lane, nobody knows how many.
    Lane(Probe),
}

#[derive(Debug, Default)]
struct Waiter {
    hint: HintCell,
    notify: Notify,
}

#[derive(Debug, Default)]
struct HintCell(Mutex<Option<Hint>>);

impl HintCell {
    /// Whether it was empty. What is in there already stays: one look serves both.
    fn fill(&self, hint: Hint) -> bool {
        let mut cell = self.lock();
        let empty = cell.is_none();
        cell.get_or_insert(hint);
        empty
    }

    fn take(&self) -> Option<Hint> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Hint>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// Whether it was asleep until now.
    fn wake(&self, hint: Hint) -> bool {
        let asleep = self.hint.fill(hint);
        if asleep {
            self.notify.notify_one();
        }
        asleep
    }
}

/// A place in the lines of some lanes; leaving it frees the place.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    wakes: &'a Wakes,
    waiter: Arc<Waiter>,
    probes: Vec<Probe>,
    /// Why it was woken, if it has not looked since.
    hinted: HintCell,
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
            hinted: HintCell::default(),
        }
    }

    /// Wakes the first one in line for each row that became claimable.
    pub(crate) fn wake(&self, ripe: &[Probe]) {
        self.hint(ripe, |_| Hint::Row);
    }

    /// The same for lanes in which another node has put rows.
    pub(crate) fn wake_heard(&self, lanes: &[Probe]) {
        self.hint(lanes, Hint::Lane);
    }

    fn hint(&self, lanes: &[Probe], hint: impl Fn(Probe) -> Hint) {
        if lanes.is_empty() || plant::on(Plant::LostWake) {
            return;
        }
        let waiting = self.waiting();
        if waiting.is_empty() {
            return;
        }
        for probe in lanes {
            let mut line = waiting.get(probe).into_iter().flatten();
            let _woken = line.any(|waiter| waiter.wake(hint(*probe)));
        }
    }

    pub(crate) fn wake_all(&self) {
        for waiter in self.waiting().values().flatten() {
            waiter.wake(Hint::Row);
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
        if let Some(hint) = self.waiter.hint.take() {
            self.hinted.fill(hint);
        }
    }

    /// The ledger was asked and had nothing, so the hint has done its work.
    pub(crate) fn found_nothing(&self) {
        self.hinted.take();
    }

    /// The ledger was asked and gave something. Where another node put that, there may be more of it.
    pub(crate) fn found(self) {
        let (wakes, hint) = (self.wakes, self.hinted.take());
        // Not in line any more, so that it does not wake itself.
        drop(self);
        if let Some(Hint::Lane(lane)) = hint {
            wakes.wake_heard(&[lane; WOKEN_BY_A_FIND]);
        }
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
        match self.waiter.hint.take().or_else(|| self.hinted.take()) {
            Some(Hint::Row) => self.wakes.wake(&self.probes),
            Some(Hint::Lane(_)) => self.wakes.wake_heard(&self.probes),
            None => {}
        }
    }
}
