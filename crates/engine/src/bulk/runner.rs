//! The loop that carries bulk jobs on, piece by piece. Every node runs it; a job belongs to one of them at a time.

use std::collections::HashMap;
use std::time::Duration;

use consign_kernel::command::{Answer, Command, OnRefusal};
use consign_kernel::filter::Filter;
use consign_kernel::ids::{IntentId, Micros, SECOND_US};
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::Kind;
use consign_store::{Search, TypedReads as _};

use super::{BulkJob, BulkState, KEPT_US, PIECE_ROWS, code_of};
use crate::records::Versioned;
use crate::search::scan_max;
use crate::{Engine, Error, OperatorAction};

const SLEEP_MAX: Duration = Duration::from_secs(1);
/// A node that did not commit a piece for so long has stopped, and another one carries its job on.
const RUNNER_US: i64 = 3 * SECOND_US;
const JOBS_MAX: u32 = 500;

/// What became of the rows of the last commit, as long as this node alone knows it.
#[derive(Debug)]
struct Uncounted {
    job: String,
    /// The version of the record that this commit wrote.
    version: u64,
    outcomes: Vec<Result<(), &'static str>>,
}

#[derive(Debug)]
pub struct BulkRunner {
    engine: Engine,
    /// The name of this process.
    name: String,
    uncounted: Option<Uncounted>,
}

impl BulkRunner {
    pub fn new(engine: Engine) -> Self {
        let name = format!("{:032x}", engine.entropy().draw());
        Self {
            engine,
            name,
            uncounted: None,
        }
    }

    /// Runs until `shutdown` ends.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        tokio::pin!(shutdown);
        let state = std::sync::Arc::clone(&self.engine.inner);
        loop {
            let woken = state.bulk.notified();
            let pause = match self.tick().await {
                Ok(true) => Duration::ZERO,
                Ok(false) => SLEEP_MAX,
                Err(error) => {
                    tracing::warn!(%error, "a bulk job failed for now; trying again");
                    SLEEP_MAX
                }
            };
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                () = tokio::time::sleep(pause) => {}
                () = woken => {}
            }
        }
    }

    /// One piece of each job that this node may work on; returns whether there is more to do.
    pub async fn tick(&mut self) -> Result<bool, Error> {
        let mut more = false;
        let mut after = String::new();
        loop {
            let store = &self.engine.inner.store;
            let records = store.records(Kind::BulkJob, String::new(), after, JOBS_MAX);
            let records = records.await?;
            let full = records.len() == JOBS_MAX as usize;
            after = records
                .last()
                .map_or_else(String::new, |last| last.key.name.clone());
            for record in records {
                let job: Versioned<BulkJob> = Versioned::read(record)?;
                let now = self.engine.now();
                let runner = job.value.runner.as_ref();
                let is_others = runner
                    .is_some_and(|(runner, until)| *runner != self.name && Micros(*until) > now);
                if !job.value.state.has_ended() && !is_others {
                    more |= self.piece(job).await?;
                }
            }
            if !full {
                break;
            }
        }
        Ok(more)
    }

    /// Counts the last piece, commits the next one, and returns whether there may be another.
    async fn piece(&mut self, mut record: Versioned<BulkJob>) -> Result<bool, Error> {
        self.count(&mut record).await?;
        let now = self.engine.now();
        let job = &mut record.value;
        let ends = job.at_end || job.state == BulkState::Cancelling;
        let mut steps = Vec::new();
        if ends {
            job.state = match job.state {
                BulkState::Cancelling => BulkState::Cancelled,
                BulkState::Running | BulkState::Cancelled | BulkState::Done => BulkState::Done,
            };
            job.ended_at = Some(now.0);
            job.runner = None;
            record.expires_at = Some(now.plus(KEPT_US));
        } else {
            steps = self.next_steps(job).await?;
            job.runner = Some((self.name.clone(), now.plus(RUNNER_US).0));
        }
        let (id, ended) = (record.value.id.clone(), record.value.clone());
        let mut commands = vec![Command::Put(record.put())];
        commands.append(&mut steps);
        let answers = self.engine.run(None, commands, OnRefusal::Guarded).await?;
        let mut answers = answers.into_iter();
        let Some(Ok(Answer::Put { version })) = answers.next() else {
            // Another node or an operator changed the job, and nothing of this piece happened.
            return Ok(true);
        };
        let outcomes = answers.map(|answer| match answer {
            Ok(_) => Ok(()),
            Err(refusal) => Err(code_of(&refusal)),
        });
        self.uncounted = Some(Uncounted {
            job: id,
            version,
            outcomes: outcomes.collect(),
        });
        if ends {
            self.uncounted = None;
            tracing::info!(
                job = ended.id,
                action = ended.action,
                filter = ended.filter,
                done = ended.done,
                refused = ended.refused_count(),
                state = ended.state.name(),
                "a bulk job ended"
            );
        }
        Ok(!ends)
    }

    /// The steps of the next piece. Rows that cannot be changed are counted at once.
    async fn next_steps(&self, job: &mut BulkJob) -> Result<Vec<Command>, Error> {
        let filter = Filter::parse(&job.filter).map_err(|error| {
            Error::Internal(format!(
                "the filter of bulk job {} is damaged: {error}",
                job.id
            ))
        })?;
        let scan_max = scan_max(&filter);
        let search = Search {
            filter,
            now: Micros(job.created_at),
            after: job.place(),
            unchanged_since: Some(job.since()),
            limit: PIECE_ROWS,
            scan_max,
        };
        let store = &self.engine.inner.store;
        let page = store.search(search).await?;
        job.examined += u64::from(page.examined);
        job.move_to(page.next);
        let ids: Vec<IntentId> = page.outlines.iter().map(|outline| outline.id).collect();
        let mut rows = HashMap::new();
        if !ids.is_empty() {
            let found = store.intents_by_id(ids.clone()).await?;
            rows.extend(found.into_iter().map(|row| (row.id, row)));
        }
        let mut steps = Vec::new();
        for id in ids {
            match self.may(job, rows.get(&id)).await? {
                Ok(face) => {
                    job.piece.push(id.to_string());
                    steps.push(job.command(id, face));
                }
                Err(code) => job.count(&id.to_string(), Err(code)),
            }
        }
        Ok(steps)
    }

    /// The protocol of a row, if an operator may do this with it.
    async fn may(
        &self,
        job: &BulkJob,
        row: Option<&Intent>,
    ) -> Result<Result<Face, &'static str>, Error> {
        let Some(row) = row else {
            return Ok(Err("not_found"));
        };
        if !job.action().allowed_on(row) {
            return Ok(Err("not_allowed"));
        }
        if job.action() == OperatorAction::Retry
            && let Some(parent) = row.ties.parent
        {
            let parent = self.engine.inner.store.intent(parent).await?;
            if parent.is_some_and(|parent| parent.profile == ProfileId::AtpTransaction) {
                return Ok(Err("effect_once"));
            }
        }
        Ok(Ok(row.profile.profile().face))
    }

    /// Counts the rows of the last commit: by its answers, or after a crash by what it left behind.
    async fn count(&mut self, record: &mut Versioned<BulkJob>) -> Result<(), Error> {
        let known = self.uncounted.take();
        let known =
            known.filter(|known| known.job == record.value.id && known.version == record.version);
        let piece = std::mem::take(&mut record.value.piece);
        for (index, id) in piece.iter().enumerate() {
            let answered = known.as_ref().and_then(|known| known.outcomes.get(index));
            let outcome = match answered {
                Some(outcome) => *outcome,
                None => self.left_behind(&record.value, id).await?,
            };
            record.value.count(id, outcome);
        }
        Ok(())
    }

    /// Whether the job changed a row, by its facts; a deleted row has none.
    async fn left_behind(
        &self,
        job: &BulkJob,
        id: &str,
    ) -> Result<Result<(), &'static str>, Error> {
        let id: IntentId = match id.parse() {
            Ok(id) => id,
            Err(_) => return Ok(Err("not_found")),
        };
        let row = self.engine.inner.store.intent(id).await?;
        let Some(verb) = job.verb() else {
            return Ok(if row.is_none() {
                Ok(())
            } else {
                Err("changed")
            });
        };
        let Some(row) = row else {
            return Ok(Err("not_found"));
        };
        let reason = job.reason();
        let facts = self.engine.timeline(row.seq).await?;
        let is_own = facts
            .iter()
            .any(|fact| fact.verb == verb && fact.detail.as_ref() == Some(&reason));
        Ok(if is_own { Ok(()) } else { Err("changed") })
    }
}
