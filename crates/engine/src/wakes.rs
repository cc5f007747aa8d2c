//! Claims that wait for lanes. A wake is a hint: the woken claim asks the ledger, and correctness does not depend on
//! wakes.
//!
//! Invariant: a waiter registers before it asks the ledger, so a row that becomes claimable in between is never
//! missed. A waiter that leaves passes its hint on, also when it leaves during a claim or when the claim fails.
//! Another node names a lane once, however many rows it added, so a waiter that finds a row wakes the next waiters;
//! one that finds nothing wakes none.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_kernel::lane::Probe;
use consign_kernel::plant::{self, Plant};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Wakes {
    waiting: Mutex<HashMap<Probe, VecDeque<Arc<Waiter>>>>,
}

/// How many waiters are woken by a waiter that found a row of another node. The number of active waiters doubles
/// until a burst is taken, and at most half of their claims find nothing.
const WOKEN_BY_A_FIND: usize = 2;

/// Why a waiter was woken.
#[derive(Clone, Copy, Debug)]
enum Hint {
    /// One row became claimable; each row has its own hint.
    Row,
    /// Another node added rows to this lane, their number is unknown.
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
    /// Returns whether the cell was empty. An existing hint stays, because one claim serves both.
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
    /// Returns whether it was waiting until now.
    fn wake(&self, hint: Hint) -> bool {
        let asleep = self.hint.fill(hint);
        if asleep {
            self.notify.notify_one();
        }
        asleep
    }
}

/// A position in the queues of some lanes; dropping it leaves them.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    wakes: &'a Wakes,
    waiter: Arc<Waiter>,
    probes: Vec<Probe>,
    /// The hint that woke it, until its next claim.
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

    /// Wakes the first waiter for each row that became claimable.
    pub(crate) fn wake(&self, ripe: &[Probe]) {
        self.hint(ripe, |_| Hint::Row);
    }

    /// The same for lanes to which another node added rows.
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

    /// The claim found nothing, so the hint is used up.
    pub(crate) fn found_nothing(&self) {
        self.hinted.take();
    }

    /// The claim found a row. If another node added it, there may be more.
    pub(crate) fn found(self) {
        let (wakes, hint) = (self.wakes, self.hinted.take());
        // Leaves the queues first, so that it does not wake itself.
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
