//! Stores that forward to another store what they do not handle themselves.
//!
//! Tests and the simulation put them in front of a real ledger. Each implements only what differs; the methods of a store
//! are forwarded here once for all of them.

use std::sync::Arc;

use consign_kernel::command::{Reply, Request};
use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;

use crate::{
    BoxFuture, CommitListener, Count, Dump, Error, EventFilter, EventPage, IntentFilter,
    IntentPage, JobCount, LeaseCount, Outline, OutlinePage, SharedStore, Stats, Store,
};

pub trait Forwarding: Send + Sync + 'static {
    /// The store that handles everything else.
    fn inner(&self) -> &SharedStore;

    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        self.inner().execute(request)
    }

    fn listen(&self, listener: CommitListener) {
        self.inner().listen(listener);
    }

    /// All reads pass through this method, each as a call of the inner store.
    fn read<T, F>(&self, question: impl FnOnce(SharedStore) -> F) -> BoxFuture<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Box::pin(question(Arc::clone(self.inner())))
    }

    fn stats(&self) -> Stats {
        self.inner().stats()
    }
}

macro_rules! reads {
    ($(fn $name:ident($($given:ident: $kind:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($given: $kind),*) -> BoxFuture<'_, $answer> {
            self.read(async move |store| store.$name($($given),*).await)
        })*
    };
}

impl<P: Forwarding> Store for P {
    fn execute(&self, request: Request) -> BoxFuture<'_, Reply> {
        Forwarding::execute(self, request)
    }

    fn listen(&self, listener: CommitListener) {
        Forwarding::listen(self, listener);
    }

    fn stats(&self) -> Stats {
        Forwarding::stats(self)
    }

    reads! {
        fn intent(id: IntentId) -> Option<Intent>;
        fn intents(filter: IntentFilter) -> IntentPage;
        fn outlines(filter: IntentFilter) -> OutlinePage;
        fn children(parent: IntentId, limit: u32) -> Vec<Intent>;
        fn child_jobs(parent: IntentId, limit: u32) -> Vec<Outline>;
        fn find_job_by_payload(text: String, after: IntentId, scan_max: u32) -> Option<Outline>;
        fn open_jobs(capability: String, goal: Option<String>, limit: u32) -> Vec<Outline>;
        fn jobs_by_state(state: Option<State>, limit: u32) -> Vec<Outline>;
        fn job_counts(now: Micros) -> Vec<JobCount>;
        fn active_rows(profile: ProfileId, state: State, after: Seq, limit: u32) -> Vec<Intent>;
        fn dead(face: Face, limit: u32) -> Vec<Intent>;
        fn facts(intent: Seq, limit: u32) -> Vec<Fact>;
        fn last_fact_to(intent: Seq, states: &'static [State], before: Option<FactSeq>, scan_max: u32) -> Option<Fact>;
        fn events(filter: EventFilter) -> EventPage;
        fn last_fact() -> FactSeq;
        fn highest_fact() -> FactSeq;
        fn record(key: record::Key) -> Option<Record>;
        fn records(kind: record::Kind, owner: String, after: String, limit: u32) -> Vec<Record>;
        fn last_records(kind: record::Kind, owner: String, before: String, limit: u32) -> Vec<Record>;
        fn counts(face: Face) -> Vec<Count>;
        fn lease_counts() -> Vec<LeaseCount>;
        fn next_due() -> Option<Micros>;
        fn check() -> Vec<String>;
        fn dump() -> Dump;
    }
}
