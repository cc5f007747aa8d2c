//! A worker: claims rows while it has free slots, and hands each of them out with its slot.
//!
//! A capability at its own limit is left out of the claim, so its backlog does not block the others. Invariant: rows
//! that a pending claim may return count as running, so no limit is ever exceeded. A slot is freed when it is dropped,
//! however its handler ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consign_kernel::command::Claim;
use consign_kernel::intent::Intent;
use tokio::sync::{Notify, watch};

use crate::{Engine, Error};

/// The delay after a claim that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How much may run at once.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Rows in total, except those of capabilities that need no slot.
    pub slots: usize,
    /// The capabilities to claim, with their own limits. A worker without capabilities claims rows without one.
    pub capabilities: Vec<(String, usize)>,
}

/// Cheap to clone; all clones share the slots.
#[derive(Clone, Debug)]
pub struct Worker {
    inner: Arc<WorkerInner>,
}

#[derive(Debug)]
struct WorkerInner {
    /// The claim without its capabilities and its maximum.
    claim: Claim,
    /// Rows of these capabilities only wait, and need no slot.
    slotless: &'static [&'static str],
    counts: Mutex<Counts>,
    changed: Notify,
    ended: watch::Sender<u64>,
}

/// Rows that run or that pending claims may return, by capability.
#[derive(Debug, Default)]
struct Counts {
    running: HashMap<String, usize>,
    pending: HashMap<String, usize>,
    /// How many of them need a slot.
    slots: usize,
    pending_slots: usize,
}

impl WorkerInner {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn needs_slot(&self, capability: &str) -> bool {
        !self.slotless.contains(&capability)
    }
}

impl Worker {
    /// `slotless` are the capabilities whose rows need no slot.
    pub fn new(claim: Claim, slotless: &'static [&'static str]) -> Self {
        Self {
            inner: Arc::new(WorkerInner {
                claim,
                slotless,
                counts: Mutex::default(),
                changed: Notify::new(),
                ended: watch::Sender::new(0),
            }),
        }
    }

    /// The number of used slots.
    pub fn busy(&self) -> usize {
        self.inner.counts().slots
    }

    /// The number of running rows, with and without a slot.
    pub fn running(&self) -> usize {
        self.inner.counts().running.values().sum()
    }

    pub fn running_of(&self, capability: &str) -> usize {
        let counts = self.inner.counts();
        counts.running.get(capability).copied().unwrap_or(0)
    }

    /// Changes whenever a row has ended.
    pub fn ended(&self) -> watch::Receiver<u64> {
        self.inner.ended.subscribe()
    }

    /// Makes [`Worker::run`] ask for its limits again.
    pub fn wake(&self) {
        self.inner.changed.notify_one();
    }

    /// Returns after [`Worker::wake`], even if that is called before the future is polled.
    pub fn woken(&self) -> impl Future<Output = ()> + Send + '_ {
        self.inner.changed.notified()
    }

    /// Claims rows until `stopping` is true. `limits` is asked before each claim and may wait. A claim waits at most
    /// `poll` without a wake.
    pub async fn run<F>(
        &self,
        engine: &Engine,
        mut stopping: watch::Receiver<bool>,
        poll: Duration,
        limits: impl Fn() -> F,
        handle: impl Fn(Result<Vec<(WorkerSlot, Intent)>, Error>),
    ) where
        F: Future<Output = Limits> + Send,
    {
        while !*stopping.borrow_and_update() {
            // Subscribe before reading, so that no later change is missed.
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let limits = tokio::select! {
                limits = limits() => limits,
                _ = stopping.changed() => continue,
            };
            let leave = async {
                tokio::select! {
                    () = changed => {}
                    _ = stopping.changed() => {}
                }
            };
            let Some(reservation) = self.reserve(&limits, None) else {
                leave.await;
                continue;
            };
            let claim = reservation.claim();
            match engine.claim_unless(None, claim, poll, leave).await {
                Ok(rows) => handle(Ok(reservation.start(rows))),
                Err(error) => {
                    drop(reservation);
                    handle(Err(error));
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Waits until no slot is used, at most for `patience`; returns the number of used slots.
    pub async fn until_idle(&self, patience: Duration) -> usize {
        let mut ended = self.ended();
        let idle = async { while self.busy() > 0 && ended.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(patience, idle).await;
        self.busy()
    }

    /// Plans the largest claim that exceeds no limit; `None` if there is no free slot. `ending` is a slot that becomes
    /// free in the commit of the claim, which then returns one row at most.
    pub fn reserve(&self, limits: &Limits, ending: Option<&WorkerSlot>) -> Option<Reservation> {
        let mut counts = self.inner.counts();
        let frees = |slot: &WorkerSlot| usize::from(self.inner.needs_slot(&slot.capability));
        let taken = counts.slots + counts.pending_slots - ending.map_or(0, frees);
        let free = limits.slots.saturating_sub(taken);
        let mut rows_max = if free > 0 { free } else { usize::MAX };
        if ending.is_some() {
            rows_max = rows_max.min(1);
        }
        let mut capabilities = Vec::new();
        for (capability, max) in &limits.capabilities {
            let count =
                |counts: &HashMap<String, usize>| counts.get(capability).copied().unwrap_or(0);
            let freed = ending.is_some_and(|slot| slot.capability == *capability);
            let own = count(&counts.running) + count(&counts.pending) - usize::from(freed);
            let room = max.saturating_sub(own);
            if room > 0 && (free > 0 || !self.inner.needs_slot(capability)) {
                rows_max = rows_max.min(room);
                capabilities.push(capability.clone());
            }
        }
        if free == 0 && capabilities.is_empty() {
            return None;
        }
        let slots = if free > 0 { rows_max } else { 0 };
        counts.pending_slots += slots;
        for capability in &capabilities {
            *counts.pending.entry(capability.clone()).or_default() += rows_max;
        }
        drop(counts);
        Some(Reservation {
            worker: self.clone(),
            capabilities,
            rows_max,
            slots,
        })
    }

    /// Starts a row that was leased by its id, whatever the limits are.
    pub fn start(&self, row: &Intent) -> WorkerSlot {
        self.occupy(&mut self.inner.counts(), row)
    }

    fn occupy(&self, counts: &mut Counts, row: &Intent) -> WorkerSlot {
        let capability = row.capability.clone().unwrap_or_default();
        counts.slots += usize::from(self.inner.needs_slot(&capability));
        *counts.running.entry(capability.clone()).or_default() += 1;
        WorkerSlot {
            worker: self.clone(),
            capability,
            released: false,
        }
    }
}

/// A claim in progress. Dropping it frees its slots, even after a panic.
#[derive(Debug)]
pub struct Reservation {
    worker: Worker,
    capabilities: Vec<String>,
    rows_max: usize,
    slots: usize,
}

impl Reservation {
    pub fn claim(&self) -> Claim {
        Claim {
            capabilities: self.capabilities.clone(),
            max: u32::try_from(self.rows_max).unwrap_or(u32::MAX),
            ..self.worker.inner.claim.clone()
        }
    }

    /// The claimed rows, each in a slot of its own.
    pub fn start(mut self, rows: Vec<Intent>) -> Vec<(WorkerSlot, Intent)> {
        let worker = self.worker.clone();
        let mut counts = worker.inner.counts();
        self.release(&mut counts);
        let occupy = |row: Intent| (worker.occupy(&mut counts, &row), row);
        rows.into_iter().map(occupy).collect()
    }

    fn release(&mut self, counts: &mut Counts) {
        counts.pending_slots -= std::mem::take(&mut self.slots);
        for capability in std::mem::take(&mut self.capabilities) {
            if let Some(count) = counts.pending.get_mut(&capability) {
                *count -= self.rows_max;
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let worker = self.worker.clone();
        self.release(&mut worker.inner.counts());
    }
}

/// A slot that a row occupies until this is dropped.
#[derive(Debug)]
pub struct WorkerSlot {
    worker: Worker,
    capability: String,
    released: bool,
}

impl WorkerSlot {
    /// Frees the slot before the handler has ended, for the row that replaces this one.
    pub fn release(&mut self) {
        if !std::mem::replace(&mut self.released, true) {
            let inner = &self.worker.inner;
            let mut counts = inner.counts();
            counts.slots -= usize::from(inner.needs_slot(&self.capability));
            if let Some(count) = counts.running.get_mut(&self.capability) {
                *count -= 1;
            }
        }
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.release();
        self.worker.inner.changed.notify_one();
        self.worker.inner.ended.send_modify(|count| *count += 1);
    }
}
