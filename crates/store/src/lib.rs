//! Where intents are kept: one trait, its backends, and the suite all of them must pass.
//!
//! Invariant: state changes only through [`Store::execute`], whose answer arrives after the commit that covers it; and by
//! [`copy`], into a ledger that no server can be started on meanwhile.
//! SQL lives in this crate and nowhere else; the rules live in the kernel.

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

/// Engine time. Never goes back.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Micros;

    /// The time of day, as everybody else tells it: it may be set back. The lives of permissions end by it, and nothing else.
    fn time_of_day(&self) -> Micros {
        self.now()
    }
}

/// A boxed answer: dynamic dispatch costs nothing next to a commit.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The ledger and the records beside it.
///
/// Implementors guarantee: commands of one request see each other's writes, in order; requests are
/// serializable; an answer is given only after its commit is durable; reads see every answered write, and show nothing
/// that a power cut could still undo.
pub trait Store: Send + Sync + 'static {
    /// The only way state changes. Neighbours may share the commit.
    fn execute(&self, request: Request) -> BoxFuture<'_, Reply>;

    /// From now on `listener` hears what commits did, as a hint to look: they may not be safe yet. It must be quick.
    fn listen(&self, listener: CommitListener);

    fn intent(&self, id: IntentId) -> BoxFuture<'_, Option<Intent>>;

    /// Newest first.
    fn intents(&self, filter: IntentFilter) -> BoxFuture<'_, IntentPage>;

    /// As [`intents`](Self::intents), without what they carry.
    fn outlines(&self, filter: IntentFilter) -> BoxFuture<'_, OutlinePage>;

    /// What an intent brought about, in the order of admission.
    fn children(&self, parent: IntentId, limit: u32) -> BoxFuture<'_, Vec<Intent>>;

    /// The jobs among them, without what they carry.
    fn child_jobs(&self, parent: IntentId, limit: u32) -> BoxFuture<'_, Vec<Outline>>;

    /// The first job after an id whose payload has a text in it; only so many of those that come next are looked at.
    fn find_job_by_payload(
        &self,
        text: String,
        after: IntentId,
        scan_max: u32,
    ) -> BoxFuture<'_, Option<Outline>>;

    /// Jobs of automations that wait or run for a capability, by goal and then oldest first; of one goal if it is named.
    fn open_jobs(
        &self,
        capability: String,
        goal: Option<String>,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Outline>>;

    /// Jobs of automations that wait or run, or are in the one of both states that is named: in the order of admission.
    fn jobs_by_state(&self, state: Option<State>, limit: u32) -> BoxFuture<'_, Vec<Outline>>;

    /// How many of them there are by capability. Those that are due after `now` are put off.
    fn job_counts(&self, now: Micros) -> BoxFuture<'_, Vec<JobCount>>;

    /// Rows of a profile in a state that are held, let go for a while, or there for whoever comes first: in the order of
    /// admission, after a row. What waits in a queue or has ended is not looked at.
    fn active_rows(
        &self,
        profile: ProfileId,
        state: State,
        after: Seq,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Intent>>;

    /// Dead letters of a face, latest death first.
    fn dead(&self, face: Face, limit: u32) -> BoxFuture<'_, Vec<Intent>>;

    /// The end of the history of one intent, oldest first; nothing once the intent is removed.
    fn facts(&self, intent: Seq, limit: u32) -> BoxFuture<'_, Vec<Fact>>;

    /// The last fact that led an intent to one of some states; before another of its facts, if that is named. Only so many are
    /// looked at.
    fn last_fact_to(
        &self,
        intent: Seq,
        states: &'static [State],
        before: Option<FactSeq>,
        scan_max: u32,
    ) -> BoxFuture<'_, Option<Fact>>;

    /// Facts after a position, oldest first. Never passes a fact whose predecessor may still appear.
    fn events(&self, filter: EventFilter) -> BoxFuture<'_, EventPage>;

    /// Facts from now on have higher numbers than this; a few that are told already may have as well.
    fn last_fact(&self) -> BoxFuture<'_, FactSeq> {
        let last = self.stats().last_fact;
        Box::pin(std::future::ready(Ok(last)))
    }

    /// No fact has a higher number than this, told or not.
    fn highest_fact(&self) -> BoxFuture<'_, FactSeq> {
        self.last_fact()
    }

    fn record(&self, key: record::Key) -> BoxFuture<'_, Option<Record>>;

    /// Records of one owner by name, after a name.
    fn records(
        &self,
        kind: record::Kind,
        owner: String,
        after: String,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Record>>;

    /// The last records of one owner, from the last one on, before a name unless that is empty.
    fn last_records(
        &self,
        kind: record::Kind,
        owner: String,
        before: String,
        limit: u32,
    ) -> BoxFuture<'_, Vec<Record>>;

    /// How many intents are in which state, from counters kept by the commits themselves.
    fn counts(&self, face: Face) -> BoxFuture<'_, Vec<Count>>;

    /// How many leases are out, by the node that gave them; those without leases are not named.
    fn lease_counts(&self) -> BoxFuture<'_, Vec<LeaseCount>>;

    /// When time has something to do next: the earliest end of a delay or a lease.
    fn next_due(&self) -> BoxFuture<'_, Option<Micros>>;

    /// Reads everything once and says what is wrong with it; empty when all is well.
    fn check(&self) -> BoxFuture<'_, Vec<String>>;

    /// The whole content in one stable form, for comparing backends.
    fn dump(&self) -> BoxFuture<'_, Dump>;

    fn stats(&self) -> Stats;
}

/// Who hears of commits.
pub type CommitListener = Box<dyn Fn(&News) + Send + Sync>;

/// The handle everybody shares.
pub type SharedStore = Arc<dyn Store>;

/// Which intents to list.
#[derive(Clone, Debug)]
pub struct IntentFilter {
    pub face: Face,
    /// `None`: of everybody (operators only).
    pub owner: Option<String>,
    pub namespace: Option<String>,
    pub goal: Option<String>,
    pub state: Option<State>,
    /// Only older than this one.
    pub before: Option<Seq>,
    pub limit: u32,
}

impl IntentFilter {
    /// Whether the row is of the kind that is asked for, whoever owns it and wherever it lies.
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
    /// Where to go on; `None` at the end. A page may be short or empty and still have a next one.
    pub next: Option<Seq>,
}

/// Whose facts to stream.
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
    /// Every fact of the owner up to here was looked at, shown or not.
    pub seen: FactSeq,
    /// More is waiting right now.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    pub namespace: String,
    pub state: State,
    pub count: u64,
}

/// Leases that are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCount {
    /// `None` where a ledger has one node, whichever that is.
    pub node: Option<i64>,
    pub leases: u64,
}

/// What a store did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commits that wrote something; each is one sync.
    pub commits: u64,
    pub requests: u64,
    pub failed_commits: u64,
    /// Requests waiting for the writer right now.
    pub waiting: u64,
    /// Of those that this process told.
    pub last_fact: FactSeq,
}

/// Everything a store holds, in a stable order.
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
