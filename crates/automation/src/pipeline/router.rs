//! The router: determines the jobs that follow from an event.
//!
//! Invariant: a result is complete or an error. A failing claim refuses all jobs of the event, so no event is routed in part.

use std::collections::HashMap;

use consign_kernel::plant::{self, Plant};
use serde_json::{Map, Value, json};

use super::graph::{GraphNode, StepKind, Switch};
use super::hook::Hook;
use super::job::{Error, EventRef, NextJob, Notice, PipelinePosition, Producer, Routed};
use super::load::{LoadError, Pipeline, Routes};
use super::path::PathScope;
use super::spec::Trigger;

/// The maximum number of jobs in a chain of events; it ends loops of plugins that react to their own events.
pub const HOPS_MAX: u32 = 20;
/// The event for the followers of a step that emitted none.
pub const STEP_SUCCEEDED: &str = "ductile.step.succeeded";
/// The core itself evaluates the `if` of a step, in a job with this plugin name.
pub const SWITCH_PLUGIN: &str = "core.switch";
pub const SWITCH_COMMAND: &str = "handle";
/// A step with this name publishes an intent and waits for its end.
pub const PUBLISH_PLUGIN: &str = "core.publish";
/// A step with this name sends a message to an agent of Beam.
pub const SEND_PLUGIN: &str = "core.send";
/// The job of a message that an agent received has this plugin name.
pub const RECEIVE_PLUGIN: &str = "core.receive";
const HOOK_HOPS: u32 = 4;

#[derive(Clone, Debug)]
pub struct Router {
    pipelines: Vec<Pipeline>,
    by_name: HashMap<String, usize>,
    by_event: HashMap<String, Vec<usize>>,
    routes: Routes,
    warnings: Vec<LoadError>,
}

impl Router {
    pub(super) fn new(pipelines: Vec<Pipeline>, routes: Routes, warnings: Vec<LoadError>) -> Self {
        let mut by_name = HashMap::new();
        let mut by_event: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, pipeline) in pipelines.iter().enumerate() {
            by_name.insert(pipeline.name.clone(), index);
            if let Trigger::Event(event_type) = &pipeline.trigger {
                by_event.entry(event_type.clone()).or_default().push(index);
            }
        }
        Self {
            pipelines,
            by_name,
            by_event,
            routes,
            warnings,
        }
    }

    /// Unknown keys of the configuration.
    pub fn warnings(&self) -> &[LoadError] {
        &self.warnings
    }

    /// By name.
    pub fn pipelines(&self) -> &[Pipeline] {
        &self.pipelines
    }

    pub fn pipeline(&self, name: &str) -> Option<&Pipeline> {
        self.by_name.get(name).map(|index| &self.pipelines[*index])
    }

    pub fn node(&self, position: &PipelinePosition) -> Option<&GraphNode> {
        self.pipeline(&position.pipeline)?
            .graph
            .node(&position.step)
    }

    /// The switch that a job of [`SWITCH_PLUGIN`] evaluates.
    pub fn switch(&self, position: &PipelinePosition) -> Option<&Switch> {
        match &self.node(position)?.kind {
            StepKind::Switch(switch) => Some(switch),
            StepKind::Step(_) => None,
        }
    }

    /// A plugin job succeeded with these events. Each one goes to the followers of its step and to everything it triggers.
    pub fn finished(
        &self,
        producer: Producer<'_>,
        events: &[EventRef<'_>],
        result: Option<&str>,
    ) -> Result<Routed, Error> {
        let mut routed = Routed::default();
        if events.is_empty() && producer.position.is_some() {
            let payload = with_origin(&json!({ "result": result }), producer);
            let event = EventRef {
                event_type: STEP_SUCCEEDED,
                payload: &payload,
            };
            self.follow(producer, event, None, true, &mut routed)?;
        }
        for (index, event) in events.iter().enumerate() {
            let before = routed.jobs.len() + routed.notices.len();
            let payload = with_origin(event.payload, producer);
            let event = EventRef {
                payload: &payload,
                ..*event
            };
            self.follow(producer, event, Some(index), true, &mut routed)?;
            self.trigger(producer, event, index, &mut routed)?;
            self.route(producer, event, index, &mut routed);
            if routed.jobs.len() + routed.notices.len() == before {
                let event_type = event.event_type.to_owned();
                routed.notices.push(Notice::Unmatched { event_type });
            }
        }
        Ok(routed)
    }

    /// A switch was evaluated; `event` is passed on unchanged.
    pub fn switched(
        &self,
        producer: Producer<'_>,
        event: EventRef<'_>,
        matched: bool,
    ) -> Result<Routed, Error> {
        let mut routed = Routed::default();
        self.follow(producer, event, None, matched, &mut routed)?;
        Ok(routed)
    }

    /// Starts a pipeline by name. `None` if there is none with this name.
    pub fn start(&self, name: &str, event: EventRef<'_>) -> Option<Result<Routed, Error>> {
        let pipeline = self.pipeline(name)?;
        let context = Map::new();
        let producer = Producer {
            plugin: "",
            context: &context,
            depth: 0,
            position: None,
        };
        let mut routed = Routed::default();
        let entered = enter(pipeline, None, producer, event, &mut routed);
        Some(entered.map(|()| routed))
    }

    /// A job ended. `depth` counts the hooks that led to it; a `depth_max` of zero means the default of four.
    pub fn hook(
        &self,
        hook: Hook,
        source: &str,
        payload: &Value,
        depth: u32,
        depth_max: u32,
    ) -> Result<Routed, Error> {
        let mut routed = Routed::default();
        let context = Map::new();
        let producer = Producer {
            plugin: source,
            context: &context,
            depth: 0,
            position: None,
        };
        let event = EventRef {
            event_type: hook.as_str(),
            payload,
        };
        let depth_max = if depth_max == 0 { HOOK_HOPS } else { depth_max };
        for pipeline in &self.pipelines {
            if pipeline.trigger != Trigger::Hook(hook) || !admits(pipeline, producer, event) {
                continue;
            }
            if depth >= depth_max {
                let target = pipeline.name.clone();
                routed.notices.push(Notice::Cut { target, depth });
                continue;
            }
            enter(pipeline, None, producer, event, &mut routed)?;
        }
        Ok(routed)
    }

    /// Continues from the producer's position; `matched` matters only at a switch.
    fn follow(
        &self,
        producer: Producer<'_>,
        event: EventRef<'_>,
        index: Option<usize>,
        matched: bool,
        routed: &mut Routed,
    ) -> Result<(), Error> {
        let Some(position) = producer.position else {
            return Ok(());
        };
        let pipeline = self.pipeline(&position.pipeline);
        let (Some(pipeline), Some(node)) = (pipeline, self.node(position)) else {
            routed.notices.push(Notice::Gone(position.clone()));
            return Ok(());
        };
        let next: Vec<&GraphNode> = match &node.kind {
            StepKind::Switch(switch) if !matched => pipeline.graph.otherwise(switch).collect(),
            StepKind::Switch(_) | StepKind::Step(_) => pipeline.graph.after(node).collect(),
        };
        let step = StepTransition {
            pipeline,
            hop: position.hop,
            enters: false,
            event: index,
        };
        step.make(&next, producer, event, routed)
    }

    fn trigger(
        &self,
        producer: Producer<'_>,
        event: EventRef<'_>,
        index: usize,
        routed: &mut Routed,
    ) -> Result<(), Error> {
        let triggered = self.by_event.get(event.event_type).into_iter().flatten();
        for pipeline in triggered.map(|index| &self.pipelines[*index]) {
            if admits(pipeline, producer, event) {
                enter(pipeline, Some(index), producer, event, routed)?;
            }
        }
        Ok(())
    }

    fn route(
        &self,
        producer: Producer<'_>,
        event: EventRef<'_>,
        index: usize,
        routed: &mut Routed,
    ) {
        let key = (producer.plugin.to_owned(), event.event_type.to_owned());
        let depth = producer.depth.saturating_add(1);
        for target in self.routes.get(&key).into_iter().flatten() {
            if depth > HOPS_MAX && !plant::on(Plant::EndlessHops) {
                let target = target.clone();
                routed.notices.push(Notice::Cut { target, depth });
                continue;
            }
            routed.jobs.push(NextJob {
                plugin: target.clone(),
                command: "handle".to_owned(),
                position: None,
                enters: false,
                event: Some(index),
                event_type: event.event_type.to_owned(),
                payload: event.payload.clone(),
                context: producer.context.clone(),
                depth,
            });
        }
    }
}

/// The result of a switch job.
pub fn switch_result(matched: bool) -> Value {
    json!({ "matched": matched, "event": format!("ductile.switch.{matched}") })
}

fn admits(pipeline: &Pipeline, producer: Producer<'_>, event: EventRef<'_>) -> bool {
    let from = pipeline.from_plugin.as_deref();
    if from.is_some_and(|from| from != producer.plugin) {
        return false;
    }
    let scope = PathScope {
        payload: event.payload,
        context: producer.context,
        config: &Map::new(),
    };
    let condition = pipeline.condition.as_ref();
    condition.is_none_or(|condition| condition.holds(&scope))
}

fn enter(
    pipeline: &Pipeline,
    event_index: Option<usize>,
    producer: Producer<'_>,
    event: EventRef<'_>,
    routed: &mut Routed,
) -> Result<(), Error> {
    let entries: Vec<&GraphNode> = pipeline.graph.entries().collect();
    let step = StepTransition {
        pipeline,
        hop: 0,
        enters: true,
        event: event_index,
    };
    step.make(&entries, producer, event, routed)
}

/// A transition from one position of a pipeline to the next ones.
struct StepTransition<'a> {
    pipeline: &'a Pipeline,
    /// The position before the transition.
    hop: u32,
    enters: bool,
    event: Option<usize>,
}

impl StepTransition<'_> {
    fn make(
        &self,
        nodes: &[&GraphNode],
        producer: Producer<'_>,
        event: EventRef<'_>,
        routed: &mut Routed,
    ) -> Result<(), Error> {
        for node in nodes {
            // Only plugin jobs count as hops: a switch emits nothing and cannot cause a loop.
            let hops = match node.kind {
                StepKind::Step(_) => 1,
                StepKind::Switch(_) => 0,
            };
            let depth = producer.depth.saturating_add(hops);
            let hop = self.hop.saturating_add(hops);
            if !self.pipeline.allows(depth, hop) {
                let target = format!("{}/{}", self.pipeline.name, node.id);
                routed.notices.push(Notice::Cut { target, depth });
                continue;
            }
            let (plugin, command, context) = match &node.kind {
                StepKind::Switch(_) => (SWITCH_PLUGIN, SWITCH_COMMAND, producer.context.clone()),
                StepKind::Step(uses) => {
                    let claimed = uses.claims.accrete(producer.context, event.payload);
                    let context = claimed.map_err(|source| Error {
                        pipeline: self.pipeline.name.clone(),
                        step: node.id.clone(),
                        source,
                    })?;
                    (uses.plugin.as_str(), uses.command.as_str(), context)
                }
            };
            routed.jobs.push(NextJob {
                plugin: plugin.to_owned(),
                command: command.to_owned(),
                position: Some(PipelinePosition {
                    pipeline: self.pipeline.name.clone(),
                    step: node.id.clone(),
                    hop,
                }),
                enters: self.enters,
                event: self.event,
                event_type: event.event_type.to_owned(),
                payload: event.payload.clone(),
                context,
                depth,
            });
        }
        Ok(())
    }
}

/// Adds the origin of the event for the receiving plugin.
fn with_origin(payload: &Value, producer: Producer<'_>) -> Value {
    let mut payload = payload.clone();
    if let Value::Object(map) = &mut payload {
        map.insert("ductile_upstream_plugin".to_owned(), producer.plugin.into());
        if let Some(position) = producer.position {
            let pipeline = position.pipeline.as_str().into();
            map.insert("ductile_upstream_pipeline".to_owned(), pipeline);
            let step = position.step.as_str().into();
            map.insert("ductile_upstream_step_id".to_owned(), step);
        }
    }
    payload
}

#[cfg(test)]
pub(crate) mod tests;
