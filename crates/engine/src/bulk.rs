//! Bulk jobs: an operator's step on all rows that match a filter, as a record that any node carries on.
//!
//! A job proceeds in pieces. A piece is one commit: the record with its new place, guarded by the version that was read, and
//! the steps, each of which is refused if its row has changed since the job began. Invariants: a row is treated at most once,
//! whichever nodes work on the job and however often they are killed; a job never treats a row that did not match when it
//! began; no commit has more than [`PIECE_ROWS`] steps, so no lock is held for long.

mod runner;

use std::collections::BTreeMap;

use consign_kernel::command::{Command, Operate};
use consign_kernel::error::Refusal;
use consign_kernel::filter::Filter;
use consign_kernel::ids::{DAY_US, FactSeq, IntentId, Micros, Seq};
use consign_kernel::profile::Face;
use consign_kernel::record::{Key, Kind};
use consign_kernel::state::Verb;
use consign_store::{SearchPlace, TypedReads as _};
use serde::{Deserialize, Serialize};

use crate::records::Versioned;
use crate::unit_of_work::UnitOfWork;
use crate::{Engine, Error, Operator, OperatorAction};

pub use runner::BulkRunner;

/// Rows of one commit.
pub const PIECE_ROWS: u32 = 50;
/// How many refusals a job keeps with their ids; all are counted.
pub const REFUSALS_KEPT: usize = 20;
/// How long a job that has ended is kept.
const KEPT_US: i64 = 30 * DAY_US;
/// Jobs of one list.
const LISTED_MAX: u32 = 100;

/// Whether a job goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkState {
    Running,
    /// An operator asked for its end; the last piece is still counted.
    Cancelling,
    Cancelled,
    Done,
}

impl BulkState {
    pub const ALL: [Self; 4] = [Self::Running, Self::Cancelling, Self::Cancelled, Self::Done];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
            Self::Done => "done",
        }
    }

    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Cancelled | Self::Done)
    }
}

/// A row that a job did not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkRefusal {
    pub id: String,
    pub code: String,
}

/// The value of a record of the kind [`Kind::BulkJob`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkJob {
    pub id: String,
    action: String,
    pub filter: String,
    pub state: BulkState,
    /// In microseconds, as all instants here.
    pub created_at: i64,
    pub ended_at: Option<i64>,
    /// How many rows matched when it began, if all rows were counted.
    pub matching: Option<u64>,
    pub examined: u64,
    pub done: u64,
    /// The number of rows that were not changed, by the reason.
    pub refused: BTreeMap<String, u64>,
    /// The first of them.
    pub refusals: Vec<BulkRefusal>,
    /// The last fact before it began.
    since: u64,
    /// Behind the last row that was looked at: its end, if it is a dead letter, and its sequence.
    place: Option<(Option<i64>, u64)>,
    /// Every row was looked at.
    at_end: bool,
    /// The rows of the last commit, which are not counted yet.
    piece: Vec<String>,
    /// The node that works on it, and until when the others leave it alone.
    runner: Option<(String, i64)>,
}

impl BulkJob {
    pub fn key(id: &str) -> Key {
        Key {
            kind: Kind::BulkJob,
            owner: String::new(),
            name: id.to_owned(),
        }
    }

    pub fn action(&self) -> OperatorAction {
        OperatorAction::named(&self.action).unwrap_or(OperatorAction::Retry)
    }

    pub fn refused_count(&self) -> u64 {
        self.refused.values().sum()
    }

    fn since(&self) -> FactSeq {
        FactSeq(self.since)
    }

    fn place(&self) -> Option<SearchPlace> {
        self.place.map(|(settled_at, seq)| SearchPlace {
            settled_at: settled_at.map(Micros),
            seq: Seq(seq),
        })
    }

    fn move_to(&mut self, place: Option<SearchPlace>) {
        self.at_end = place.is_none();
        self.place = place.map(|place| (place.settled_at.map(|at| at.0), place.seq.0));
    }

    /// The reason in the facts of its steps, by which they are found again after a crash.
    fn reason(&self) -> String {
        format!("{} by bulk job {}", self.action, self.id)
    }

    fn count(&mut self, id: &str, outcome: Result<(), &'static str>) {
        let Err(code) = outcome else {
            self.done += 1;
            return;
        };
        *self.refused.entry(code.to_owned()).or_default() += 1;
        if self.refusals.len() < REFUSALS_KEPT {
            self.refusals.push(BulkRefusal {
                id: id.to_owned(),
                code: code.to_owned(),
            });
        }
    }

    /// The step on one row.
    fn command(&self, id: IntentId, face: Face) -> Command {
        let operate = Operate {
            id,
            face,
            reason: self.reason(),
        };
        let step = match self.action() {
            OperatorAction::Retry => Command::RequeueUnfinished(operate),
            OperatorAction::Cancel => Command::CancelUnfinished(operate),
            OperatorAction::Delete => Command::Remove(operate),
        };
        Command::IfUnchanged(self.since(), Box::new(step))
    }

    /// The verb of the fact that a step leaves; a deleted row leaves none.
    fn verb(&self) -> Option<Verb> {
        match self.action() {
            OperatorAction::Retry => Some(Verb::Requeue),
            OperatorAction::Cancel => Some(Verb::Cancel),
            OperatorAction::Delete => None,
        }
    }
}

/// Why a row was not changed, as a word.
fn code_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotFound => "not_found",
        Refusal::Held => "held",
        Refusal::Changed => "changed",
        Refusal::Completed => "fulfilled",
        Refusal::IllegalState => "not_allowed",
        Refusal::EffectOnce => "effect_once",
        Refusal::LeaseLost
        | Refusal::OnceConflict { .. }
        | Refusal::AlreadyBegun { .. }
        | Refusal::Replay
        | Refusal::PastLife { .. }
        | Refusal::UnknownKey
        | Refusal::KeyExpired
        | Refusal::NotGranted
        | Refusal::RateLimited { .. }
        | Refusal::CapReached { .. }
        | Refusal::VersionMismatch
        | Refusal::Exists
        | Refusal::NotReached
        | Refusal::TooManySteps { .. } => "refused",
    }
}

impl Engine {
    /// Begins a job. It treats the rows that match now and are unchanged when their turn comes.
    pub async fn start_bulk(
        &self,
        operator: Operator,
        action: OperatorAction,
        filter: &Filter,
    ) -> Result<BulkJob, Error> {
        let now = self.now();
        // Ordering: the fact is read before the rows are counted, so a row that changes meanwhile is at most counted.
        let since = self.inner.store.highest_fact().await?;
        let counted = self.count_matching(operator, filter, None).await?;
        let chance = self.entropy().draw();
        let id = IntentId::new(now, Seq(since.0), chance).to_string();
        let job = BulkJob {
            id: id.clone(),
            action: action.name().to_owned(),
            filter: filter.to_string(),
            state: BulkState::Running,
            created_at: now.0,
            ended_at: None,
            matching: counted.next.is_none().then_some(counted.count),
            examined: 0,
            done: 0,
            refused: BTreeMap::new(),
            refusals: Vec::new(),
            since: since.0,
            place: None,
            at_end: false,
            piece: Vec::new(),
            runner: None,
        };
        let mut unit = UnitOfWork::default();
        unit.replace(&Versioned::new(BulkJob::key(&id), job.clone()));
        self.commit(unit).await?;
        self.inner.bulk.notify_waiters();
        Ok(job)
    }

    pub async fn bulk_job(&self, _: Operator, id: &str) -> Result<Option<BulkJob>, Error> {
        let found = self.load::<BulkJob>(BulkJob::key(id)).await?;
        Ok(found.map(|found| found.value))
    }

    /// The last jobs, newest first.
    pub async fn bulk_jobs(&self, _: Operator) -> Result<Vec<BulkJob>, Error> {
        let store = &self.inner.store;
        let newest = (String::new(), String::new());
        let records = store.last_records(Kind::BulkJob, newest.0, newest.1, LISTED_MAX);
        let jobs = records.await?.into_iter();
        jobs.map(|record| Ok(Versioned::read(record)?.value))
            .collect()
    }

    /// Ends a job after its current piece. A job that has ended stays as it is; `None` if there is no such job.
    pub async fn cancel_bulk(&self, _: Operator, id: &str) -> Result<Option<BulkJob>, Error> {
        let key = BulkJob::key(id);
        let job = self
            .update(key, |job: &mut Option<BulkJob>| {
                if let Some(job) = job
                    && job.state == BulkState::Running
                {
                    job.state = BulkState::Cancelling;
                }
                Ok::<_, Error>(job.clone())
            })
            .await?;
        self.inner.bulk.notify_waiters();
        Ok(job)
    }
}
