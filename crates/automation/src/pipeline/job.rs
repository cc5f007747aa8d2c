//! What the router is told and what it answers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::baggage;

/// A place in a pipeline, stored with the job that runs there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelinePosition {
    pub pipeline: String,
    pub step: String,
    /// Plugin jobs since the pipeline was entered, this one included.
    pub hop: u32,
}

/// The job that emitted events.
#[derive(Clone, Copy, Debug)]
pub struct Producer<'a> {
    /// Empty when no plugin stands behind the event.
    pub plugin: &'a str,
    /// Its baggage.
    pub context: &'a Map<String, Value>,
    /// Plugin jobs from its first ancestor to it; zero for a job that no event made.
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
    /// `None` for a job made by a route.
    pub position: Option<PipelinePosition>,
    /// The job starts a new instance of its pipeline.
    pub enters: bool,
    /// Which of the emitted events made it, to take over its id and dedupe key. `None` where the core made the event, and after a
    /// switch, which passes on its own.
    pub event: Option<usize>,
    pub event_type: String,
    pub payload: Value,
    pub context: Map<String, Value>,
    pub depth: u32,
}

/// What did not lead to a job, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An event without followers, trigger or route. Not an error.
    Unmatched { event_type: String },
    /// Too many hops; an error.
    Cut { target: String, depth: u32 },
    /// The configuration no longer has this place.
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
