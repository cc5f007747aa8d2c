//! Storage of intents: one trait, its backends, and the suite that all of them must pass.
//!
//! Invariant: state changes only through [`Store::execute`], which replies after the commit that covers the request; and
//! by [`copy`], into a ledger on which no server can start meanwhile.
//! Only this crate contains SQL; the kernel contains the rules.

mod check;
mod error;
mod group;
mod ledger;
mod outline;

pub mod copy;
pub mod failpoint;
pub mod memory;
pub mod postgres;
pub mod sqlite;

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "simulation")]
mod forwarding;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use consign_kernel::command::{Reply, Request};
use consign_kernel::fact::{Event, Fact};
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::lane::Probe;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;

pub use error::Error;
#[cfg(feature = "simulation")]
pub use forwarding::Forwarding;
pub use ledger::News;
pub use outline::{JobCount, Outline, OutlinePage};

/// Engine time. It never goes back.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Micros;

    /// The time of the wall clock, which may be set back. It decides only when permissions end.
    fn time_of_day(&self) -> Micros {
        self.now()
    }
}

/// A boxed future: dynamic dispatch costs nothing next to a commit.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The ledger and its records.
///
/// Implementors guarantee: commands of one request see each other's writes, in order; requests are
/// serializable; a reply is sent only after its commit is durable; reads see every acknowledged write, and show nothing
/// that a power failure could still undo.
pub trait Store: Send + Sync + 'static {
    /// The only way to change state. Concurrent requests may share the commit.
    fn execute(&self, request: Request) -> BoxFuture<'_, Reply>;

    /// From now on `listener` is called with the effects of each commit, as a hint to read: the commit may not be durable
    /// yet. It must return quickly.
    fn listen(&self, listener: CommitListener);

    fn intent(&self, id: IntentId) -> BoxFuture<'_, Option<Intent>>;

    /// Newest first.
    fn intents(&self, filter: IntentFilter) -> BoxFuture<'_, IntentPage>;

    /// As [`intents`](Self::intents), without payloads and results.
    fn outlines(&self, filter: IntentFilter) -> BoxFuture<'_, OutlinePage>;

    /// The intents that an intent caused, in the order of admission.
    fn children(&self, parent: IntentId, limit: u32) -> BoxFuture<'_, Vec<Intent>>;

    /// The jobs among [`children`](Self::children), without payloads and results.
    fn child_jobs(&self, parent: IntentId, limit: u32) -> BoxFuture<'_, Vec<Outline>>;

    /// The first job after an id whose payload contains a text; examines at most `scan_max` jobs.
    fn find_job_by_payload(
        &self,
        text: String,
        after: IntentId,
        scan_max: u32,
    ) -> BoxFuture<'_, Option<Outline>>;

    /// Queued and running jobs of a capability, by goal and then oldest first; only those of `goal` if it is given.
    fn open_jobs(
        &self,
        capability: String,
        goal: Option<String>,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Outline>>;

    /// Queued and running jobs, or only those in `state`, in the order of admission.
    fn jobs_by_state(&self, state: Option<State>, limit: u32) -> BoxFuture<'_, Vec<Outline>>;

    /// How many jobs are queued and running, by capability. Jobs that are due after `now` count as delayed.
    fn job_counts(&self, now: Micros) -> BoxFuture<'_, Vec<JobCount>>;

    /// Rows of a profile and state that are leased, delayed or claimable after a lapsed lease, in the order of admission,
    /// after a row. Queued and ended rows are not examined.
    fn active_rows(
        &self,
        profile: ProfileId,
        state: State,
        after: Seq,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Intent>>;

    /// Dead letters of a face, latest first.
    fn dead(&self, face: Face, limit: u32) -> BoxFuture<'_, Vec<Intent>>;

    /// The last facts of one intent, oldest first; none after the intent is removed.
    fn facts(&self, intent: Seq, limit: u32) -> BoxFuture<'_, Vec<Fact>>;

    /// The last fact that led an intent to one of `states`, before the fact `before` if it is given. Examines at most
    /// `scan_max` facts.
    fn last_fact_to(
        &self,
        intent: Seq,
        states: &'static [State],
        before: Option<FactSeq>,
        scan_max: u32,
    ) -> BoxFuture<'_, Option<Fact>>;

    /// Facts after a position, oldest first. Never returns a fact if one with a lower number may still become visible.
    fn events(&self, filter: EventFilter) -> BoxFuture<'_, EventPage>;

    /// Later facts have higher numbers than this; a few visible ones may have too.
    fn last_fact(&self) -> BoxFuture<'_, FactSeq> {
        let last = self.stats().last_fact;
        Box::pin(std::future::ready(Ok(last)))
    }

    /// No fact has a higher number than this, visible or not.
    fn highest_fact(&self) -> BoxFuture<'_, FactSeq> {
        self.last_fact()
    }

    fn record(&self, key: record::Key) -> BoxFuture<'_, Option<Record>>;

    /// Records of one owner in the order of their names, after a name.
    fn records(
        &self,
        kind: record::Kind,
        owner: String,
        after: String,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Record>>;

    /// Records of one owner in descending order of their names; before a name, unless that is empty.
    fn last_records(
        &self,
        kind: record::Kind,
        owner: String,
        before: String,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Record>>;

    /// How many intents are in each state, from counters that the commits maintain.
    fn counts(&self, face: Face) -> BoxFuture<'_, Vec<Count>>;

    /// How many leases are active, by the node that granted them; nodes without leases are left out.
    fn lease_counts(&self) -> BoxFuture<'_, Vec<LeaseCount>>;

    /// The next deadline: the earliest end of a delay or a lease.
    fn next_due(&self) -> BoxFuture<'_, Option<Micros>>;

    /// Reads everything once and returns what is wrong; empty if nothing is.
    fn check(&self) -> BoxFuture<'_, Vec<String>>;

    /// The whole content in one stable form, for comparing backends.
    fn dump(&self) -> BoxFuture<'_, Dump>;

    fn stats(&self) -> Stats;
}

/// Is called with the effects of each commit.
pub type CommitListener = Box<dyn Fn(&News) + Send + Sync>;

/// The shared handle of a store.
pub type SharedStore = Arc<dyn Store>;

/// Which intents to list.
#[derive(Clone, Debug)]
pub struct IntentFilter {
    pub face: Face,
    /// `None`: of all owners (operators only).
    pub owner: Option<String>,
    pub namespace: Option<String>,
    pub goal: Option<String>,
    pub state: Option<State>,
    /// Only intents older than this one.
    pub before: Option<Seq>,
    pub limit: u32,
}

impl IntentFilter {
    /// Whether the row matches the filter; owner and position are not compared.
    pub(crate) fn wants(&self, intent: &Intent) -> bool {
        let Intent {
            profile,
            namespace,
            goal,
            state,
            ..
        } = intent;
        self.wants_kind(*profile, namespace, goal, *state)
    }

    pub(crate) fn wants_outline(&self, outline: &Outline) -> bool {
        let Outline {
            profile,
            namespace,
            goal,
            state,
            ..
        } = outline;
        self.wants_kind(*profile, namespace, goal, *state)
    }

    fn wants_kind(&self, profile: ProfileId, namespace: &str, goal: &str, state: State) -> bool {
        let wanted = |wish: &Option<String>, is: &str| wish.as_ref().is_none_or(|wish| wish == is);
        profile.profile().face == self.face
            && wanted(&self.namespace, namespace)
            && wanted(&self.goal, goal)
            && self.state.is_none_or(|wish| state == wish)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentPage {
    pub intents: Vec<Intent>,
    /// Where the next page starts; `None` at the end. A page may be short or empty and still have a next one.
    pub next: Option<Seq>,
}

/// Which facts to stream.
#[derive(Clone, Debug)]
pub struct EventFilter {
    pub face: Face,
    pub owner: String,
    pub after: FactSeq,
    pub limit: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Every fact of the owner up to this one was examined, returned or not.
    pub seen: FactSeq,
    /// More facts are available now.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    pub namespace: String,
    pub state: State,
    pub count: u64,
}

/// The number of active leases of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCount {
    /// `None` if the ledger has only one node.
    pub node: Option<i64>,
    pub leases: u64,
}

/// Counters of a store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commits that wrote something; each needs one sync.
    pub commits: u64,
    pub requests: u64,
    pub failed_commits: u64,
    /// Requests that wait for the writer now.
    pub waiting: u64,
    /// The last fact that this process wrote.
    pub last_fact: FactSeq,
}

/// The whole content of a store, in a stable order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    pub intents: Vec<Intent>,
    /// Claimable rows with their lanes.
    pub lanes: Vec<(Seq, Vec<Probe>)>,
    pub facts: Vec<Fact>,
    pub once: Vec<consign_kernel::once::Row>,
    pub records: Vec<Record>,
    pub counts: Vec<(String, i64)>,
}
