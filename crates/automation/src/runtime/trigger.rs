//! Jobs that are asked for: by the command line, the API, a webhook or the clock.

use std::time::Duration;

use consign_engine::Error;
use consign_kernel::command::{Admit, Answer, Command};
use consign_kernel::error::Refusal;
use consign_kernel::ids::IntentId;
use consign_kernel::record::Put;
use serde_json::{Value, json};

use super::finish;
use super::job::{Job, SubmittedBy, job_id};
use super::keep;
use super::service::{Runtime, uuid};
use crate::pipeline::{BaggageError, Emitted, Trigger};
use crate::plugin::request::HANDLE;
use crate::plugin::response::EmittedEvent;

/// A job in the queue, or the one that serves instead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    pub id: IntentId,
    /// Nothing was queued: this one serves.
    pub duplicate: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    #[error("there is no plugin `{0}`")]
    NoPlugin(String),
    #[error("the plugin `{plugin}` has no command `{command}`")]
    NoCommand { plugin: String, command: String },
    #[error("there is no pipeline `{0}`")]
    NoPipeline(String),
    #[error(transparent)]
    Routing(#[from] crate::pipeline::Error),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl TriggerError {
    /// How many bytes the baggage had, if it was too much.
    pub fn baggage_bytes(&self) -> Option<usize> {
        if let Self::Routing(error) = self
            && let BaggageError::TooLarge { bytes_actual, .. } = error.source
        {
            return Some(bytes_actual);
        }
        None
    }
}

impl Runtime {
    /// One job of a plugin. For `handle` the payload becomes an event of this type.
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
            return Err(TriggerError::NoPlugin(plugin.to_owned()));
        }
        if program.command(plugin, command).is_none() {
            let (plugin, command) = (plugin.to_owned(), command.to_owned());
            return Err(TriggerError::NoCommand { plugin, command });
        }
        let mut job = Job::root(plugin, command, submitted_by, payload);
        if command == HANDLE {
            job.payload = self.event(event_type, job.payload, submitted_by);
        }
        Ok(self.enqueue(job, None).await?)
    }

    fn event(&self, kind: &str, payload: Value, submitted_by: SubmittedBy) -> Value {
        let emitted = EmittedEvent {
            kind: kind.to_owned(),
            payload: if payload.is_null() {
                json!({})
            } else {
                payload
            },
            dedupe_key: None,
        };
        let id = uuid(self.engine());
        finish::event(emitted, submitted_by.as_str(), self.inner.instant(), &id)
    }

    /// Queues a job that no other one brought about. See [`Job::intent`] for `window`.
    pub async fn enqueue(&self, job: Job, window: Option<Duration>) -> Result<Enqueued, Error> {
        let jobs = self.enqueue_all(vec![job], Vec::new(), window).await?;
        let first = jobs.first().copied();
        first.ok_or_else(|| Error::Internal("an admission answered nothing".to_owned()))
    }

    /// All of them, with what is written beside them, or none.
    pub(super) async fn enqueue_all(
        &self,
        jobs: Vec<Job>,
        beside: Vec<Command>,
        window: Option<Duration>,
    ) -> Result<Vec<Enqueued>, Error> {
        let program = self.program();
        let items = jobs.iter().map(|job| job.intent(&program, None, window));
        let admit = Admit {
            items: items.collect(),
            cap: None,
        };
        let mut steps = beside;
        steps.push(Command::Admit(admit));
        let answers = self.engine().together(steps).await?;
        let Some(Answer::Admitted(admitted)) = answers.into_iter().next_back() else {
            return Err(Error::Refused(Refusal::NotReached));
        };
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
                    "a duplicate was not queued"
                );
            } else {
                let (command, submitted_by) = (&job.command, job.submitted_by.as_str());
                self.inner.tell(
                    "job.enqueued",
                    json!({
                        "job_id": id, "plugin": plugin, "command": command, "submitted_by": submitted_by,
                        "direct": job.position.is_none(),
                    }),
                );
            }
            enqueued.push(Enqueued {
                id: admitted.id,
                duplicate: admitted.replayed,
            });
        }
        Ok(enqueued)
    }

    /// Enters a pipeline by its name; one job for each of its first steps.
    pub async fn run_pipeline(
        &self,
        name: &str,
        payload: Value,
        submitted_by: SubmittedBy,
    ) -> Result<Vec<Enqueued>, TriggerError> {
        let program = self.program();
        let no_pipeline = || TriggerError::NoPipeline(name.to_owned());
        let pipeline = program.router().pipeline(name).ok_or_else(no_pipeline)?;
        let kind = match &pipeline.trigger {
            Trigger::Event(kind) => kind.clone(),
            Trigger::Hook(hook) => hook.as_str().to_owned(),
        };
        let payload = if payload.is_null() {
            json!({})
        } else {
            payload
        };
        let event = Emitted {
            event_type: &kind,
            payload: &payload,
        };
        let routed = program
            .router()
            .start(name, event)
            .ok_or_else(no_pipeline)??;
        let (instance_id, event_id) = (uuid(self.engine()), uuid(self.engine()));
        let now = self.inner.instant();
        let (mut jobs, mut beside) = (Vec::new(), Vec::new());
        for next in routed.jobs {
            let context_id = uuid(self.engine());
            let position = next.position.as_ref();
            let context = keep::Context {
                parent_id: None,
                pipeline_name: position.map(|position| position.pipeline.clone()),
                step_id: position.map(|position| position.step.clone()),
                accumulated: next.context,
                created_at: now,
            };
            beside.push(Command::Put(Put {
                key: keep::context(&context_id),
                value: serde_json::to_string(&context).expect("JSON values always serialise"),
                expires_at: None,
                expect: None,
            }));
            let payload = if next.command == HANDLE {
                let emitted = EmittedEvent {
                    kind: kind.clone(),
                    payload: next.payload,
                    dedupe_key: None,
                };
                finish::event(emitted, submitted_by.as_str(), now, &event_id)
            } else {
                next.payload
            };
            jobs.push(Job {
                source_event_id: Some(event_id.clone()),
                event_context_id: Some(context_id),
                position: next.position,
                instance_id: Some(instance_id.clone()),
                depth: next.depth,
                ..Job::root(&next.plugin, &next.command, submitted_by, payload)
            });
        }
        let enqueued = self.enqueue_all(jobs, beside, None).await?;
        let ids: Vec<String> = enqueued.iter().map(|job| job_id(job.id)).collect();
        let told = json!({"job_id": ids.first(), "job_ids": ids, "job_count": ids.len(), "pipeline": name});
        self.inner.tell("pipeline.enqueued", told);
        Ok(enqueued)
    }
}
