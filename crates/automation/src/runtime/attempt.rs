//! One attempt of a job: builds the request from the ledger, runs the plugin and classifies the result. This module writes
//! nothing.

use std::path::Path;
use std::sync::Arc;

use consign_engine::Engine;
use consign_kernel::intent::Intent;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::job::{Job, job_id};
use super::message_bus::MessageBus;
use super::{publish, records, send};
use crate::pipeline::{
    PUBLISH_PLUGIN, PathScope, PipelinePosition, SEND_PLUGIN, SWITCH_PLUGIN, StepKind,
    merge_context, switch_result,
};
use crate::plugin::capture::Captured;
use crate::plugin::confine::GuardedPaths;
use crate::plugin::outcome::{self, PluginOutcome};
use crate::plugin::request::{HANDLE, PluginEvent, PluginRequest};
use crate::plugin::response::{EmittedEvent, PluginResponse};
use crate::plugin::run::{self, Launcher, RunLimits};
use crate::plugin::trust::{self, Distrust};
use crate::program::{Plugin, Program};

/// The failure reason of a job that could not be started.
const PREFLIGHT: &str = "preflight";

pub(super) struct Attempt {
    pub(super) intent: Intent,
    pub(super) job: Job,
    /// The program at the time of the claim; a reload does not change it.
    pub(super) program: Arc<Program>,
    /// The baggage of the job.
    pub(super) context: Map<String, Value>,
    /// Why the attempt cannot start.
    pub(super) unready: Option<AttemptFailure>,
    pub(super) started_at: Timestamp,
}

/// How an attempt ended, with the captured output.
pub(super) struct AttemptReport {
    pub(super) end: AttemptEnd,
    pub(super) stdout: Option<String>,
    pub(super) stderr: Option<String>,
    pub(super) completed_at: Timestamp,
}

pub(super) enum AttemptEnd {
    Succeeded(PluginResponse),
    /// The condition of a step was evaluated; `payload` is passed on unchanged.
    Switched {
        matched: bool,
        payload: Value,
    },
    Failed(AttemptFailure),
    Cancelled,
    /// The system had no resources for another process, so this does not count as an attempt. Carries the reason as text.
    NoResources(String),
}

#[derive(Clone)]
pub(super) struct AttemptFailure {
    pub(super) error: String,
    pub(super) reason: &'static str,
    pub(super) timed_out: bool,
    pub(super) again: bool,
}

impl AttemptFailure {
    /// A later attempt may succeed.
    pub(super) fn retryable(error: impl Into<String>) -> Self {
        Self {
            again: true,
            ..Self::permanent(error)
        }
    }

    /// Only a changed configuration can help.
    pub(super) fn permanent(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            reason: PREFLIGHT,
            timed_out: false,
            again: false,
        }
    }
}

impl Attempt {
    pub(super) async fn begin(
        engine: &Engine,
        program: Arc<Program>,
        intent: Intent,
        started_at: Timestamp,
    ) -> Result<Self, (Intent, AttemptFailure)> {
        let job = match Job::read(&intent) {
            Ok(job) => job,
            Err(error) => {
                let unreadable =
                    AttemptFailure::permanent(format!("the job cannot be read: {error}"));
                return Err((intent, unreadable));
            }
        };
        let context = match &job.event_context_id {
            None => Ok(Map::new()),
            Some(id) => baggage(engine, id).await,
        };
        let (context, unready) = match context {
            Ok(context) => (context, None),
            Err(failure) => (Map::new(), Some(failure)),
        };
        Ok(Self {
            intent,
            job,
            program,
            context,
            unready,
            started_at,
        })
    }

    pub(super) fn job_id(&self) -> String {
        job_id(self.intent.id)
    }

    /// Runs the attempt to its end. Calls `on_start` with the process id.
    pub(super) async fn run(
        &self,
        engine: &Engine,
        (launcher, guarded): (&Launcher, &GuardedPaths),
        bus: Option<&dyn MessageBus>,
        on_start: impl FnOnce(u32),
        cancel: impl Future<Output = ()>,
    ) -> AttemptReport {
        if let Some(failure) = &self.unready {
            return Self::report(AttemptEnd::Failed(failure.clone()), engine);
        }
        if self.job.plugin == SWITCH_PLUGIN {
            return Self::report(self.switched(), engine);
        }
        if self.job.plugin == PUBLISH_PLUGIN {
            let end = match self.payload_and_event() {
                Ok((_, event)) => {
                    let payload = event.map(|event| event.payload).unwrap_or_default();
                    publish::publish(engine, self, payload, cancel).await
                }
                Err(failure) => AttemptEnd::Failed(failure),
            };
            return Self::report(end, engine);
        }
        if self.job.plugin == SEND_PLUGIN {
            return match self.payload_and_event() {
                Ok((_, event)) => {
                    let payload = event.map(|event| event.payload).unwrap_or_default();
                    send::send(engine, bus, self, payload, cancel).await
                }
                Err(failure) => Self::report(AttemptEnd::Failed(failure), engine),
            };
        }
        let prepared = match self.prepare(engine, launcher, guarded).await {
            Ok(prepared) => prepared,
            Err(failure) => return Self::report(AttemptEnd::Failed(failure), engine),
        };
        let ended = run::run(prepared, on_start, cancel).await;
        for warning in outcome::warnings(&ended) {
            tracing::warn!(
                plugin = self.job.plugin,
                job_id = self.job_id(),
                "{warning}"
            );
        }
        let end = match outcome::classify(&ended) {
            PluginOutcome::Succeeded(response) => AttemptEnd::Succeeded(response),
            PluginOutcome::Failed(failure) => AttemptEnd::Failed(AttemptFailure {
                again: failure.is_retryable() && self.job.command != "init",
                reason: failure.reason.as_str(),
                error: failure.error,
                timed_out: false,
            }),
            PluginOutcome::TimedOut => AttemptEnd::Failed(AttemptFailure {
                error: format!("it ran longer than {:?}", self.timeout()),
                reason: outcome::FailureReason::Timeout.as_str(),
                timed_out: true,
                again: self.job.command != "init",
            }),
            PluginOutcome::Cancelled => AttemptEnd::Cancelled,
            PluginOutcome::NoResources(why) => AttemptEnd::NoResources(why),
        };
        AttemptReport {
            stdout: captured_text(&ended.stdout),
            stderr: captured_text(&ended.stderr),
            ..Self::report(end, engine)
        }
    }

    pub(super) fn report(end: AttemptEnd, engine: &Engine) -> AttemptReport {
        let stdout = match &end {
            AttemptEnd::Switched { matched, .. } => Some(switch_result(*matched).to_string()),
            AttemptEnd::Succeeded(_)
            | AttemptEnd::Failed(_)
            | AttemptEnd::Cancelled
            | AttemptEnd::NoResources(_) => None,
        };
        AttemptReport {
            end,
            stdout,
            stderr: None,
            completed_at: super::lifecycle::timestamp(engine.wall()),
        }
    }

    fn plugin(&self) -> Result<&Plugin, AttemptFailure> {
        let (plugin, command) = (&self.job.plugin, &self.job.command);
        let found = self.program.plugin(plugin).ok_or_else(|| {
            AttemptFailure::permanent(format!(
                "no plugin `{plugin}` is loaded; enable or install it"
            ))
        })?;
        if found.manifest.command(command).is_none() {
            let error = format!("the plugin `{plugin}` declares no command `{command}`");
            return Err(AttemptFailure::permanent(error));
        }
        Ok(found)
    }

    fn timeout(&self) -> std::time::Duration {
        let plugin = self.program.plugin(&self.job.plugin);
        plugin.map_or_else(std::time::Duration::default, |plugin| {
            plugin.timeouts.of(&self.job.command)
        })
    }

    async fn prepare(
        &self,
        engine: &Engine,
        launcher: &Launcher,
        guarded: &GuardedPaths,
    ) -> Result<run::ProcessSpec, AttemptFailure> {
        let plugin = self.plugin()?;
        check_trust(&plugin.entrypoint, &plugin.directory)?;
        let state = read_state(engine, &self.job.plugin).await?;
        let (payload, event) = self.payload_and_event()?;
        let timeout = self.timeout();
        let deadline_at = self.started_at.saturating_add(timeout);
        let request = PluginRequest {
            job_id: self.job_id(),
            plugin: self.job.plugin.clone(),
            command: self.job.command.clone(),
            config: plugin.config.clone(),
            state: state.state,
            context: self.request_context(),
            event,
            payload: payload.as_object().cloned(),
            deadline_at: deadline_at.unwrap_or(Timestamp::MAX),
        };
        Ok(run::ProcessSpec {
            entrypoint: plugin.entrypoint.clone(),
            launcher: plugin.confinement.launcher(
                launcher,
                &plugin.directory,
                self.program.environment(),
                &self.program.guarded(guarded, &plugin.name),
            ),
            environment: self.program.environment().clone(),
            request: request.to_line(),
            timeout,
            limits: RunLimits::default(),
        })
    }

    /// The input of the plugin: the payload, and for `handle` the event around it.
    fn payload_and_event(&self) -> Result<(Value, Option<PluginEvent>), AttemptFailure> {
        if self.job.command != HANDLE {
            let payload = self.templated(self.job.payload.clone())?;
            return Ok((payload, None));
        }
        let Value::Object(mut wrapper) = self.job.payload.clone() else {
            return Err(AttemptFailure::permanent("the job carries no event"));
        };
        let inner = wrapper.remove("payload").unwrap_or_else(|| json!({}));
        let inner = self.templated(merge_context(inner, &self.context))?;
        let text = |name: &str| {
            let value = wrapper.get(name).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let emitted = EmittedEvent {
            kind: text("type"),
            payload: inner.clone(),
            dedupe_key: self.job.dedupe_key.clone(),
        };
        let at = text("timestamp").parse().unwrap_or(self.started_at);
        let event = PluginEvent::stamped(emitted, text("source"), at, text("event_id"));
        wrapper.insert("payload".to_owned(), inner);
        Ok((Value::Object(wrapper), Some(event)))
    }

    fn templated(&self, payload: Value) -> Result<Value, AttemptFailure> {
        let Some(position) = &self.job.position else {
            return Ok(payload);
        };
        match self.program.router().node(position).map(|node| &node.kind) {
            Some(StepKind::Step(uses)) => {
                let made = uses.with.apply(&payload, &self.context);
                made.map_err(|error| AttemptFailure::permanent(error.to_string()))
            }
            Some(StepKind::Switch(_)) => Ok(payload),
            None => {
                let PipelinePosition { pipeline, step, .. } = position;
                tracing::warn!(pipeline, step, "the configuration no longer has this step");
                Ok(payload)
            }
        }
    }

    /// Whether the step's own `with` sets this key.
    pub(super) fn is_configured(&self, key: &str) -> bool {
        let node = self.job.position.as_ref();
        let node = node.and_then(|position| self.program.router().node(position));
        match node.map(|node| &node.kind) {
            Some(StepKind::Step(uses)) => uses.with.has(key),
            Some(StepKind::Switch(_)) | None => false,
        }
    }

    /// The baggage, plus the position in the pipeline.
    fn request_context(&self) -> Map<String, Value> {
        let mut context = self.context.clone();
        if let Some(served) = &self.job.serves {
            context.insert("ductile_intent".to_owned(), served.to_context());
        }
        if let Some(position) = &self.job.position {
            let mut tell = |name: &str, value: Value| context.insert(name.to_owned(), value);
            tell("ductile_pipeline", position.pipeline.as_str().into());
            tell("ductile_step_id", position.step.as_str().into());
            let instance = self.job.instance_id.as_deref().unwrap_or_default();
            tell("ductile_pipeline_instance_id", instance.into());
            tell("ductile_route_depth", position.hop.into());
            let pipeline = self.program.router().pipeline(&position.pipeline);
            let max = pipeline.and_then(|pipeline| pipeline.max_depth);
            let max = max.unwrap_or(crate::pipeline::HOPS_MAX);
            tell("ductile_route_max_depth", max.into());
        }
        context
    }

    fn switched(&self) -> AttemptEnd {
        let router = self.program.router();
        let position = self.job.position.as_ref();
        let Some(switch) = position.and_then(|position| router.switch(position)) else {
            let gone = "the configuration no longer has this condition";
            return AttemptEnd::Failed(AttemptFailure::permanent(gone));
        };
        let none = Map::new();
        let gated = switch.plugin.as_deref();
        let config = gated.and_then(|plugin| self.program.plugin(plugin));
        let payload = self.job.payload.get("payload").unwrap_or(&Value::Null);
        let matched = switch.condition.holds(&PathScope {
            payload,
            context: &self.context,
            config: config.map_or(&none, |plugin| &plugin.config),
        });
        AttemptEnd::Switched {
            matched,
            payload: payload.clone(),
        }
    }
}

fn captured_text(captured: &Captured) -> Option<String> {
    // PostgreSQL cannot store NUL in text, and it has no meaning in a log.
    (!captured.bytes.is_empty()).then(|| captured.text().replace('\0', "\u{fffd}"))
}

async fn baggage(engine: &Engine, id: &str) -> Result<Map<String, Value>, AttemptFailure> {
    let record = engine.record(records::context_key(id)).await;
    let record = record.map_err(|error| read_failure("baggage", &error))?;
    let record = record
        .ok_or_else(|| AttemptFailure::permanent(format!("its baggage {id} does not exist")))?;
    let context: records::EventContext = serde_json::from_str(&record.value).map_err(|error| {
        AttemptFailure::permanent(format!("its baggage cannot be read: {error}"))
    })?;
    Ok(context.accumulated)
}

pub(super) async fn read_state(
    engine: &Engine,
    plugin: &str,
) -> Result<records::PluginState, AttemptFailure> {
    let record = engine.record(records::state_key(plugin)).await;
    let record = record.map_err(|error| read_failure("state", &error))?;
    let Some(record) = record else {
        return Ok(records::PluginState::default());
    };
    serde_json::from_str(&record.value)
        .map_err(|error| AttemptFailure::permanent(format!("its state cannot be read: {error}")))
}

/// The ledger is unavailable; a later attempt may succeed.
fn read_failure(what: &str, error: &consign_engine::Error) -> AttemptFailure {
    AttemptFailure {
        error: format!("its {what} could not be read: {error}"),
        reason: PREFLIGHT,
        timed_out: false,
        again: true,
    }
}

/// Refuses a program that another user could have replaced since it was discovered. A program that is gone is reported by the
/// start itself.
fn check_trust(entrypoint: &Path, directory: &Path) -> Result<(), AttemptFailure> {
    let root = directory.to_path_buf();
    match trust::check_ownership(entrypoint, directory, &[root]) {
        Ok(()) | Err(Distrust::Unreadable { .. }) => Ok(()),
        Err(distrust) => Err(AttemptFailure::retryable(distrust.to_string())),
    }
}
