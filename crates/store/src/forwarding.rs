//! Stores that forward to another store what they do not handle themselves.
//!
//! Tests and the simulation put them in front of a real ledger. Each implements only what differs.

use consign_kernel::command::{Reply, Request};

use crate::{BoxFuture, CommitListener, Dump, Query, Rows, SharedStore, Stats, Store};

pub trait Forwarding: Send + Sync + 'static {
    /// The store that handles everything else.
    fn inner(&self) -> &SharedStore;

    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        self.inner().execute(request)
    }

    fn listen(&self, listener: CommitListener) {
        self.inner().listen(listener);
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Rows> {
        self.inner().read(query)
    }

    fn check(&self) -> BoxFuture<'_, Vec<String>> {
        self.inner().check()
    }

    fn dump(&self) -> BoxFuture<'_, Dump> {
        self.inner().dump()
    }

    fn stats(&self) -> Stats {
        self.inner().stats()
    }
}

impl<P: Forwarding> Store for P {
    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        Forwarding::execute(self, request)
    }

    fn listen(&self, listener: CommitListener) {
        Forwarding::listen(self, listener);
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Rows> {
        Forwarding::read(self, query)
    }

    fn check(&self) -> BoxFuture<'_, Vec<String>> {
        Forwarding::check(self)
    }

    fn dump(&self) -> BoxFuture<'_, Dump> {
        Forwarding::dump(self)
    }

    fn stats(&self) -> Stats {
        Forwarding::stats(self)
    }
}
