//! One job, its descendants, and lists of jobs.

use std::collections::VecDeque;

use consign_engine::{Error, IntentFilter, Operator, Outline};
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use serde_json::{Map, Value, json};

use super::response_budget::ResponseBudget;
use super::{attempt_of, is_job, is_over, micros_json, parsed, put, timestamp_json};
use crate::runtime::job::{Job, NAMESPACE, OWNER, job_id};
use crate::runtime::job_status::JobStatus;
use crate::runtime::lifecycle::Runtime;
use crate::runtime::records;

/// The default limit of jobs in one tree.
pub const TREE_MAX: usize = 5_000;
/// The maximum number of rows that a list scans.
pub(super) const SCANNED_MAX: usize = 20_000;
const PAGE_ROWS: u32 = 500;

/// Which jobs to list.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub plugin: Option<String>,
    pub command: Option<String>,
    pub status: Option<JobStatus>,
    pub limit: usize,
}

/// A job and its descendants.
#[derive(Clone, Debug)]
pub struct JobTree {
    pub jobs: Vec<Value>,
    /// The tree has more jobs than are listed.
    pub more: bool,
}

impl JobFilter {
    fn matches(&self, job: &Outline) -> bool {
        let plugin = self.plugin.as_deref();
        plugin.is_none_or(|plugin| job.capability.as_deref() == Some(plugin))
            && self
                .status
                .is_none_or(|status| JobStatus::of(job) == status)
    }
}

impl Runtime {
    /// A job from the queue or, if it was pruned, from the log of its last attempt.
    pub async fn job(&self, id: IntentId) -> Result<Option<Value>, Error> {
        if let Some(intent) = self.observe_job(id).await? {
            let log = self.last_log(&intent).await?;
            return Ok(Some(Value::Object(job_details(&intent, log.as_ref()))));
        }
        let log = self.last_log_of_pruned(id).await?;
        Ok(log.map(|log| Value::Object(job_details_from_log(&log))))
    }

    /// A job and its descendants, parents first, at most `jobs_max`. `output_left_out` marks jobs whose output did not fit into
    /// the response.
    pub async fn job_tree(&self, id: IntentId, jobs_max: usize) -> Result<Option<JobTree>, Error> {
        let Some(root) = self.job(id).await? else {
            return Ok(None);
        };
        let mut budget = ResponseBudget::new();
        let mut tree = JobTree {
            jobs: vec![budget.fit(root)],
            more: false,
        };
        let mut parents = VecDeque::from([id]);
        // Rows are not kept: each may carry megabytes.
        while let Some(parent) = parents.pop_front() {
            let left = jobs_max.saturating_sub(tree.jobs.len());
            let limit = u32::try_from(left).unwrap_or(u32::MAX).saturating_add(1);
            let mut children = self.engine().child_jobs(parent, limit).await?.into_iter();
            for child in children.by_ref().take(left) {
                let Some(shown) = self.job(child.id).await? else {
                    continue;
                };
                tree.jobs.push(budget.fit(shown));
                parents.push_back(child.id);
            }
            tree.more |= children.next().is_some();
        }
        Ok(Some(tree))
    }

    /// Newest first. `total` counts the matches among the newest rows, far more than a client pages through.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Value, Error> {
        let (mut jobs, mut total) = (Vec::new(), 0_u64);
        let wanted = filter.status.map(JobStatus::state);
        let command = filter.command.clone();
        self.each_job(wanted, command, |job| {
            if filter.matches(job) {
                total += 1;
                if jobs.len() < filter.limit {
                    jobs.push(job_summary(job));
                }
            }
            true
        })
        .await?;
        Ok(json!({"jobs": jobs, "total": total}))
    }

    /// Queued and running jobs, oldest first.
    pub async fn queue(&self, limit: usize) -> Result<Value, Error> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let open = self.engine().queue(None, limit).await?;
        let jobs: Vec<Value> = open.iter().map(job_summary).collect();
        Ok(json!({"jobs": jobs}))
    }

    /// Calls `see` with jobs, newest first, until there are no more, the scan limit is reached, or `see` returns false. Returns
    /// true if the scan limit was reached, so there may be more.
    pub(super) async fn each_job(
        &self,
        state: Option<State>,
        command: Option<String>,
        mut see: impl FnMut(&Outline) -> bool,
    ) -> Result<bool, Error> {
        let mut filter = IntentFilter {
            goal: command,
            state,
            ..every_job(PAGE_ROWS)
        };
        let mut scanned = 0;
        while scanned < SCANNED_MAX {
            let page = self.engine().outlines(filter.clone()).await?;
            // A page may be short because the filter dropped rows.
            scanned += PAGE_ROWS as usize;
            if !page.outlines.iter().all(&mut see) {
                return Ok(false);
            }
            let Some(next) = page.next else {
                return Ok(false);
            };
            filter.before = Some(next);
        }
        Ok(true)
    }

    pub(super) async fn observe_job(&self, id: IntentId) -> Result<Option<Intent>, Error> {
        let found = self.engine().observe(id).await?;
        Ok(found.filter(is_job))
    }

    /// Returns a function from state to the number of jobs in it.
    pub(super) async fn counts_by_state(&self) -> Result<impl Fn(State) -> u64, Error> {
        let operator = Operator::vouched();
        let counts = self.engine().counts(operator, Face::Automation).await?;
        Ok(move |state| {
            let of_state = counts.iter().filter(|count| count.state == state);
            of_state.map(|count| count.count).sum()
        })
    }

    /// The log of the last finished attempt.
    pub(super) async fn last_log(&self, intent: &Intent) -> Result<Option<records::JobLog>, Error> {
        let ended = intent.state == State::Queued || is_over(intent);
        if intent.attempts == 0 || !ended {
            return Ok(None);
        }
        let key = records::log_key(&job_id(intent.id), intent.attempts);
        let record = self.engine().record(key).await?;
        Ok(record.and_then(|record| serde_json::from_str(&record.value).ok()))
    }

    async fn last_log_of_pruned(&self, id: IntentId) -> Result<Option<records::JobLog>, Error> {
        let mut last: Option<records::JobLog> = None;
        self.each_log_of(&job_id(id), |log| {
            if last.as_ref().is_none_or(|last| last.attempt < log.attempt) {
                last = Some(log.clone());
            }
            true
        })
        .await?;
        Ok(last)
    }
}

/// All jobs, newest first.
pub(super) fn every_job(limit: u32) -> IntentFilter {
    IntentFilter {
        face: Face::Automation,
        owner: Some(OWNER.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        goal: None,
        state: None,
        before: None,
        limit,
    }
}

/// One line of a list.
pub(super) fn job_summary(job: &Outline) -> Value {
    let mut object = Map::new();
    put(&mut object, "job_id", Some(job_id(job.id)));
    put(&mut object, "plugin", job.capability.clone());
    put(&mut object, "command", Some(job.goal.clone()));
    put(&mut object, "status", Some(JobStatus::of(job).as_str()));
    put(&mut object, "attempt", Some(attempt_of(job)));
    put(&mut object, "created_at", Some(micros_json(job.created_at)));
    let begun = job.claimed_at.filter(|_| job.state != State::Queued);
    put(&mut object, "started_at", begun.map(micros_json));
    let is_over = job.profile.profile().is_terminal(job.state);
    let ended = job.settled_at.filter(|_| is_over);
    put(&mut object, "completed_at", ended.map(micros_json));
    if job.state == State::Queued && job.attempts > 0 {
        put(&mut object, "next_retry_at", Some(micros_json(job.run_at)));
    }
    put(&mut object, "last_error", job.last_error.clone());
    Value::Object(object)
}

/// All fields of a job.
pub(super) fn job_details(intent: &Intent, log: Option<&records::JobLog>) -> Map<String, Value> {
    let Value::Object(mut object) = job_summary(&Outline::from(intent)) else {
        return Map::new();
    };
    if let Some(log) = log {
        put(
            &mut object,
            "started_at",
            Some(timestamp_json(log.started_at)),
        );
        put(&mut object, "result", log.result.as_deref().map(parsed));
    }
    put(&mut object, "max_attempts", Some(intent.attempts_max));
    put(&mut object, "parent_job_id", intent.ties.parent.map(job_id));
    if let Ok(job) = Job::read(intent) {
        put(&mut object, "submitted_by", Some(job.submitted_by.as_str()));
        put(&mut object, "source_event_id", job.source_event_id);
        put(&mut object, "dedupe_key", job.dedupe_key);
        put(&mut object, "schedule_id", job.schedule_id);
        put(&mut object, "instance_id", job.instance_id);
        let intent_id = job.serves.map(|served| served.intent_id);
        put(&mut object, "intent_id", intent_id);
        if let Some(position) = job.position {
            put(&mut object, "pipeline", Some(position.pipeline));
            put(&mut object, "step_id", Some(position.step));
        }
    }
    object
}

fn job_details_from_log(log: &records::JobLog) -> Map<String, Value> {
    let mut object = Map::new();
    put(&mut object, "job_id", Some(log.job_id.clone()));
    put(&mut object, "plugin", Some(log.plugin.clone()));
    put(&mut object, "command", Some(log.command.clone()));
    put(&mut object, "status", Some(log.status.as_str()));
    put(&mut object, "attempt", Some(log.attempt));
    put(
        &mut object,
        "created_at",
        Some(timestamp_json(log.created_at)),
    );
    put(
        &mut object,
        "started_at",
        Some(timestamp_json(log.started_at)),
    );
    put(
        &mut object,
        "completed_at",
        Some(timestamp_json(log.completed_at)),
    );
    put(&mut object, "result", log.result.as_deref().map(parsed));
    put(&mut object, "last_error", log.last_error.clone());
    put(&mut object, "submitted_by", Some(log.submitted_by.as_str()));
    put(&mut object, "parent_job_id", log.parent_job_id.clone());
    put(&mut object, "source_event_id", log.source_event_id.clone());
    object
}
