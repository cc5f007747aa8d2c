//! Storage of intents: one trait, its backends, and the suite that all of them must pass.
//!
//! Invariant: state changes only through [`Store::execute`], which replies after the commit that covers the request; and
//! by [`copy`], into a ledger on which no server can start meanwhile.
//! Only this crate contains SQL; the kernel contains the rules.

#[macro_use]
mod columns;

mod check;
mod error;
mod group;
mod ledger;
mod outline;
mod query;
mod search;
mod steps;

pub mod copy;
pub mod failpoint;
pub mod file_check;
pub mod inbox;
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
use consign_kernel::ids::{FactSeq, Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::lane::Probe;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::Record;
use consign_kernel::state::State;

pub use error::Error;
#[cfg(feature = "simulation")]
pub use forwarding::Forwarding;
pub use ledger::News;
pub use outline::{JobCount, Outline, OutlinePage};
pub use query::{
    EndingCount, IntentColumns, LostMessagePage, MessageCount, MessageFilter, MessageTally,
    MessagesOf, NamePage, Query, Rows, SeqPage, TypedReads,
};
pub use search::{Search, SearchPage, SearchPlace};
pub use steps::{LabelSteps, RowStepKind, StepCounts, StepTally, WaitKind, Waited};

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

    /// Answers with the kind of rows that belongs to the question; [`TypedReads`] unpacks them.
    fn read(&self, query: Query) -> BoxFuture<'_, Rows>;

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
    /// Requests that were refused because too many wait.
    pub refused: u64,
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
    pub once: Vec<consign_kernel::once::FirstUse>,
    pub records: Vec<Record>,
    pub counts: Vec<(String, i64)>,
}
