//! The input and output types of the router.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::baggage;

/// A position in a pipeline, stored with the job that runs there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelinePosition {
    pub pipeline: String,
    pub step: String,
    /// The number of plugin jobs since the pipeline was entered, including this one.
    pub hop: u32,
}

/// The job that emitted events.
#[derive(Clone, Copy, Debug)]
pub struct Producer<'a> {
    /// Empty if no plugin emitted the event.
    pub plugin: &'a str,
    /// The baggage of the job.
    pub context: &'a Map<String, Value>,
    /// The number of plugin jobs from the first ancestor; zero for a job that no event created.
    pub depth: u32,
    pub position: Option<&'a PipelinePosition>,
}

#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    pub event_type: &'a str,
    pub payload: &'a Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NextJob {
    pub plugin: String,
    pub command: String,
    /// `None` for a job that a route created.
    pub position: Option<PipelinePosition>,
    /// The job starts a new run of its pipeline.
    pub enters: bool,
    /// The index of the emitted event that created the job, for its id and dedupe key. `None` if the core created the event, and
    /// after a switch, which passes its event on.
    pub event: Option<usize>,
    pub event_type: String,
    pub payload: Value,
    pub context: Map<String, Value>,
    pub depth: u32,
}

/// Why no job was created, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An event without followers, trigger or route. Not an error.
    Unmatched { event_type: String },
    /// Too many hops; an error.
    Cut { target: String, depth: u32 },
    /// The configuration no longer has this position.
    Gone(PipelinePosition),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routed {
    pub jobs: Vec<NextJob>,
    pub notices: Vec<Notice>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pipeline `{pipeline}`, step `{step}`: {source}")]
pub struct Error {
    pub pipeline: String,
    pub step: String,
    pub source: baggage::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_position_keeps_its_shape_du_085() {
        let position = PipelinePosition {
            pipeline: "p".to_owned(),
            step: "call/step_1".to_owned(),
            hop: 3,
        };
        let stored = r#"{"pipeline":"p","step":"call/step_1","hop":3}"#;
        assert_eq!(serde_json::to_string(&position).unwrap(), stored);
        assert_eq!(
            serde_json::from_str::<PipelinePosition>(stored).unwrap(),
            position
        );
    }
}
