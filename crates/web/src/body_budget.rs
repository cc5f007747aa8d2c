//! A budget for the bytes of request bodies that this process holds at once.
//!
//! All faces and listeners share one budget. A body reserves its announced length before the first byte is read, or,
//! without one, the bytes received so far. A reservation is released when the body is dropped.
//!
//! Invariant: at most [`BODIES_BYTES_MAX`] are reserved in total, and at most [`BODIES_PER_SENDER_BYTES_MAX`] for one
//! key or address, so that no sender can block all others. Bodies of up to `SMALL_BYTES_MAX` are not counted per
//! sender: all connections together cannot fill the budget with them, and most requests need no lock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The limit of all bodies together.
pub const BODIES_BYTES_MAX: usize = 64 << 20;
/// The limit of one API key, or of one address without a key.
pub const BODIES_PER_SENDER_BYTES_MAX: usize = BODIES_BYTES_MAX / 4;
const SMALL_BYTES_MAX: usize = 4 << 10;

static BODIES: Budget = Budget::new(BODIES_BYTES_MAX, BODIES_PER_SENDER_BYTES_MAX);

/// The sender of a body.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BodySender {
    /// An API key, by its id.
    Key(String),
    Address(IpAddr),
    /// The operator's own programs, without a limit of their own.
    Trusted,
}

/// The budget is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverBudget;

#[derive(Debug)]
struct Budget {
    max: usize,
    per_sender_max: usize,
    taken: AtomicUsize,
    by_sender: Mutex<BTreeMap<BodySender, usize>>,
}

impl Budget {
    const fn new(max: usize, per_sender_max: usize) -> Self {
        Self {
            max,
            per_sender_max,
            taken: AtomicUsize::new(0),
            by_sender: Mutex::new(BTreeMap::new()),
        }
    }

    fn take(&self, bytes: usize) -> Result<(), OverBudget> {
        // Ordering: only the sum matters, no other memory depends on it.
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(bytes).filter(|taken| *taken <= self.max)
            });
        taken.map(drop).map_err(|_full| OverBudget)
    }

    fn take_for(&self, sender: &BodySender, bytes: usize) -> Result<(), OverBudget> {
        let mut by_sender = self
            .by_sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let held = by_sender.get(sender).copied().unwrap_or(0);
        let held = held.saturating_add(bytes);
        if held > self.per_sender_max {
            return Err(OverBudget);
        }
        self.take(bytes)?;
        by_sender.insert(sender.clone(), held);
        Ok(())
    }

    fn release(&self, counted: Option<&BodySender>, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        let Some(sender) = counted else { return };
        let mut by_sender = self
            .by_sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match by_sender.get_mut(sender) {
            Some(held) if *held > bytes => *held -= bytes,
            _ => drop(by_sender.remove(sender)),
        }
    }
}

/// The reserved bytes of one body, released when it is dropped.
#[derive(Debug)]
pub(super) struct BodyReservation {
    budget: &'static Budget,
    sender: BodySender,
    /// Small bodies are not counted for the sender.
    bytes: usize,
    is_counted: bool,
}

impl BodyReservation {
    pub(super) fn new(sender: BodySender) -> Self {
        Self::of(&BODIES, sender)
    }

    const fn of(budget: &'static Budget, sender: BodySender) -> Self {
        Self {
            budget,
            sender,
            bytes: 0,
            is_counted: false,
        }
    }

    /// Grows the reservation to at least `bytes`, or fails and leaves it unchanged.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return Ok(());
        };
        if bytes <= SMALL_BYTES_MAX || self.sender == BodySender::Trusted {
            self.budget.take(more)?;
        } else if self.is_counted {
            self.budget.take_for(&self.sender, more)?;
        } else {
            // From now on the whole body counts for the sender.
            self.budget.take_for(&self.sender, bytes)?;
            self.budget.release(None, self.bytes);
            self.is_counted = true;
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        let counted = self.is_counted.then_some(&self.sender);
        self.budget.release(counted, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn key(name: &str) -> BodySender {
        BodySender::Key(name.to_owned())
    }

    #[test]
    fn s11_all_bodies_share_one_budget_and_give_it_back() {
        static BUDGET: Budget = Budget::new(100 * KIB, 60 * KIB);
        let take = |sender, bytes| {
            let mut reservation = BodyReservation::of(&BUDGET, sender);
            reservation.grow_to(bytes).map(|()| reservation)
        };
        let first = take(key("a"), 50 * KIB).unwrap();
        assert!(take(key("a"), 20 * KIB).is_err(), "the share of one");
        let second = take(key("b"), 40 * KIB).unwrap();
        assert!(take(key("c"), 20 * KIB).is_err(), "the whole");
        assert!(take(BodySender::Trusted, 20 * KIB).is_err());
        let small = take(key("c"), 4 * KIB).unwrap();
        drop(first);
        let third = take(BodySender::Trusted, 56 * KIB).unwrap();
        drop((second, third, small));
        assert_eq!(BUDGET.taken.load(Ordering::Relaxed), 0);
        assert!(BUDGET.by_sender.lock().unwrap().is_empty());
    }

    #[test]
    fn s11_a_body_that_grows_counts_for_its_holder_once_it_is_not_small() {
        static BUDGET: Budget = Budget::new(100 * KIB, 60 * KIB);
        let mut growing = BodyReservation::of(&BUDGET, key("a"));
        for kib in [1, 4, 5, 60] {
            growing.grow_to(kib * KIB).unwrap();
            assert_eq!(BUDGET.taken.load(Ordering::Relaxed), kib * KIB);
        }
        assert!(growing.grow_to(61 * KIB).is_err());
        assert_eq!(BUDGET.taken.load(Ordering::Relaxed), 60 * KIB);
        drop(growing);
        assert_eq!(BUDGET.taken.load(Ordering::Relaxed), 0);
        assert!(BUDGET.by_sender.lock().unwrap().is_empty());
    }
}
