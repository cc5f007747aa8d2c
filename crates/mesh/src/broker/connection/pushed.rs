//! The messages that a connection was sent and has not acknowledged.
//!
//! Invariant: bounded. A lease that has ended is forgotten, because its message is delivered again; a copy that does not fit
//! is forgotten too, and its acknowledgement is found by a read of the ledger.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use consign_engine::Lease;
use consign_kernel::ids::{IntentId, Micros};
use tokio::sync::Notify;

use crate::limits::UNACKED_MAX;

/// Copies that are remembered.
const COPIES_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct PushedMessages {
    rows: Mutex<PushedRows>,
    /// A message was acknowledged.
    acked: Notify,
}

#[derive(Debug, Default)]
struct PushedRows {
    /// By message.
    leased: HashMap<IntentId, LeasedDelivery>,
    /// The deliveries of copies, by message.
    copies: HashMap<IntentId, IntentId>,
    /// The messages of the ids that their senders chose.
    by_client_id: HashMap<String, IntentId>,
}

/// A delivery whose lease this connection holds.
#[derive(Clone, Debug)]
pub(super) struct LeasedDelivery {
    pub(super) lease: Lease,
    pub(super) until: Micros,
}

impl PushedMessages {
    fn rows(&self) -> MutexGuard<'_, PushedRows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_leased(&self, message: IntentId, delivery: LeasedDelivery) {
        self.rows().leased.insert(message, delivery);
    }

    pub(super) fn add_copy(&self, message: IntentId, delivery: IntentId) {
        let mut rows = self.rows();
        if rows.copies.len() >= COPIES_MAX {
            rows.copies.clear();
        }
        rows.copies.insert(message, delivery);
    }

    pub(super) fn name(&self, client_id: &str, message: IntentId) {
        let mut rows = self.rows();
        if rows.by_client_id.len() >= COPIES_MAX {
            rows.by_client_id.clear();
        }
        rows.by_client_id.insert(client_id.to_owned(), message);
    }

    /// The message with an id of its sender, if it was pushed here.
    pub(super) fn named(&self, client_id: &str) -> Option<IntentId> {
        self.rows().by_client_id.get(client_id).copied()
    }

    /// Takes the delivery of a message: its lease, if it runs.
    pub(super) fn take_leased(&self, message: IntentId) -> Option<LeasedDelivery> {
        let taken = self.rows().leased.remove(&message);
        self.acked.notify_waiters();
        taken
    }

    pub(super) fn take_copy(&self, message: IntentId) -> Option<IntentId> {
        self.rows().copies.remove(&message)
    }

    /// All leases, for a connection that ends.
    pub(super) fn take_all(&self) -> Vec<LeasedDelivery> {
        let mut rows = self.rows();
        rows.leased.drain().map(|(_, delivery)| delivery).collect()
    }

    /// How many more messages may be pushed.
    pub(super) fn room(&self, now: Micros) -> usize {
        let mut rows = self.rows();
        if rows.leased.len() >= UNACKED_MAX {
            rows.leased.retain(|_, delivery| delivery.until > now);
        }
        UNACKED_MAX.saturating_sub(rows.leased.len())
    }

    /// Completes with the next acknowledgement.
    pub(super) async fn acked(&self) {
        self.acked.notified().await;
    }
}
