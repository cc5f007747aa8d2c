//! A ledger that counts what is read from it. Everything passes.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use consign_kernel::record::{Kind, Record};
use consign_store::{BoxFuture, Error, Forwarding, SharedStore};

/// What was read so far.
#[derive(Debug, Default)]
pub struct Reads {
    calls: AtomicUsize,
    records: AtomicUsize,
    transactions: AtomicUsize,
}

/// Reads of one stretch of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCounts {
    /// Questions to the store.
    pub calls: usize,
    /// Records in the answers.
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

    /// Gives what was read since the last time, and begins again.
    pub fn take(&self) -> ReadCounts {
        let [calls, records, transactions] = [&self.calls, &self.records, &self.transactions]
            .map(|count| count.swap(0, Ordering::SeqCst));
        ReadCounts {
            calls,
            records,
            transactions,
        }
    }

    fn note(&self, answer: &dyn Any) {
        let list = answer.downcast_ref::<Vec<Record>>();
        let one = answer.downcast_ref::<Option<Record>>();
        let records = list.into_iter().flatten();
        let records = records.chain(one.into_iter().flatten());
        let (mut all, mut transactions) = (0, 0);
        for record in records {
            all += 1;
            transactions += usize::from(record.key.kind == Kind::Transaction);
        }
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.records.fetch_add(all, Ordering::SeqCst);
        self.transactions.fetch_add(transactions, Ordering::SeqCst);
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

    fn read<T, F>(&self, question: impl FnOnce(SharedStore) -> F) -> BoxFuture<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let asked = question(Arc::clone(&self.store));
        Box::pin(async move {
            let answer = asked.await?;
            self.reads.note(&answer);
            Ok(answer)
        })
    }
}
