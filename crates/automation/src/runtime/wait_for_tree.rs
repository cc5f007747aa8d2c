//! Waits for a whole tree of jobs, for synchronous callers.
//!
//! A parent ends in the same commit that queues its children, so reading the children after the end of the parent finds all of
//! them: the tree is over when none of its jobs is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use consign_engine::Error;
use consign_kernel::ids::IntentId;
use consign_kernel::plant::{self, Plant};
use tokio::time::{Instant, sleep_until, timeout};

use super::job::{SubmittedBy, parse_job_id};
use super::job_status::JobStatus;
use super::lifecycle::Runtime;
use super::reads::{JobInfo, TREE_MAX, is_over};
use crate::pipeline::SWITCH_PLUGIN;

/// Jobs may also end on other nodes, or by cancellation, without a local signal.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const CHILDREN_MAX: u32 = 1_000;

/// Permission to wait; released when dropped.
#[derive(Debug)]
pub struct WaitPermit(Arc<AtomicUsize>);

impl Drop for WaitPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Runtime {
    /// `None` if the configured number of callers waits already.
    pub fn wait_permit(&self) -> Option<WaitPermit> {
        let max = self.program().config().api.max_concurrent_sync;
        let waiting = &self.inner.waiting_callers;
        let taken = waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
            (taken < max).then_some(taken + 1)
        });
        taken.ok().map(|_| WaitPermit(Arc::clone(waiting)))
    }

    /// Returns true once a job and all its descendants are over, false after `patience`.
    pub async fn wait_for_tree(&self, root: IntentId, patience: Duration) -> Result<bool, Error> {
        let over = timeout(patience, self.until_tree_ended(root)).await;
        over.map_or(Ok(false), |ended| ended.map(|()| true))
    }

    /// Returns once a job and all its descendants are over.
    pub(super) async fn until_tree_ended(&self, root: IntentId) -> Result<(), Error> {
        let mut finished = self.inner.worker.ended();
        let mut open = vec![root];
        loop {
            // Subscribe before reading, so that no later end is missed.
            finished.mark_unchanged();
            let mut still_open = Vec::new();
            while let Some(id) = open.pop() {
                // A job that was pruned from the queue is over.
                let intent = self.engine().observe(id).await?;
                if intent.is_some_and(|intent| !is_over(&intent)) {
                    still_open.push(id);
                    continue;
                }
                if plant::on(Plant::RootIsTree) {
                    continue;
                }
                let children = self.engine().children(id, CHILDREN_MAX).await?;
                open.extend(children.iter().map(|child| child.id));
            }
            if still_open.is_empty() {
                return Ok(());
            }
            open = still_open;
            let next_look = Instant::now() + POLL_INTERVAL;
            tokio::select! {
                changed = finished.changed() => if changed.is_err() {
                    sleep_until(next_look).await;
                },
                () = sleep_until(next_look) => {}
            }
        }
    }

    /// The outcome of a finished tree.
    pub async fn tree_outcome(&self, root: IntentId) -> Result<Option<TreeOutcome>, Error> {
        let Some(tree) = self.job_tree(root, TREE_MAX).await? else {
            return Ok(None);
        };
        let mut outcome = TreeOutcome::of(tree.jobs);
        // The caller waits for this result, so it is included even if the budget left it out.
        let last = last(&outcome.tree).filter(|job| job.output_left_out);
        let last = last.and_then(|job| parse_job_id(&job.job_id));
        if let Some(id) = last
            && let Some(job) = self.job(id).await?
        {
            outcome.result = job.result;
        }
        Ok(Some(outcome))
    }
}

/// A finished tree of jobs.
#[derive(Clone, Debug)]
pub struct TreeOutcome {
    /// The first job.
    pub job_id: String,
    /// That of the first job that did not succeed, if any.
    pub status: JobStatus,
    /// The output of the last step.
    pub result: Option<String>,
    /// At least one job.
    pub tree: Vec<JobInfo>,
}

impl TreeOutcome {
    fn of(tree: Vec<JobInfo>) -> Self {
        let mut statuses = tree.iter().map(|job| job.status);
        let failed = statuses.find(|status| *status != JobStatus::Succeeded);
        let job_id = tree.first().map(|job| job.job_id.clone());
        Self {
            job_id: job_id.unwrap_or_default(),
            status: failed.unwrap_or(JobStatus::Succeeded),
            result: last(&tree).and_then(|job| job.result.clone()),
            tree,
        }
    }
}

/// The last step that did something; conditions and hooks do not count.
fn last(tree: &[JobInfo]) -> Option<&JobInfo> {
    let steps = tree.iter().filter(|job| {
        job.plugin.as_deref() != Some(SWITCH_PLUGIN) && job.submitted_by != Some(SubmittedBy::Hook)
    });
    steps.max_by_key(|job| job.completed_at).or(tree.first())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_that_of_the_last_step_and_the_status_that_of_the_first_failure_du_100() {
        let job = |plugin: &str, status: JobStatus, at: u32| {
            let at = format!("2026-01-01T00:00:0{at}Z").parse().unwrap();
            JobInfo::example(plugin, status, at)
        };
        let mut tree = vec![
            job("one", JobStatus::Succeeded, 1),
            job("two", JobStatus::Succeeded, 2),
            job(SWITCH_PLUGIN, JobStatus::Succeeded, 3),
        ];
        let whole = TreeOutcome::of(tree.clone());
        assert_eq!(whole.job_id, "one");
        assert_eq!(whole.status, JobStatus::Succeeded);
        assert_eq!(whole.result.as_deref(), Some("two"));
        tree.push(job("three", JobStatus::Dead, 4));
        assert_eq!(TreeOutcome::of(tree).status, JobStatus::Dead);
    }
}
