//! Routes and pipelines: conditions, templates, baggage, and which jobs follow from an event.
//!
//! Nothing here runs a plugin or stores anything. Given an event and the position of the job that emitted it, the [`Router`]
//! returns the next jobs; the caller queues all of them or none.

mod baggage;
mod condition;
mod graph;
mod hook;
mod job;
mod load;
mod path;
mod router;
mod send;
mod spec;
mod template;
mod wording;

pub use baggage::{BAGGAGE_BYTES_MAX, BaggageClaims, ClaimsError, Error as BaggageError};
pub use condition::{Condition, Error as ConditionError};
pub use graph::{Graph, GraphNode, StepKind, Switch};
pub use hook::{Hook, JobEnd};
pub use job::{Error, EventRef, NextJob, Notice, PipelinePosition, Producer, Routed};
pub use load::{LoadError, Pipeline};
pub use path::{PathScope, Root, ValuePath};
pub use router::{
    HOPS_MAX, PUBLISH_PLUGIN, RECEIVE_PLUGIN, Router, SEND_PLUGIN, STEP_SUCCEEDED, SWITCH_COMMAND,
    SWITCH_PLUGIN, switch_result,
};
pub use send::{SEND_CONTROLS, SendUntil};
pub use spec::{Trigger, Uses};
pub use template::{Error as TemplateError, With, merge_context};

/// The plugins that a configuration may name.
pub trait PluginCatalogue {
    fn has_plugin(&self, plugin: &str) -> bool;
    /// Called only for plugins that exist. Returns true if the manifest is unknown.
    fn has_command(&self, plugin: &str, command: &str) -> bool;
}
