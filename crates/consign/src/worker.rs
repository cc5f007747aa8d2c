//! Runs a command for each intent of a goal: `consign worker run`.
//!
//! [`pool`] talks to the server and starts attempts, [`attempt`] runs the command of one intent and keeps its lease, and
//! [`streams`] reads what the command writes. Invariants: a command runs only while this worker holds the lease of its intent;
//! no process of its group survives the attempt; and an end is reported until the server has answered.

mod attempt;
mod pool;
mod report;
mod result;
mod streams;

use std::ffi::OsString;
use std::time::Duration;

pub(crate) use pool::WorkerPool;

/// What to work on, and how.
#[derive(Debug)]
pub(crate) struct WorkerSettings {
    pub(crate) goal: String,
    pub(crate) namespace: Option<String>,
    pub(crate) worker_id: String,
    pub(crate) capabilities: Vec<String>,
    /// How many commands run at a time.
    pub(crate) concurrency: u32,
    pub(crate) lease: Duration,
    /// How long running commands may go on after the first signal.
    pub(crate) grace: Duration,
    /// End after one intent, or at once if there is none.
    pub(crate) once: bool,
    /// Print a line of JSON for each intent.
    pub(crate) json: bool,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
}

/// How far the end of the worker has come. The order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StopPhase {
    Working,
    /// No new claims; running commands go on.
    Draining,
    /// Running commands get SIGTERM, and SIGKILL a little later.
    Terminating,
    /// Running commands get SIGKILL.
    Killing,
}
