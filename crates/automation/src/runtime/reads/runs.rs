//! One run of a pipeline: its steps as a graph, each with its jobs.
//!
//! Each job stores the id of its run and links to its parent. The first jobs are found by the time in the run id, the others by
//! following the links.

use std::collections::{BTreeMap, VecDeque};

use consign_engine::{Error, Outline};
use consign_kernel::ids::{IntentId, Seq};
use consign_kernel::intent::Intent;

use super::jobs::{JobInfo, TREE_MAX};
use crate::pipeline::PipelinePosition;
use crate::runtime::job::{Job, job_id, parse_job_id};
use crate::runtime::job_status::JobStatus;
use crate::runtime::lifecycle::Runtime;

/// The maximum number of jobs that are listed for a run.
const JOBS_MAX: usize = TREE_MAX;
/// How many jobs after the start of a run are searched for its first one.
const FIRST_AMONG: u32 = 20_000;
/// How many further jobs other nodes may have queued at the same instant.
const NEXT_AMONG: u32 = 50;
/// More than the clocks of two nodes can differ: a node that is two seconds off takes no work.
const CLOCKS_DIFFER_MS: u128 = 5_000;

/// One run of a pipeline.
#[derive(Clone, Debug)]
pub struct PipelineRun {
    pub instance_id: String,
    pub pipeline: String,
    pub root_job_id: String,
    /// In the order of admission, each with the id of its step.
    pub jobs: Vec<(String, JobInfo)>,
    /// The run has more jobs than are listed.
    pub more: bool,
}

impl PipelineRun {
    pub fn status(&self) -> JobStatus {
        worst(self.jobs.iter().map(|(_, job)| job.status))
    }
}

struct RunJobs {
    instance: String,
    /// In the order of admission, each with its step.
    jobs: BTreeMap<Seq, (PipelinePosition, Outline)>,
    /// The run has more jobs than are listed.
    more: bool,
}

impl Runtime {
    /// `id` is that of the run, or of any of its jobs.
    pub async fn pipeline_run(&self, id: &str) -> Result<Option<PipelineRun>, Error> {
        let Some(named) = parse_job_id(id) else {
            return Ok(None);
        };
        let mut run = RunJobs {
            instance: job_id(named),
            jobs: BTreeMap::new(),
            more: false,
        };
        let mut waiting = VecDeque::new();
        if let Some(intent) = self.observe_job(named).await? {
            let Some(instance) = Job::read(&intent).ok().and_then(|job| job.instance_id) else {
                return Ok(None);
            };
            run.instance = instance;
            waiting.push_back(named);
        }
        self.find_first(&run.instance, &mut waiting).await?;
        while let Some(id) = waiting.pop_front() {
            let Some(intent) = self.observe_job(id).await? else {
                continue;
            };
            // The payload is dropped before the next row is read.
            if !run.take(&intent) {
                continue;
            }
            let left = JOBS_MAX.saturating_sub(run.jobs.len() + waiting.len());
            let limit = u32::try_from(left).unwrap_or(u32::MAX).saturating_add(1);
            let children = self.engine().child_jobs(id, limit).await?;
            run.more |= children.len() > left;
            waiting.extend(children.iter().take(left).map(|child| child.id));
        }
        Ok(run.into_run())
    }

    /// Finds the first jobs of a run. The run id contains its start time, so only jobs near that time are read, however many came
    /// later.
    async fn find_first(
        &self,
        instance: &str,
        found: &mut VecDeque<IntentId>,
    ) -> Result<(), Error> {
        let Some(begun) = parse_job_id(instance) else {
            return Ok(());
        };
        let text = format!(r#""instance_id":"{instance}""#);
        let (mut after, mut among) = (shortly_before(begun), FIRST_AMONG);
        while found.len() < JOBS_MAX
            && let Some(job) = self
                .engine()
                .find_job_by_payload(&text, after, among)
                .await?
        {
            found.push_back(job.id);
            // The first jobs of a run are queued in one commit.
            (after, among) = (job.id, NEXT_AMONG);
        }
        Ok(())
    }
}

impl RunJobs {
    /// `None` if no job was found.
    fn into_run(self) -> Option<PipelineRun> {
        let (first, root) = self.jobs.values().next()?;
        let (pipeline, root_job_id) = (first.pipeline.clone(), job_id(root.id));
        let jobs = self.jobs.into_values();
        let jobs = jobs.map(|(position, job)| (position.step, JobInfo::summary(&job)));
        Some(PipelineRun {
            instance_id: self.instance,
            pipeline,
            root_job_id,
            jobs: jobs.collect(),
            more: self.more,
        })
    }

    /// Adds a job of this run; returns whether it is new.
    fn take(&mut self, intent: &Intent) -> bool {
        let job = Job::read(intent).ok();
        let own = job.filter(|job| job.instance_id.as_ref() == Some(&self.instance));
        let Some(position) = own.and_then(|job| job.position) else {
            return false;
        };
        let job = (position, Outline::from(intent));
        self.jobs.insert(intent.seq, job).is_none()
    }
}

/// The smallest id of a time that is certainly earlier, whatever the clocks of the nodes show.
fn shortly_before(id: IntentId) -> IntentId {
    let ms = (u128::from_be_bytes(id.0) >> 80).saturating_sub(CLOCKS_DIFFER_MS);
    IntentId((ms << 80).to_be_bytes())
}

/// One status for several jobs: active ones first, then failures.
pub fn worst(states: impl Iterator<Item = JobStatus>) -> JobStatus {
    let order = |status: &JobStatus| match status {
        JobStatus::Running => 0,
        JobStatus::Queued => 1,
        JobStatus::Dead => 2,
        JobStatus::Failed => 3,
        JobStatus::TimedOut => 4,
        JobStatus::Succeeded => 5,
    };
    states.min_by_key(order).unwrap_or(JobStatus::Succeeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_under_way_before_it_is_failed_and_failed_before_it_is_done() {
        use JobStatus::{Failed, Running, Succeeded};
        let of = |states: &[JobStatus]| worst(states.iter().copied());
        assert_eq!(of(&[Succeeded, Failed, Running]), Running);
        assert_eq!(of(&[Succeeded, Failed]), Failed);
        assert_eq!(of(&[Succeeded, Succeeded]), Succeeded);
    }
}
