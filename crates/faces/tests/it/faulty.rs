//! A ledger that fails when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use consign_engine::{Count, EventFilter, EventPage, IntentFilter, IntentPage, SharedStore, Stats};
use consign_kernel::command::{Command, Reply, Request};
use consign_kernel::fact::Fact;
use consign_kernel::ids::{IntentId, Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;
use consign_store::{Answered, Dump, Error, Held, Listener, Store};

/// What is wrong with the ledger at the moment.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) queue_full: AtomicBool,
    pub(crate) disk_gone: AtomicBool,
    pub(crate) cleanup_fails: AtomicBool,
    /// How often somebody looked how far the ledger is.
    pub(crate) looks: AtomicUsize,
    /// How many pieces of a cleanup pass were asked for.
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

    fn pass<'a, T: 'a>(&self, answered: Answered<'a, T>) -> Answered<'a, T> {
        match self.faults.strike() {
            Ok(()) => answered,
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

impl Store for Faulty {
    fn execute(&self, request: Request) -> Answered<'_, Reply> {
        if matches!(request.steps.first(), Some(Command::Clean(_))) {
            self.faults.cleanups.fetch_add(1, Ordering::SeqCst);
            if self.faults.cleanup_fails.load(Ordering::SeqCst) {
                return Box::pin(async { Err(Error::Unavailable("planned".to_owned())) });
            }
        }
        self.pass(self.inner.execute(request))
    }

    fn listen(&self, listener: Listener) {
        self.inner.listen(listener);
    }

    fn intent(&self, id: IntentId) -> Answered<'_, Option<Intent>> {
        self.pass(self.inner.intent(id))
    }

    fn intents(&self, filter: IntentFilter) -> Answered<'_, IntentPage> {
        self.pass(self.inner.intents(filter))
    }

    fn open_jobs(
        &self,
        capability: String,
        goal: Option<String>,
        limit: u32,
    ) -> Answered<'_, Vec<Intent>> {
        self.pass(self.inner.open_jobs(capability, goal, limit))
    }

    fn children(&self, parent: IntentId, limit: u32) -> Answered<'_, Vec<Intent>> {
        self.pass(self.inner.children(parent, limit))
    }

    fn under_way(
        &self,
        profile: ProfileId,
        state: State,
        after: Seq,
        limit: u32,
    ) -> Answered<'_, Vec<Intent>> {
        self.pass(self.inner.under_way(profile, state, after, limit))
    }

    fn dead(&self, face: Face, limit: u32) -> Answered<'_, Vec<Intent>> {
        self.pass(self.inner.dead(face, limit))
    }

    fn facts(&self, intent: Seq, limit: u32) -> Answered<'_, Vec<Fact>> {
        self.pass(self.inner.facts(intent, limit))
    }

    fn last_fact_to(&self, intent: Seq, state: State) -> Answered<'_, Option<Fact>> {
        self.pass(self.inner.last_fact_to(intent, state))
    }

    fn events(&self, filter: EventFilter) -> Answered<'_, EventPage> {
        self.pass(self.inner.events(filter))
    }

    fn last_fact(&self) -> Answered<'_, consign_kernel::ids::FactSeq> {
        self.pass(self.inner.last_fact())
    }

    fn highest_fact(&self) -> Answered<'_, consign_kernel::ids::FactSeq> {
        self.faults.looks.fetch_add(1, Ordering::SeqCst);
        self.pass(self.inner.highest_fact())
    }

    fn record(&self, key: record::Key) -> Answered<'_, Option<Record>> {
        self.pass(self.inner.record(key))
    }

    fn records(
        &self,
        kind: record::Kind,
        owner: String,
        after: String,
        limit: u32,
    ) -> Answered<'_, Vec<Record>> {
        self.pass(self.inner.records(kind, owner, after, limit))
    }

    fn last_records(
        &self,
        kind: record::Kind,
        owner: String,
        before: String,
        limit: u32,
    ) -> Answered<'_, Vec<Record>> {
        self.pass(self.inner.last_records(kind, owner, before, limit))
    }

    fn counts(&self, face: Face) -> Answered<'_, Vec<Count>> {
        self.pass(self.inner.counts(face))
    }

    fn held(&self) -> Answered<'_, Vec<Held>> {
        self.pass(self.inner.held())
    }

    fn next_due(&self) -> Answered<'_, Option<Micros>> {
        self.pass(self.inner.next_due())
    }

    fn check(&self) -> Answered<'_, Vec<String>> {
        self.inner.check()
    }

    fn dump(&self) -> Answered<'_, Dump> {
        self.inner.dump()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}
