//! A store whose connections live in another runtime than the test.
//!
//! A test may stop its runtime's time. Sockets know no such time: whoever waits for one there would see every timer go
//! off at once. Here a test waits for another thread's word only, as it does with SQLite.
//!
//! Invariant: stopped time stays where it is until a read is answered.

use std::future::Future;
use std::sync::Arc;

use consign_store::postgres::Postgres;
use consign_store::{BoxFuture, Error, Forwarding, SharedStore};
use tokio::runtime::Handle;

pub(super) struct Aside {
    store: SharedStore,
    runtime: Handle,
}

impl Aside {
    pub(super) fn new(store: Postgres, runtime: &Handle) -> Self {
        Self {
            store: Arc::new(store),
            runtime: runtime.clone(),
        }
    }
}

/// What is written passes as it is: the writers are threads already.
impl Forwarding for Aside {
    fn inner(&self) -> &SharedStore {
        &self.store
    }

    fn read<T, F>(&self, question: impl FnOnce(SharedStore) -> F) -> BoxFuture<'_, T>
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
