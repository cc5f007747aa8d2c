//! A ledger that counts its reads. All requests pass unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use consign_kernel::record::{Kind, Record};
use consign_store::{BoxFuture, Forwarding, Query, Rows, SharedStore};

/// The reads so far.
#[derive(Debug, Default)]
pub struct Reads {
    calls: AtomicUsize,
    records: AtomicUsize,
    transactions: AtomicUsize,
}

/// The reads of one part of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCounts {
    /// Calls of the store.
    pub calls: usize,
    /// Records in the results.
    pub records: usize,
    /// Those of them that are agent transactions, which are large.
    pub transactions: usize,
}

impl Reads {
    /// The same ledger, with its reads counted.
    #[must_use]
    pub fn of(self: &Arc<Self>, store: &SharedStore) -> SharedStore {
        Arc::new(Counted {
            store: Arc::clone(store),
            reads: Arc::clone(self),
        })
    }

    /// Returns the reads since the last call, and resets the counters.
    pub fn take(&self) -> ReadCounts {
        let [calls, records, transactions] = [&self.calls, &self.records, &self.transactions]
            .map(|count| count.swap(0, Ordering::SeqCst));
        ReadCounts {
            calls,
            records,
            transactions,
        }
    }

    fn note(&self, rows: &Rows) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Rows::Records(records) = rows {
            let is_transaction = |record: &&Record| record.key.kind == Kind::Transaction;
            let transactions = records.iter().filter(is_transaction).count();
            self.records.fetch_add(records.len(), Ordering::SeqCst);
            self.transactions.fetch_add(transactions, Ordering::SeqCst);
        }
    }
}

struct Counted {
    store: SharedStore,
    reads: Arc<Reads>,
}

impl Forwarding for Counted {
    fn inner(&self) -> &SharedStore {
        &self.store
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Rows> {
        Box::pin(async move {
            let rows = self.store.read(query).await?;
            self.reads.note(&rows);
            Ok(rows)
        })
    }
}
