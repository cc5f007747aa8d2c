//! The records beside the jobs: their keys and their contents.
//!
//! Invariant: these shapes are stored, and views with the protocol's table names read them. Fields may be added; none changes its
//! meaning.

use consign_kernel::record::{Key, Kind};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::breaker::{Breaker, BreakerTransition};
use crate::schedule;

use super::job::SubmittedBy;
use super::job_status::JobStatus;

fn key(kind: Kind, owner: &str, name: impl Into<String>) -> Key {
    Key {
        kind,
        owner: owner.to_owned(),
        name: name.into(),
    }
}

pub fn log_key(job_id: &str, attempt: u32) -> Key {
    key(Kind::JobLog, "", format!("{job_id}-{attempt}"))
}

pub fn state_key(plugin: &str) -> Key {
    key(Kind::PluginState, "", plugin)
}

/// Names sort like their numbers.
pub fn fact_key(plugin: &str, seq: u64) -> Key {
    key(Kind::PluginFact, plugin, format!("{seq:020}"))
}

pub fn breaker_key(plugin: &str, command: &str) -> Key {
    key(Kind::Breaker, plugin, command)
}

/// Numbered by the version of the breaker that the change produced.
pub fn breaker_change_key(plugin: &str, command: &str, version: u64) -> Key {
    let name = format!("{version:020}");
    key(Kind::BreakerChange, &format!("{plugin}/{command}"), name)
}

pub fn context_key(id: &str) -> Key {
    key(Kind::EventContext, "", id)
}

pub fn schedule_key(plugin: &str, id: &str) -> Key {
    key(Kind::Schedule, plugin, id)
}

pub fn setup_key(plugin: &str) -> Key {
    key(Kind::PluginSetup, "", plugin)
}

/// The owner of the notes about plugins whose jobs a node has to cancel. They share a kind with the setups. See
/// `removed_plugins`.
pub fn removals_owner(node: &str) -> String {
    format!("removed/{node}")
}

pub fn removal_key(node: &str, plugin: &str) -> Key {
    key(Kind::PluginSetup, &removals_owner(node), plugin)
}

/// See `unreported_ends`.
pub fn watermark_key() -> Key {
    key(Kind::Watermark, "", "automation")
}

/// One finished attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobLog {
    pub job_id: String,
    pub plugin: String,
    pub command: String,
    /// The outcome of the attempt: succeeded, failed, timed out or dead.
    pub status: JobStatus,
    pub attempt: u32,
    pub submitted_by: SubmittedBy,
    #[serde(with = "crate::instant")]
    pub created_at: Timestamp,
    #[serde(with = "crate::instant")]
    pub started_at: Timestamp,
    #[serde(with = "crate::instant")]
    pub completed_at: Timestamp,
    /// The standard output of the plugin, unchanged.
    pub result: Option<String>,
    pub last_error: Option<String>,
    /// Why it failed, in one word.
    pub reason: Option<String>,
    pub stderr: Option<String>,
    pub parent_job_id: Option<String>,
    pub source_event_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PluginState {
    pub state: Map<String, Value>,
    #[serde(with = "crate::instant::maybe")]
    pub updated_at: Option<Timestamp>,
    /// The number of the plugin's last fact.
    pub facts: u64,
}

/// When stored, its first field is `id`: a number that the ledger assigns across all plugins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginFact {
    pub seq: u64,
    pub fact_type: String,
    pub job_id: String,
    pub command: String,
    pub fact: Map<String, Value>,
    #[serde(with = "crate::instant")]
    pub created_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BreakerRecord {
    #[serde(flatten)]
    pub breaker: Breaker,
    #[serde(with = "crate::instant::maybe")]
    pub last_failure_at: Option<Timestamp>,
    #[serde(with = "crate::instant::maybe")]
    pub updated_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BreakerChange {
    pub command: String,
    #[serde(flatten)]
    pub transition: BreakerTransition,
    pub job_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventContext {
    pub parent_id: Option<String>,
    pub pipeline_name: Option<String>,
    pub step_id: Option<String>,
    pub accumulated: Map<String, Value>,
    #[serde(with = "crate::instant")]
    pub created_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleStatus {
    Active,
    PausedManual,
    PausedInvalid,
    Exhausted,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    pub command: String,
    /// The rule from which `next_run_at` was computed; a different rule restarts the entry.
    #[serde(default)]
    pub rule: String,
    pub status: ScheduleStatus,
    pub reason: Option<String>,
    #[serde(flatten)]
    pub state: schedule::ScheduleState,
    pub last_success_job_id: Option<String>,
    #[serde(with = "crate::instant")]
    pub updated_at: Timestamp,
}

/// Ends that no dispatcher reported are followed up to this fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    pub fact: u64,
}

/// The result of the one-time setup of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetupRecord {
    /// The fingerprint of the program and configuration that the setup was made for.
    pub fingerprint: String,
    pub job_id: String,
    /// The job is queued or running.
    #[serde(default)]
    pub pending: bool,
    pub healthy: bool,
    pub error: Option<String>,
}
