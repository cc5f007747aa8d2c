//! One run of a pipeline: its steps as a graph, each with its jobs.
//!
//! Each job stores the id of its run and links to its parent. The first jobs are found by the time in the run id, the others by
//! following the links.

use std::collections::{BTreeMap, VecDeque};

use consign_engine::{Error, Outline};
use consign_kernel::ids::{IntentId, Seq};
use consign_kernel::intent::Intent;
use serde_json::{Map, Value, json};

use super::catalogue::step;
use super::jobs::{TREE_MAX, job_summary};
use super::put;
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

struct PipelineRun {
    instance: String,
    /// In the order of admission, each with its step.
    jobs: BTreeMap<Seq, (PipelinePosition, Outline)>,
    /// The run has more jobs than are listed.
    more: bool,
}

impl Runtime {
    /// `id` is that of the run, or of any of its jobs.
    pub async fn pipeline_run(&self, id: &str) -> Result<Option<Value>, Error> {
        let Some(named) = parse_job_id(id) else {
            return Ok(None);
        };
        let mut run = PipelineRun {
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
        Ok(self.run_details(&run))
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
            && let Some(job) = self.engine().job_naming(&text, after, among).await?
        {
            found.push_back(job.id);
            // The first jobs of a run are queued in one commit.
            (after, among) = (job.id, NEXT_AMONG);
        }
        Ok(())
    }

    fn run_details(&self, run: &PipelineRun) -> Option<Value> {
        let (first, root) = run.jobs.values().next()?;
        let mut ran: BTreeMap<&str, Vec<&Outline>> = BTreeMap::new();
        for (position, job) in run.jobs.values() {
            ran.entry(&position.step).or_default().push(job);
        }
        let program = self.program();
        let mut graph: Vec<Map<String, Value>> = Vec::new();
        // The current configuration; steps that it no longer has come last.
        if let Some(pipeline) = program.router().pipeline(&first.pipeline) {
            let nodes = pipeline.graph.nodes().iter().rev();
            for node in nodes {
                let mut shown = step(&program, pipeline, node);
                add_jobs(&mut shown, ran.remove(node.id.as_str()));
                graph.push(shown);
            }
        }
        for (id, jobs) in ran {
            let mut shown = Map::new();
            put(&mut shown, "id", Some(id));
            add_jobs(&mut shown, Some(jobs));
            graph.push(shown);
        }
        let state = worst(run.jobs.values().map(|(_, job)| JobStatus::of(job)));
        let mut shown = json!({
            "instance_id": run.instance, "pipeline": first.pipeline, "root_job_id": job_id(root.id), "status": state.as_str(), "steps": graph,
        });
        if run.more {
            shown["more"] = true.into();
        }
        Some(shown)
    }
}

impl PipelineRun {
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

fn add_jobs(shown: &mut Map<String, Value>, jobs: Option<Vec<&Outline>>) {
    let jobs = jobs.unwrap_or_default();
    let states = jobs.iter().map(|job| JobStatus::of(job));
    let state = if jobs.is_empty() {
        "not_reached"
    } else {
        worst(states).as_str()
    };
    put(shown, "status", Some(state));
    let jobs: Vec<Value> = jobs.into_iter().map(job_summary).collect();
    put(shown, "jobs", Some(jobs));
}

/// One status for several jobs: active ones first, then failures.
fn worst(states: impl Iterator<Item = JobStatus>) -> JobStatus {
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
