//! A ledger with faults that tests switch on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use consign_kernel::command::{Command, Reply, Request};
use consign_store::{BoxFuture, Error, Forwarding, Query, Rows, SharedStore};

/// The current faults of the ledger, and counters of requests.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) queue_full: AtomicBool,
    pub(crate) disk_gone: AtomicBool,
    pub(crate) cleanup_fails: AtomicBool,
    /// The number of read requests.
    pub(crate) reads: AtomicUsize,
    /// The number of requested steps of cleanup passes.
    pub(crate) cleanups: AtomicUsize,
}

impl Faults {
    fn strike(&self) -> Result<(), Error> {
        if self.queue_full.load(Ordering::SeqCst) {
            return Err(Error::Busy);
        }
        if self.disk_gone.load(Ordering::SeqCst) {
            return Err(Error::Unavailable(
                "/secret/path: disk I/O error".to_owned(),
            ));
        }
        Ok(())
    }
}

pub(crate) struct Faulty {
    inner: SharedStore,
    faults: Arc<Faults>,
}

impl Faulty {
    pub(crate) fn around(inner: SharedStore, faults: Arc<Faults>) -> SharedStore {
        Arc::new(Self { inner, faults })
    }

    fn pass<'a, T: 'a>(&self, answered: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        match self.faults.strike() {
            Ok(()) => answered,
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

impl Forwarding for Faulty {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        if matches!(request.steps.first(), Some(Command::Clean(_))) {
            self.faults.cleanups.fetch_add(1, Ordering::SeqCst);
            if self.faults.cleanup_fails.load(Ordering::SeqCst) {
                return Box::pin(async { Err(Error::Unavailable("planned".to_owned())) });
            }
        }
        self.pass(self.inner.execute(request))
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Rows> {
        self.faults.reads.fetch_add(1, Ordering::SeqCst);
        self.pass(self.inner.read(query))
    }
}
