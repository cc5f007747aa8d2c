//! Enqueues jobs for the command line, the API, webhooks and the scheduler.

use std::time::Duration;

use consign_engine::{Error, UnitOfWork};
use consign_kernel::ids::IntentId;
use serde_json::{Value, json};

use super::job::{Job, SubmittedBy, job_id};
use super::lifecycle::{Runtime, uuid};
use super::successors::{self, Consequences, EventSource};
use crate::pipeline::{BaggageError, EventRef, Trigger};
use crate::plugin::request::HANDLE;
use crate::program::Program;

/// A queued job, or the existing job that makes it a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    pub id: IntentId,
    /// Nothing was queued; `id` is that of the existing job.
    pub duplicate: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// No such plugin, command or pipeline can be run; the text is that of the [`Program`].
    #[error("{0}")]
    Missing(String),
    #[error(transparent)]
    Routing(#[from] crate::pipeline::Error),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl TriggerError {
    /// The actual and the maximum size of the baggage, if it was too large.
    pub fn baggage_bytes(&self) -> Option<(usize, usize)> {
        if let Self::Routing(error) = self
            && let BaggageError::TooLarge {
                bytes_actual,
                bytes_limit,
            } = error.source
        {
            return Some((bytes_actual, bytes_limit));
        }
        None
    }
}

impl Runtime {
    /// Enqueues a job of a plugin. For `handle` the payload becomes an event of this type.
    pub async fn run_plugin(
        &self,
        plugin: &str,
        command: &str,
        payload: Value,
        event_type: &str,
        submitted_by: SubmittedBy,
    ) -> Result<Enqueued, TriggerError> {
        let program = self.program();
        if program.plugin(plugin).is_none() {
            return Err(TriggerError::Missing(program.missing_plugin(plugin)));
        }
        if program.command(plugin, command).is_none() {
            let missing = program.missing_command(plugin, command);
            return Err(TriggerError::Missing(missing));
        }
        let mut job = Job::root(plugin, command, submitted_by, payload);
        if command == HANDLE {
            let payload = or_empty(job.payload);
            job.payload = self.source(event_type, submitted_by).wrap(payload);
        }
        Ok(self.enqueue(job, None).await?)
    }

    /// The source of an event from outside.
    fn source(&self, kind: &str, submitted_by: SubmittedBy) -> EventSource {
        EventSource {
            kind: kind.to_owned(),
            plugin: submitted_by.as_str().to_owned(),
            at: self.inner.wall_time(),
            id: uuid(self.engine()),
            dedupe_key: None,
        }
    }

    /// Enqueues a job without a parent. See [`Job::intent`] for `window`.
    pub async fn enqueue(&self, job: Job, window: Option<Duration>) -> Result<Enqueued, Error> {
        let unit = UnitOfWork::default();
        let jobs = self.enqueue_all(vec![job], unit, window).await?;
        let first = jobs.first().copied();
        first.ok_or_else(|| Error::Internal("an admission returned no result".to_owned()))
    }

    /// Enqueues all jobs together with the steps in `unit`, or none.
    pub(super) async fn enqueue_all(
        &self,
        jobs: Vec<Job>,
        mut unit: UnitOfWork,
        window: Option<Duration>,
    ) -> Result<Vec<Enqueued>, Error> {
        let program = self.program();
        let items = jobs.iter().map(|job| job.intent(&program, None, window));
        let admitted = unit.admit(items.collect());
        let admitted = self.engine().commit(unit).await?.get(admitted)?;
        let mut enqueued = Vec::with_capacity(jobs.len());
        for (job, admitted) in jobs.iter().zip(admitted) {
            let (id, plugin) = (job_id(admitted.id), &job.plugin);
            if admitted.replayed {
                let dedupe_key = job.dedupe_key.as_deref();
                tracing::info!(
                    component = "queue",
                    plugin,
                    dedupe_key,
                    existing_job_id = id,
                    "a duplicate job was not queued"
                );
            } else {
                self.inner.track_one_shot_job(admitted.id);
            }
            enqueued.push(Enqueued {
                id: admitted.id,
                duplicate: admitted.replayed,
            });
        }
        Ok(enqueued)
    }

    /// Starts a pipeline by name; returns one job for each of its first steps.
    pub async fn run_pipeline(
        &self,
        name: &str,
        payload: Value,
        submitted_by: SubmittedBy,
    ) -> Result<Vec<Enqueued>, TriggerError> {
        let program = self.program();
        let no_pipeline = || TriggerError::Missing(Program::missing_pipeline(name));
        let pipeline = program.router().pipeline(name).ok_or_else(no_pipeline)?;
        let kind = match &pipeline.trigger {
            Trigger::Event(kind) => kind.clone(),
            Trigger::Hook(hook) => hook.as_str().to_owned(),
        };
        let payload = or_empty(payload);
        let event = EventRef {
            event_type: &kind,
            payload: &payload,
        };
        let routed = program
            .router()
            .start(name, event)
            .ok_or_else(no_pipeline)??;
        let source = self.source(&kind, submitted_by);
        let mut started = Consequences::default();
        successors::enter_pipeline(self.engine(), routed, &source, submitted_by, &mut started);
        let Consequences { unit, jobs } = started;
        Ok(self.enqueue_all(jobs, unit, None).await?)
    }
}

fn or_empty(payload: Value) -> Value {
    if payload.is_null() {
        json!({})
    } else {
        payload
    }
}
