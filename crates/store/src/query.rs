//! Reads as values: a closed set of questions, each of which one index answers.
//!
//! Invariant: a new way to read is a new [`Query`], so every backend and every wrapper of a store handles it in one place.

use consign_kernel::fact::Fact;
use consign_kernel::ids::{FactSeq, IntentId, Micros, SECOND_US, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::once::{FirstUse, OnceKey};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, Record};
use consign_kernel::state::State;

use crate::{
    BoxFuture, Count, Error, EventFilter, EventPage, IntentFilter, IntentPage, JobCount,
    LeaseCount, Outline, OutlinePage, Search, SearchPage, Store,
};

/// A question to the ledger.
#[derive(Clone, Debug)]
pub enum Query {
    Intent(IntentId),
    /// Several intents by their ids, in any order; missing ones are left out.
    IntentsById(Vec<IntentId>),
    /// Newest first.
    Intents {
        filter: IntentFilter,
        view: IntentColumns,
    },
    /// Rows of all owners and protocols that match a filter; see [`Search`].
    Search(Search),
    /// The intents that an intent caused, in the order of admission.
    Children {
        parent: IntentId,
        limit: u32,
    },
    /// The jobs among [`Query::Children`], without payloads and results.
    ChildJobs {
        parent: IntentId,
        limit: u32,
    },
    /// The first job after an id whose payload contains a text; examines at most `scan_max` jobs.
    JobByPayload {
        text: String,
        after: IntentId,
        scan_max: u32,
    },
    /// Queued and running jobs of a capability, by goal and then oldest first; only those of `goal` if it is given.
    OpenJobs {
        capability: String,
        goal: Option<String>,
        limit: u32,
    },
    /// Queued and running jobs, or only those in `state`, in the order of admission.
    JobsByState {
        state: Option<State>,
        limit: u32,
    },
    /// How many jobs are queued and running, by capability. Jobs that are due after `now` count as delayed.
    JobCounts {
        now: Micros,
    },
    /// Rows of a profile and state that are leased, delayed or claimable after a lapsed lease, in the order of admission,
    /// after a row. Queued and ended rows are not examined.
    ActiveRows {
        profile: ProfileId,
        state: State,
        after: Seq,
        limit: u32,
    },
    /// Messages: rows with a sender, whose owner is the recipient.
    Messages(MessageFilter),
    /// How many messages of a queue there are by one of their properties, from counters that the commits maintain: from a
    /// name on, in the order of names.
    MessageCounts {
        face: Face,
        tally: MessageTally,
        from: String,
        limit: u32,
    },
    /// The first use of a once-key, unless it has expired.
    FirstUse(OnceKey),
    /// Once-keys of mesh messages whose row says that the message exists, although it does not. Examines `limit` keys after a
    /// mesh and a key.
    LostMessages {
        after: (String, String),
        limit: u32,
    },
    /// How many mesh messages and their once-keys end by this instant.
    MeshEnding {
        until: Micros,
    },
    /// Dead letters of a face, latest first.
    Dead {
        face: Face,
        limit: u32,
    },
    /// The last facts of one intent, oldest first; none after the intent is removed.
    Facts {
        intent: Seq,
        limit: u32,
    },
    /// The last fact that led an intent to one of `states`, before the fact `before` if it is given. Examines at most
    /// `scan_max` facts.
    LastFactTo {
        intent: Seq,
        states: &'static [State],
        before: Option<FactSeq>,
        scan_max: u32,
    },
    /// Facts after a position, oldest first. Never returns a fact if one with a lower number may still become visible.
    Events(EventFilter),
    /// The facts of all owners, or only those of `face`, for operators. Otherwise as [`Query::Events`].
    AllEvents {
        face: Option<Face>,
        after: FactSeq,
        limit: u32,
    },
    /// Later facts have higher numbers than this; a few visible ones may have too.
    LastFact,
    /// No fact has a higher number than this, visible or not.
    HighestFact,
    Record(record::Key),
    /// Several records by their keys, in any order; missing and expired ones are left out.
    RecordsByKey(Vec<record::Key>),
    /// Records of one owner by name.
    Records {
        kind: record::Kind,
        owner: String,
        page: NamePage,
        limit: u32,
    },
    /// How many intents are in each state, from counters that the commits maintain.
    Counts {
        face: Face,
    },
    /// How many leases are active, by the node that granted them; nodes without leases are left out.
    LeaseCounts,
    /// Since when the oldest claimable row of a face has been due. Examines the `scan_max` rows of all faces whose life
    /// ends first: those were admitted first, unless lives differ.
    OldestClaimable {
        face: Face,
        scan_max: u32,
    },
    /// The next deadline: the earliest end of a delay or a lease.
    NextDue,
}

/// Which columns of an intent a listing reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntentColumns {
    Full,
    /// Without payloads and results.
    Outline,
}

/// Which messages a listing returns.
#[derive(Clone, Debug)]
pub struct MessageFilter {
    pub profile: ProfileId,
    pub of: MessagesOf,
    pub page: SeqPage,
    pub limit: u32,
}

/// Whose messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessagesOf {
    All,
    Sender(String),
    Recipient(String),
    /// Messages of the bus that were delivered to this recipient and wait for its acknowledgement.
    AwaitingAck(String),
}

impl MessagesOf {
    /// The agent that it names.
    pub(crate) fn party(&self) -> Option<&str> {
        match self {
            Self::All => None,
            Self::Sender(party) | Self::Recipient(party) | Self::AwaitingAck(party) => Some(party),
        }
    }
}

/// Where a page of rows starts, and its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeqPage {
    /// In the order of admission, after a row.
    After(Seq),
    /// Newest first, before a row.
    Before(Seq),
}

impl SeqPage {
    /// The newest rows.
    pub const NEWEST: Self = Self::Before(Seq(i64::MAX as u64));
}

/// A property by which messages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageTally {
    Sender,
    Recipient,
    /// The interval of their creation; see [`MessageTally::interval_of`].
    Interval,
}

impl MessageTally {
    /// The length of an interval.
    pub const INTERVAL_US: i64 = 600 * SECOND_US;

    /// The name of the interval in which a moment is. Names have the order of time.
    pub fn interval_of(at: Micros) -> String {
        format!("{:010}", at.0.div_euclid(Self::INTERVAL_US))
    }

    /// The kind of its counters, as it is stored.
    pub(crate) const fn kind(self) -> u8 {
        match self {
            Self::Sender => 3,
            Self::Recipient => 4,
            Self::Interval => 5,
        }
    }

    pub(crate) fn of_kind(kind: u8) -> Option<Self> {
        let all = [Self::Sender, Self::Recipient, Self::Interval];
        all.into_iter().find(|tally| tally.kind() == kind)
    }
}

/// How many messages have this name as their property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageCount {
    pub name: String,
    pub count: u64,
}

/// A page of once-keys of which some have lost their message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostMessagePage {
    /// How many keys were examined.
    pub checked: u64,
    pub lost: Vec<OnceKey>,
    /// The last key that was examined, by mesh and key, if there may be more after it.
    pub next: Option<(String, String)>,
}

/// How much of a mesh ends by an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndingCount {
    pub messages: u64,
    pub keys: u64,
}

/// Where a page of names starts, and its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePage {
    /// Ascending, after a name.
    After(String),
    /// Descending, before a name, unless that is empty.
    Before(String),
}

/// The answer to a [`Query`]. A question for one row gets a list of at most one.
#[derive(Clone, Debug)]
pub enum Rows {
    Intents(Vec<Intent>),
    IntentPage(IntentPage),
    Outlines(Vec<Outline>),
    OutlinePage(OutlinePage),
    SearchPage(SearchPage),
    Facts(Vec<Fact>),
    Events(EventPage),
    FactSeq(FactSeq),
    Records(Vec<Record>),
    JobCounts(Vec<JobCount>),
    Counts(Vec<Count>),
    LeaseCounts(Vec<LeaseCount>),
    Due(Option<Micros>),
    MessageCounts(Vec<MessageCount>),
    FirstUses(Vec<FirstUse>),
    LostMessages(LostMessagePage),
    Ending(EndingCount),
}

macro_rules! typed {
    ($(fn $name:ident($($given:ident: $kind:ty),*) -> $answer:ty = $query:expr;)*) => {
        $(fn $name(&self, $($given: $kind),*) -> BoxFuture<'_, $answer> {
            ask(self, $query)
        })*
    };
}

/// The questions as typed calls, the same for all stores. [`Query`] documents each of them.
pub trait TypedReads: Store {
    typed! {
        fn intent(id: IntentId) -> Option<Intent> = Query::Intent(id);
        fn intents_by_id(ids: Vec<IntentId>) -> Vec<Intent> = Query::IntentsById(ids);
        fn intents(filter: IntentFilter) -> IntentPage = Query::Intents { filter, view: IntentColumns::Full };
        fn outlines(filter: IntentFilter) -> OutlinePage = Query::Intents { filter, view: IntentColumns::Outline };
        fn search(search: Search) -> SearchPage = Query::Search(search);
        fn children(parent: IntentId, limit: u32) -> Vec<Intent> = Query::Children { parent, limit };
        fn child_jobs(parent: IntentId, limit: u32) -> Vec<Outline> = Query::ChildJobs { parent, limit };
        fn find_job_by_payload(text: String, after: IntentId, scan_max: u32) -> Option<Outline> =
            Query::JobByPayload { text, after, scan_max };
        fn open_jobs(capability: String, goal: Option<String>, limit: u32) -> Vec<Outline> =
            Query::OpenJobs { capability, goal, limit };
        fn jobs_by_state(state: Option<State>, limit: u32) -> Vec<Outline> = Query::JobsByState { state, limit };
        fn job_counts(now: Micros) -> Vec<JobCount> = Query::JobCounts { now };
        fn active_rows(profile: ProfileId, state: State, after: Seq, limit: u32) -> Vec<Intent> =
            Query::ActiveRows { profile, state, after, limit };
        fn messages(filter: MessageFilter) -> Vec<Intent> = Query::Messages(filter);
        fn message_counts(face: Face, tally: MessageTally, from: String, limit: u32) -> Vec<MessageCount> =
            Query::MessageCounts { face, tally, from, limit };
        fn first_use(key: OnceKey) -> Option<FirstUse> = Query::FirstUse(key);
        fn lost_messages(after: (String, String), limit: u32) -> LostMessagePage = Query::LostMessages { after, limit };
        fn mesh_ending(until: Micros) -> EndingCount = Query::MeshEnding { until };
        fn dead(face: Face, limit: u32) -> Vec<Intent> = Query::Dead { face, limit };
        fn facts(intent: Seq, limit: u32) -> Vec<Fact> = Query::Facts { intent, limit };
        fn last_fact_to(
            intent: Seq, states: &'static [State], before: Option<FactSeq>, scan_max: u32
        ) -> Option<Fact> = Query::LastFactTo { intent, states, before, scan_max };
        fn events(filter: EventFilter) -> EventPage = Query::Events(filter);
        fn all_events(face: Option<Face>, after: FactSeq, limit: u32) -> EventPage =
            Query::AllEvents { face, after, limit };
        fn last_fact() -> FactSeq = Query::LastFact;
        fn highest_fact() -> FactSeq = Query::HighestFact;
        fn record(key: record::Key) -> Option<Record> = Query::Record(key);
        fn records_by_key(keys: Vec<record::Key>) -> Vec<Record> = Query::RecordsByKey(keys);
        fn records(kind: record::Kind, owner: String, after: String, limit: u32) -> Vec<Record> =
            Query::Records { kind, owner, page: NamePage::After(after), limit };
        fn last_records(kind: record::Kind, owner: String, before: String, limit: u32) -> Vec<Record> =
            Query::Records { kind, owner, page: NamePage::Before(before), limit };
        fn counts(face: Face) -> Vec<Count> = Query::Counts { face };
        fn lease_counts() -> Vec<LeaseCount> = Query::LeaseCounts;
        fn oldest_claimable(face: Face, scan_max: u32) -> Option<Micros> = Query::OldestClaimable { face, scan_max };
        fn next_due() -> Option<Micros> = Query::NextDue;
    }
}

impl<S: Store + ?Sized> TypedReads for S {}

fn ask<T>(store: &(impl Store + ?Sized), query: Query) -> BoxFuture<'_, T>
where
    T: TryFrom<Rows, Error = Error>,
{
    let rows = store.read(query);
    Box::pin(async move { rows.await?.try_into() })
}

macro_rules! answers {
    ($($variant:ident($found:ident) => $answer:ty: $value:expr,)*) => {
        $(impl TryFrom<Rows> for $answer {
            type Error = Error;

            fn try_from(rows: Rows) -> Result<Self, Error> {
                match rows {
                    Rows::$variant($found) => Ok($value),
                    _ => Err(Error::Unavailable("a read returned rows of another kind".to_owned())),
                }
            }
        })*
    };
}

answers! {
    Intents(found) => Vec<Intent>: found,
    Intents(found) => Option<Intent>: found.into_iter().next(),
    IntentPage(page) => IntentPage: page,
    Outlines(found) => Vec<Outline>: found,
    Outlines(found) => Option<Outline>: found.into_iter().next(),
    OutlinePage(page) => OutlinePage: page,
    SearchPage(page) => SearchPage: page,
    Facts(found) => Vec<Fact>: found,
    Facts(found) => Option<Fact>: found.into_iter().next(),
    Events(page) => EventPage: page,
    FactSeq(seq) => FactSeq: seq,
    Records(found) => Vec<Record>: found,
    Records(found) => Option<Record>: found.into_iter().next(),
    JobCounts(counts) => Vec<JobCount>: counts,
    Counts(counts) => Vec<Count>: counts,
    LeaseCounts(counts) => Vec<LeaseCount>: counts,
    Due(at) => Option<Micros>: at,
    MessageCounts(counts) => Vec<MessageCount>: counts,
    FirstUses(found) => Option<FirstUse>: found.into_iter().next(),
    LostMessages(page) => LostMessagePage: page,
    Ending(count) => EndingCount: count,
}
