//! The events of jobs, derived from the facts of the ledger.
//!
//! Invariant: an event follows from facts, rows and records alone, so that every node and every later start derive the same
//! events in the same order. A reader that continues after the last fact it saw misses no event of a job that the ledger still
//! has. What a fact does not contain is read from the job and from the log of the attempt, one at a time; a reader keeps one page
//! of events.

use std::collections::HashMap;
use std::sync::Arc;

use consign_engine::{Error, EventFilter};
use consign_kernel::fact::{Event, Fact};
use consign_kernel::ids::{FactSeq, IntentId, Micros};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::state::{State, Verb};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::watch;

use super::job::{Job, OWNER, SubmittedBy, job_id};
use super::job_status::JobStatus;
use super::lifecycle::{Runtime, timestamp};
use super::records;
use super::unreported_ends;
use crate::pipeline::PipelinePosition;

const PAGE_FACTS: u32 = 50;
/// The jobs whose fixed fields a reader keeps. The facts of one job are often close together.
const JOBS_KEPT_MAX: usize = PAGE_FACTS as usize;

#[derive(Clone, Debug, PartialEq)]
pub struct JobEvent {
    /// A reader that has seen this event continues after this fact. `None` if another event of the same fact follows.
    pub position: Option<FactSeq>,
    pub at: Timestamp,
    pub job: JobName,
    pub kind: JobEventKind,
}

/// The job of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobName {
    pub id: IntentId,
    pub plugin: String,
    pub command: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum JobEventKind {
    /// A schedule created the job. [`JobEventKind::Enqueued`] follows.
    Scheduled { schedule_id: String },
    /// A job without a parent.
    Enqueued {
        submitted_by: Option<SubmittedBy>,
        /// The schedule that created the job.
        schedule_id: Option<String>,
        /// It is no step of a pipeline.
        direct: bool,
    },
    /// The first steps of a pipeline are queued. The job of the event is the first of them.
    PipelineEnqueued {
        jobs: Vec<IntentId>,
        pipeline: String,
    },
    /// A job that follows from another one.
    Routed {
        parent: IntentId,
        position: Option<PipelinePosition>,
        event_context_id: Option<String>,
    },
    Started {
        attempt: u32,
        parent: Option<IntentId>,
        submitted_by: Option<SubmittedBy>,
    },
    /// The job is queued again, because its process could not be started for want of resources.
    Postponed,
    RetryScheduled {
        attempt: u32,
        attempts_max: u32,
        /// Absent if the job has moved on meanwhile.
        next_retry: Option<NextRetry>,
        reason: Option<String>,
    },
    /// The job is dead. [`JobEventKind::Ended`] follows.
    RetryExhausted {
        attempts: u32,
        error: String,
        reason: Option<String>,
    },
    Ended {
        status: JobStatus,
        duration_ms: i64,
        error: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRetry {
    pub at: Timestamp,
    pub backoff_ms: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct JobEventPage {
    pub events: Vec<JobEvent>,
    /// More facts are available now.
    pub more: bool,
}

/// Reads the events of all jobs in pages.
#[derive(Debug)]
pub struct JobEventReader {
    runtime: Runtime,
    after: FactSeq,
    jobs: HashMap<IntentId, Arc<FixedFields>>,
}

/// What never changes about a job, without its payload.
#[derive(Debug)]
struct FixedFields {
    plugin: String,
    attempts_max: u32,
    /// The rest is absent if the job is unreadable.
    submitted_by: Option<SubmittedBy>,
    schedule_id: Option<String>,
    position: Option<PipelinePosition>,
    instance_id: Option<String>,
    event_context_id: Option<String>,
}

/// The part of a log that events show. The output of the plugin is not kept.
#[derive(Deserialize)]
struct AttemptLog {
    #[serde(with = "crate::instant")]
    started_at: Timestamp,
    #[serde(with = "crate::instant")]
    completed_at: Timestamp,
    reason: Option<String>,
}

impl Runtime {
    /// Reads the events after this fact.
    pub fn job_events(&self, after: FactSeq) -> JobEventReader {
        JobEventReader {
            runtime: self.clone(),
            after,
            jobs: HashMap::new(),
        }
    }

    /// Changes whenever jobs have new facts, on any node; a hint to read them.
    pub fn follow_jobs(&self) -> watch::Receiver<()> {
        self.engine().follow_publisher(OWNER)
    }
}

impl JobEventReader {
    /// All facts up to this one were read.
    pub fn position(&self) -> FactSeq {
        self.after
    }

    /// The next page, which may be empty. On PostgreSQL this waits for open transactions of other nodes.
    pub async fn next_page(&mut self) -> Result<JobEventPage, Error> {
        let inner = Arc::clone(&self.runtime.inner);
        let filter = EventFilter {
            face: Face::Automation,
            owner: OWNER.to_owned(),
            after: self.after,
            limit: PAGE_FACTS,
        };
        let page = self.runtime.engine().events(filter).await?;
        // Rows and logs may be large, and a new fact wakes all readers at once.
        let _turn = if page.events.is_empty() {
            None
        } else {
            Some(inner.large_reads.acquire().await)
        };
        let (mut events, mut seen) = (Vec::new(), page.seen);
        let mut left = page.events.as_slice();
        while let Some(first) = left.first() {
            let group = self.group(left).await?;
            let (facts, others) = left.split_at(group.facts);
            let is_first = first.fact.seq.0 == self.after.0 + 1;
            if group.may_continue && others.is_empty() && page.more && !is_first {
                // The facts of one commit become visible together, so the next page has the whole group.
                seen = FactSeq(first.fact.seq.0 - 1);
                break;
            }
            self.add_events(facts, &mut events).await?;
            left = others;
        }
        self.after = seen;
        Ok(JobEventPage {
            events,
            more: page.more,
        })
    }

    /// The facts at the beginning that belong together: a failed attempt with what followed from it, or the first steps of a
    /// pipeline.
    async fn group(&mut self, events: &[Event]) -> Result<FactGroup, Error> {
        let one = |may_continue| FactGroup {
            facts: 1,
            may_continue,
        };
        let Some((first, others)) = events.split_first() else {
            return Ok(one(false));
        };
        match first.fact.verb {
            Verb::Fail | Verb::Expire => {
                let follows = |next: &Event| next.fact.previous == Some(first.fact.seq);
                Ok(match others.first() {
                    Some(next) if follows(next) && next.fact.from == Some(State::Failed) => {
                        FactGroup {
                            facts: 2,
                            may_continue: false,
                        }
                    }
                    _ => one(others.is_empty()),
                })
            }
            Verb::Admit => {
                let Some(run) = self.run_begun_by(first).await? else {
                    return Ok(one(false));
                };
                let mut facts = 1;
                for next in others {
                    if self.run_begun_by(next).await?.as_ref() != Some(&run) {
                        break;
                    }
                    facts += 1;
                }
                Ok(FactGroup {
                    facts,
                    may_continue: true,
                })
            }
            Verb::Validate
            | Verb::Claim
            | Verb::Extend
            | Verb::Deliver
            | Verb::Complete
            | Verb::Retry
            | Verb::Kill
            | Verb::Cancel
            | Verb::Requeue
            | Verb::Recover
            | Verb::Compensate => Ok(one(false)),
        }
    }

    /// The run of a pipeline whose first steps include this new job.
    async fn run_begun_by(&mut self, event: &Event) -> Result<Option<String>, Error> {
        if event.fact.verb != Verb::Admit || event.parent.is_some() {
            return Ok(None);
        }
        let job = self.fixed_fields(event.id).await?;
        let in_pipeline = job.filter(|job| job.position.is_some());
        Ok(in_pipeline.and_then(|job| job.instance_id.clone()))
    }

    /// The events of one group of facts.
    async fn add_events(
        &mut self,
        facts: &[Event],
        events: &mut Vec<JobEvent>,
    ) -> Result<(), Error> {
        let (Some(first), Some(last)) = (facts.first(), facts.last()) else {
            return Ok(());
        };
        let before = events.len();
        match first.fact.verb {
            Verb::Admit => self.admitted(facts, events).await?,
            Verb::Claim => {
                if let Some(job) = self.fixed_fields(first.id).await? {
                    let started = JobEventKind::Started {
                        attempt: first.fact.attempt,
                        parent: first.parent,
                        submitted_by: job.submitted_by,
                    };
                    events.push(event(first, &job, started));
                }
            }
            Verb::Complete => self.completed(first, events).await?,
            Verb::Fail | Verb::Expire | Verb::Recover | Verb::Cancel => {
                self.failed(first, last, events).await?;
            }
            Verb::Retry => {
                if let Some(job) = self.fixed_fields(first.id).await? {
                    events.push(event(first, &job, JobEventKind::Postponed));
                }
            }
            Verb::Validate
            | Verb::Extend
            | Verb::Deliver
            | Verb::Kill
            | Verb::Requeue
            | Verb::Compensate => {}
        }
        // Only the last event of a group moves the reader on, so that a disconnect in between repeats events and loses none.
        if let Some(event) = events[before..].last_mut() {
            event.position = Some(last.fact.seq);
        }
        Ok(())
    }

    async fn admitted(&mut self, facts: &[Event], events: &mut Vec<JobEvent>) -> Result<(), Error> {
        let mut begun: Option<(&Event, Arc<FixedFields>)> = None;
        for fact in facts {
            let Some(job) = self.fixed_fields(fact.id).await? else {
                continue;
            };
            if let Some(parent) = fact.parent {
                let routed = JobEventKind::Routed {
                    parent,
                    position: job.position.clone(),
                    event_context_id: job.event_context_id.clone(),
                };
                events.push(event(fact, &job, routed));
                continue;
            }
            let schedule_id = job.schedule_id.clone();
            let schedule_id =
                schedule_id.filter(|_| job.submitted_by == Some(SubmittedBy::Scheduler));
            if let Some(schedule_id) = schedule_id.clone() {
                events.push(event(fact, &job, JobEventKind::Scheduled { schedule_id }));
            }
            let enqueued = JobEventKind::Enqueued {
                submitted_by: job.submitted_by,
                schedule_id,
                direct: job.position.is_none(),
            };
            events.push(event(fact, &job, enqueued));
            begun.get_or_insert((fact, job));
        }
        if let Some((first, job)) = begun
            && let Some(position) = &job.position
        {
            let enqueued = JobEventKind::PipelineEnqueued {
                jobs: facts.iter().map(|fact| fact.id).collect(),
                pipeline: position.pipeline.clone(),
            };
            events.push(event(first, &job, enqueued));
        }
        Ok(())
    }

    async fn completed(&mut self, fact: &Event, events: &mut Vec<JobEvent>) -> Result<(), Error> {
        let Some(job) = self.fixed_fields(fact.id).await? else {
            return Ok(());
        };
        let duration_ms = match self.attempt_log(fact).await? {
            Some(log) => log.duration_ms(),
            None => self.leased_ms(fact).await?,
        };
        let ended = JobEventKind::Ended {
            status: JobStatus::Succeeded,
            duration_ms,
            error: None,
        };
        events.push(event(fact, &job, ended));
        Ok(())
    }

    /// An attempt that did not succeed. `last` is what followed from it: another attempt, the end of the job, or nothing else.
    async fn failed(
        &mut self,
        first: &Event,
        last: &Event,
        events: &mut Vec<JobEvent>,
    ) -> Result<(), Error> {
        // The row as it is now: it may be due for its next attempt.
        let Some(intent) = self.runtime.engine().observe(first.id).await? else {
            return Ok(());
        };
        let job = self.keep(&intent);
        let (error, reason, duration_ms) = if first.fact.verb == Verb::Fail {
            let log = self.attempt_log(first).await?;
            let duration_ms = match &log {
                Some(log) => log.duration_ms(),
                None => since_claim_ms(&intent, &first.fact),
            };
            let error = first.fact.detail.clone().unwrap_or_default();
            (error, log.and_then(|log| log.reason), duration_ms)
        } else {
            // Its log is written later, by any node.
            let failure = unreported_ends::failure(&first.fact, intent.attempts_max);
            let duration_ms = since_claim_ms(&intent, &first.fact);
            (failure.error, Some(failure.reason.to_owned()), duration_ms)
        };
        let attempt = first.fact.attempt;
        if last.fact.to == State::Queued {
            let is_waiting = intent.state == State::Queued && intent.attempts == attempt;
            let next_retry = is_waiting.then(|| NextRetry {
                at: timestamp(intent.run_at),
                backoff_ms: millis(intent.run_at, last.fact.at),
            });
            let scheduled = JobEventKind::RetryScheduled {
                attempt,
                attempts_max: job.attempts_max,
                next_retry,
                reason,
            };
            events.push(event(last, &job, scheduled));
            return Ok(());
        }
        let status = JobStatus::of_state(last.fact.to, last.fact.cause);
        if last.fact.to == State::DeadLetter {
            let exhausted = JobEventKind::RetryExhausted {
                attempts: attempt,
                error: error.clone(),
                reason,
            };
            events.push(event(last, &job, exhausted));
        }
        let ended = JobEventKind::Ended {
            status: status.unwrap_or(JobStatus::Failed),
            duration_ms,
            error: Some(error),
        };
        events.push(event(last, &job, ended));
        Ok(())
    }

    /// `None` if the job was pruned meanwhile.
    async fn fixed_fields(&mut self, id: IntentId) -> Result<Option<Arc<FixedFields>>, Error> {
        if let Some(known) = self.jobs.get(&id) {
            return Ok(Some(Arc::clone(known)));
        }
        let intent = self.runtime.engine().observe(id).await?;
        Ok(intent.map(|intent| self.keep(&intent)))
    }

    fn keep(&mut self, intent: &Intent) -> Arc<FixedFields> {
        if self.jobs.len() >= JOBS_KEPT_MAX {
            self.jobs.clear();
        }
        let fields = Arc::new(FixedFields::of(intent));
        self.jobs.insert(intent.id, Arc::clone(&fields));
        fields
    }

    async fn attempt_log(&self, event: &Event) -> Result<Option<AttemptLog>, Error> {
        let key = records::log_key(&job_id(event.id), event.fact.attempt);
        let record = self.runtime.engine().record(key).await?;
        Ok(record.and_then(|record| serde_json::from_str(&record.value).ok()))
    }

    async fn leased_ms(&self, event: &Event) -> Result<i64, Error> {
        let intent = self.runtime.engine().observe(event.id).await?;
        Ok(intent.map_or(0, |intent| since_claim_ms(&intent, &event.fact)))
    }
}

/// Facts that are shown together.
struct FactGroup {
    facts: usize,
    /// If the group ends with the page, the rest may be on the next one.
    may_continue: bool,
}

impl FixedFields {
    fn of(intent: &Intent) -> Self {
        let job = Job::read(intent).ok();
        let plugin = intent.capability.clone().unwrap_or_default();
        let attempts_max = intent.attempts_max;
        match job {
            Some(job) => Self {
                plugin,
                attempts_max,
                submitted_by: Some(job.submitted_by),
                schedule_id: job.schedule_id,
                position: job.position,
                instance_id: job.instance_id,
                event_context_id: job.event_context_id,
            },
            None => Self {
                plugin,
                attempts_max,
                submitted_by: None,
                schedule_id: None,
                position: None,
                instance_id: None,
                event_context_id: None,
            },
        }
    }
}

impl AttemptLog {
    fn duration_ms(&self) -> i64 {
        let took = self.completed_at.duration_since(self.started_at);
        i64::try_from(took.as_millis()).unwrap_or(i64::MAX)
    }
}

fn event(fact: &Event, job: &FixedFields, kind: JobEventKind) -> JobEvent {
    JobEvent {
        position: None,
        at: timestamp(fact.fact.time_of_day()),
        job: JobName {
            id: fact.id,
            plugin: job.plugin.clone(),
            command: fact.goal.clone(),
        },
        kind,
    }
}

/// How long the job was held when this happened; zero if it was not, or was claimed again meanwhile.
fn since_claim_ms(intent: &Intent, fact: &Fact) -> i64 {
    let has_run = fact.from != Some(State::Queued);
    let claimed_at = intent.claimed_at.filter(|at| has_run && *at <= fact.at);
    claimed_at.map_or(0, |claimed_at| millis(fact.at, claimed_at))
}

fn millis(later: Micros, earlier: Micros) -> i64 {
    later.0.saturating_sub(earlier.0) / 1_000
}
