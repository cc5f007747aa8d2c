//! What the parts of a server tell operators: figures, problems and metrics.

use consign_engine::{Error, Operator};
use serde_json::{Map, Value};

use super::{MetricsText, MountFuture};

/// How much a problem matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemLevel {
    /// Somebody should look at it; the server works.
    Warning,
    /// The server does not do its work, or soon will not.
    Error,
}

impl ProblemLevel {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that needs an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProblem {
    pub level: ProblemLevel,
    /// A stable name for programs.
    pub id: &'static str,
    pub what: String,
    pub why: String,
    /// The next step, as a command if there is one.
    pub next: String,
}

impl ServerProblem {
    pub(super) fn json(&self) -> Value {
        serde_json::json!({
            "level": self.level.name(),
            "id": self.id,
            "what": self.what,
            "why": self.why,
            "next": self.next,
        })
    }
}

/// The report of one part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartReport {
    pub figures: Map<String, Value>,
    pub problems: Vec<ServerProblem>,
}

/// A part of the server that is not a protocol on its listener: the process itself, or the automation.
pub trait Reporter: Send + Sync + 'static {
    /// The name of its figures in `/admin/status`.
    fn name(&self) -> &'static str;

    fn report(&self, operator: Operator) -> MountFuture<'_, Result<PartReport, Error>>;

    /// Writes the metrics of the part.
    fn metrics<'a>(
        &'a self,
        operator: Operator,
        text: &'a mut MetricsText,
    ) -> MountFuture<'a, Result<(), Error>>;
}
