//! One job, its descendants, and lists of jobs.

use std::collections::VecDeque;

use consign_engine::{Error, IntentFilter, Operator, Outline};
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use jiff::Timestamp;

use super::response_budget::{PluginOutput, ResponseBudget};
use super::{attempt_of, is_job, is_over};
use crate::runtime::job::{Job, NAMESPACE, OWNER, SubmittedBy, job_id};
use crate::runtime::job_status::JobStatus;
use crate::runtime::lifecycle::{Runtime, timestamp};
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

/// One job. Lists leave out what is not in an outline.
#[derive(Clone, Debug, PartialEq)]
pub struct JobInfo {
    pub job_id: String,
    pub plugin: Option<String>,
    pub command: String,
    pub status: JobStatus,
    /// The number of the current or next attempt.
    pub attempt: u32,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub next_retry_at: Option<Timestamp>,
    pub last_error: Option<String>,
    /// The standard output of the last attempt.
    pub result: Option<String>,
    pub attempts_max: Option<u32>,
    pub parent_job_id: Option<String>,
    pub submitted_by: Option<SubmittedBy>,
    pub source_event_id: Option<String>,
    pub dedupe_key: Option<String>,
    pub schedule_id: Option<String>,
    pub instance_id: Option<String>,
    pub intent_id: Option<String>,
    pub pipeline: Option<String>,
    pub step_id: Option<String>,
    /// The output did not fit into the response.
    pub output_left_out: bool,
}

impl PluginOutput for JobInfo {
    fn texts(
        &mut self,
    ) -> (
        &mut Option<String>,
        Option<&mut Option<String>>,
        &mut Option<String>,
    ) {
        (&mut self.result, None, &mut self.last_error)
    }

    fn mark_left_out(&mut self) {
        self.output_left_out = true;
    }
}

#[derive(Clone, Debug)]
pub struct JobList {
    pub jobs: Vec<JobInfo>,
    /// The number of matches among the newest rows, far more than a client pages through.
    pub total: u64,
}

/// A job and its descendants.
#[derive(Clone, Debug)]
pub struct JobTree {
    pub jobs: Vec<JobInfo>,
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
    pub async fn job(&self, id: IntentId) -> Result<Option<JobInfo>, Error> {
        if let Some(intent) = self.observe_job(id).await? {
            let log = self.last_log(&intent).await?;
            return Ok(Some(JobInfo::of(&intent, log)));
        }
        let log = self.last_log_of_pruned(id).await?;
        Ok(log.map(JobInfo::of_pruned))
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

    /// Newest first.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<JobList, Error> {
        let (mut jobs, mut total) = (Vec::new(), 0_u64);
        let wanted = filter.status.map(JobStatus::state);
        let command = filter.command.clone();
        self.each_job(wanted, command, |job| {
            if filter.matches(job) {
                total += 1;
                if jobs.len() < filter.limit {
                    jobs.push(JobInfo::summary(job));
                }
            }
            true
        })
        .await?;
        Ok(JobList { jobs, total })
    }

    /// Queued and running jobs, oldest first.
    pub async fn queue(&self, limit: usize) -> Result<Vec<JobInfo>, Error> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let open = self.engine().jobs_by_state(None, limit).await?;
        Ok(open.iter().map(JobInfo::summary).collect())
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

impl JobInfo {
    /// What a list shows.
    pub(super) fn summary(job: &Outline) -> Self {
        let is_queued = job.state == State::Queued;
        let is_over = job.profile.profile().is_terminal(job.state);
        let next_retry_at = (is_queued && job.attempts > 0).then_some(job.run_at);
        Self {
            job_id: job_id(job.id),
            plugin: job.capability.clone(),
            command: job.goal.clone(),
            status: JobStatus::of(job),
            attempt: attempt_of(job),
            created_at: timestamp(job.created_at),
            started_at: job.claimed_at.filter(|_| !is_queued).map(timestamp),
            completed_at: job.settled_at.filter(|_| is_over).map(timestamp),
            next_retry_at: next_retry_at.map(timestamp),
            last_error: job.last_error.clone(),
            result: None,
            attempts_max: None,
            parent_job_id: None,
            submitted_by: None,
            source_event_id: None,
            dedupe_key: None,
            schedule_id: None,
            instance_id: None,
            intent_id: None,
            pipeline: None,
            step_id: None,
            output_left_out: false,
        }
    }

    /// All fields, with those of the last attempt.
    pub(super) fn of(intent: &Intent, log: Option<records::JobLog>) -> Self {
        let mut info = Self::summary(&Outline::from(intent));
        if let Some(log) = log {
            info.started_at = Some(log.started_at);
            info.result = log.result;
        }
        info.attempts_max = Some(intent.attempts_max);
        info.parent_job_id = intent.ties.parent.map(job_id);
        if let Ok(job) = Job::read(intent) {
            info.submitted_by = Some(job.submitted_by);
            info.source_event_id = job.source_event_id;
            info.dedupe_key = job.dedupe_key;
            info.schedule_id = job.schedule_id;
            info.instance_id = job.instance_id;
            info.intent_id = job.serves.map(|served| served.intent_id);
            if let Some(position) = job.position {
                info.pipeline = Some(position.pipeline);
                info.step_id = Some(position.step);
            }
        }
        info
    }

    fn of_pruned(log: records::JobLog) -> Self {
        Self {
            job_id: log.job_id,
            plugin: Some(log.plugin),
            command: log.command,
            status: log.status,
            attempt: log.attempt,
            created_at: log.created_at,
            started_at: Some(log.started_at),
            completed_at: Some(log.completed_at),
            next_retry_at: None,
            last_error: log.last_error,
            result: log.result,
            attempts_max: None,
            parent_job_id: log.parent_job_id,
            submitted_by: Some(log.submitted_by),
            source_event_id: log.source_event_id,
            dedupe_key: None,
            schedule_id: None,
            instance_id: None,
            intent_id: None,
            pipeline: None,
            step_id: None,
            output_left_out: false,
        }
    }
}

#[cfg(test)]
impl JobInfo {
    /// A job that ended at this time; its id and its output are the name of its plugin.
    pub(in crate::runtime) fn example(plugin: &str, status: JobStatus, at: Timestamp) -> Self {
        Self::of_pruned(records::JobLog {
            job_id: plugin.to_owned(),
            plugin: plugin.to_owned(),
            command: "poll".to_owned(),
            status,
            attempt: 1,
            submitted_by: SubmittedBy::Route,
            created_at: at,
            started_at: at,
            completed_at: at,
            result: Some(plugin.to_owned()),
            last_error: None,
            reason: None,
            stderr: None,
            parent_job_id: None,
            source_event_id: None,
        })
    }
}
