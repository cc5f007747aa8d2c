//! A store whose connections run in another runtime than the test.
//!
//! A test may pause the time of its runtime. A paused runtime that waits for a socket advances its timers at once.
//! Here a test waits only for another thread, as it does with SQLite.
//!
//! Invariant: paused time does not advance until a read has returned.

use std::future::Future;
use std::sync::Arc;

use consign_store::postgres::Postgres;
use consign_store::{BoxFuture, Dump, Error, Forwarding, Query, Rows, SharedStore};
use tokio::runtime::Handle;

pub(super) struct OtherRuntimeStore {
    store: SharedStore,
    runtime: Handle,
}

impl OtherRuntimeStore {
    pub(super) fn new(store: Postgres, runtime: &Handle) -> Self {
        Self {
            store: Arc::new(store),
            runtime: runtime.clone(),
        }
    }

    fn run<T, F>(&self, question: impl FnOnce(SharedStore) -> F) -> BoxFuture<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (runtime, question) = (self.runtime.clone(), question(Arc::clone(&self.store)));
        Box::pin(async move {
            let asked = tokio::task::spawn_blocking(move || runtime.block_on(question));
            asked.await.expect("a read does not panic")
        })
    }
}

/// Writes pass unchanged: the writers are threads already.
impl Forwarding for OtherRuntimeStore {
    fn inner(&self) -> &SharedStore {
        &self.store
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Rows> {
        self.run(async move |store| store.read(query).await)
    }

    fn check(&self) -> BoxFuture<'_, Vec<String>> {
        self.run(async |store| store.check().await)
    }

    fn dump(&self) -> BoxFuture<'_, Dump> {
        self.run(async |store| store.dump().await)
    }
}
