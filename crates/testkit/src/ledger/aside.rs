//! A store whose connections live in another runtime than the test.
//!
//! A test may stop its runtime's time. Sockets know no such time: whoever waits for one there would see every timer go
//! off at once. Here a test waits for another thread's word only, as it does with SQLite.
//!
//! Invariant: stopped time stays where it is until a read is answered.

use std::future::Future;
use std::sync::Arc;

use consign_kernel::command::{Reply, Request};
use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;
use consign_store::postgres::Postgres;
use consign_store::{
    Answered, Count, Dump, Error, EventFilter, EventPage, Held, IntentFilter, IntentPage, Listener,
    Stats, Store,
};
use tokio::runtime::Handle;

pub(super) struct Aside {
    store: Arc<Postgres>,
    runtime: Handle,
}

impl Aside {
    pub(super) fn new(store: Postgres, runtime: &Handle) -> Self {
        Self {
            store: Arc::new(store),
            runtime: runtime.clone(),
        }
    }

    fn ask<T, F>(&self, question: impl FnOnce(Arc<Postgres>) -> F) -> Answered<'_, T>
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

impl Store for Aside {
    /// The writers are threads already.
    fn execute(&self, request: Request) -> Answered<'_, Reply> {
        self.store.execute(request)
    }

    fn listen(&self, listener: Listener) {
        self.store.listen(listener);
    }

    fn intent(&self, id: IntentId) -> Answered<'_, Option<Intent>> {
        self.ask(async move |store| store.intent(id).await)
    }

    fn intents(&self, filter: IntentFilter) -> Answered<'_, IntentPage> {
        self.ask(async move |store| store.intents(filter).await)
    }

    fn open_jobs(
        &self,
        capability: String,
        goal: Option<String>,
        limit: u32,
    ) -> Answered<'_, Vec<Intent>> {
        self.ask(async move |store| store.open_jobs(capability, goal, limit).await)
    }

    fn children(&self, parent: IntentId, limit: u32) -> Answered<'_, Vec<Intent>> {
        self.ask(async move |store| store.children(parent, limit).await)
    }

    fn under_way(
        &self,
        profile: ProfileId,
        state: State,
        after: Seq,
        limit: u32,
    ) -> Answered<'_, Vec<Intent>> {
        self.ask(async move |store| store.under_way(profile, state, after, limit).await)
    }

    fn dead(&self, face: Face, limit: u32) -> Answered<'_, Vec<Intent>> {
        self.ask(async move |store| store.dead(face, limit).await)
    }

    fn facts(&self, intent: Seq, limit: u32) -> Answered<'_, Vec<Fact>> {
        self.ask(async move |store| store.facts(intent, limit).await)
    }

    fn last_fact_to(&self, intent: Seq, state: State) -> Answered<'_, Option<Fact>> {
        self.ask(async move |store| store.last_fact_to(intent, state).await)
    }

    fn events(&self, filter: EventFilter) -> Answered<'_, EventPage> {
        self.ask(async move |store| store.events(filter).await)
    }

    fn last_fact(&self) -> Answered<'_, FactSeq> {
        self.ask(async move |store| store.last_fact().await)
    }

    fn highest_fact(&self) -> Answered<'_, FactSeq> {
        self.ask(async move |store| store.highest_fact().await)
    }

    fn held(&self) -> Answered<'_, Vec<Held>> {
        self.ask(async move |store| store.held().await)
    }

    fn record(&self, key: record::Key) -> Answered<'_, Option<Record>> {
        self.ask(async move |store| store.record(key).await)
    }

    fn records(
        &self,
        kind: record::Kind,
        owner: String,
        after: String,
        limit: u32,
    ) -> Answered<'_, Vec<Record>> {
        self.ask(async move |store| store.records(kind, owner, after, limit).await)
    }

    fn last_records(
        &self,
        kind: record::Kind,
        owner: String,
        before: String,
        limit: u32,
    ) -> Answered<'_, Vec<Record>> {
        self.ask(async move |store| store.last_records(kind, owner, before, limit).await)
    }

    fn counts(&self, face: Face) -> Answered<'_, Vec<Count>> {
        self.ask(async move |store| store.counts(face).await)
    }

    fn next_due(&self) -> Answered<'_, Option<Micros>> {
        self.ask(async move |store| store.next_due().await)
    }

    fn check(&self) -> Answered<'_, Vec<String>> {
        self.ask(async move |store| store.check().await)
    }

    fn dump(&self) -> Answered<'_, Dump> {
        self.ask(async move |store| store.dump().await)
    }

    fn stats(&self) -> Stats {
        self.store.stats()
    }
}
