//! One run of a pipeline: its steps as a graph, each with the jobs that ran it.

use std::collections::BTreeMap;

use consign_engine::Error;
use consign_kernel::intent::Intent;
use serde_json::{Map, Value, json};

use super::catalogue::step;
use super::jobs::brief;
use super::{put, word_of};
use crate::pipeline::Position;
use crate::runtime::job::{Job, job_id, parse_job_id};
use crate::runtime::service::Runtime;

impl Runtime {
    /// `id` is that of the run, or of any of its jobs.
    pub async fn pipeline_run(&self, id: &str) -> Result<Option<Value>, Error> {
        let mut instance = id.to_owned();
        let mut steps: Vec<(Position, Intent)> = Vec::new();
        let observed = match parse_job_id(id) {
            Some(id) => self.observed(id).await?,
            None => None,
        };
        if let Some(intent) = observed {
            let Some(of_job) = Job::read(&intent).ok().and_then(|job| job.instance_id) else {
                return Ok(None);
            };
            instance = of_job;
        }
        self.each_job(None, None, |intent| {
            let job = Job::read(intent).ok();
            let job = job.filter(|job| job.instance_id.as_ref() == Some(&instance));
            if let Some(position) = job.and_then(|job| job.position) {
                steps.push((position, intent.clone()));
            }
            true
        })
        .await?;
        // From the first job on.
        steps.reverse();
        Ok(self.run_shape(&instance, &steps))
    }

    fn run_shape(&self, instance: &str, steps: &[(Position, Intent)]) -> Option<Value> {
        let (first, root) = steps.first()?;
        let mut ran: BTreeMap<&str, Vec<&Intent>> = BTreeMap::new();
        for (position, intent) in steps {
            ran.entry(&position.step).or_default().push(intent);
        }
        let program = self.program();
        let mut graph: Vec<Map<String, Value>> = Vec::new();
        // The configuration of today; steps that it no longer has come behind those it has.
        if let Some(pipeline) = program.router().pipeline(&first.pipeline) {
            let nodes = pipeline.graph.nodes().iter().rev();
            for node in nodes {
                let mut shown = step(pipeline, node);
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
        let states = steps.iter().map(|(_, intent)| word_of(intent));
        let state = worst(states);
        Some(json!({
            "instance_id": instance, "pipeline": first.pipeline, "root_job_id": job_id(root.id), "status": state, "steps": graph,
        }))
    }
}

fn add_jobs(shown: &mut Map<String, Value>, jobs: Option<Vec<&Intent>>) {
    let jobs = jobs.unwrap_or_default();
    let states = jobs.iter().map(|intent| word_of(intent));
    let state = if jobs.is_empty() {
        "not_reached"
    } else {
        worst(states)
    };
    put(shown, "status", Some(state));
    let jobs: Vec<Value> = jobs.into_iter().map(brief).collect();
    put(shown, "jobs", Some(jobs));
}

/// What is to be said of several jobs in one word: whether something runs or waits, then whether something failed.
fn worst(states: impl Iterator<Item = &'static str>) -> &'static str {
    const ORDER: [&str; 6] = [
        "running",
        "queued",
        "dead",
        "failed",
        "timed_out",
        "succeeded",
    ];
    let place = |state: &&str| ORDER.iter().position(|other| other == state);
    states.min_by_key(place).unwrap_or("succeeded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_under_way_before_it_is_failed_and_failed_before_it_is_done() {
        let of = |states: &[&'static str]| worst(states.iter().copied());
        assert_eq!(of(&["succeeded", "failed", "running"]), "running");
        assert_eq!(of(&["succeeded", "failed"]), "failed");
        assert_eq!(of(&["succeeded", "succeeded"]), "succeeded");
    }
}
