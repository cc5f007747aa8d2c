//! A job as stored in the ledger: an intent whose capability is the plugin and whose payload is the rest.

use std::time::Duration;

use consign_kernel::command::{NewIntent, Unless};
use consign_kernel::ids::{DAY_US, IntentId};
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::ProfileId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::finish::INIT;
use super::served_intent::ServedIntent;
use crate::pipeline::{
    PUBLISH_PLUGIN, PipelinePosition, RECEIVE_PLUGIN, SEND_PLUGIN, SWITCH_PLUGIN,
};
use crate::program::Program;

/// All jobs of a ledger share one namespace and one publisher.
pub const NAMESPACE: &str = "automation";
pub const OWNER: &str = "automation";

/// A job does not expire while it waits.
const LIFE_US: i64 = 100 * 365 * DAY_US;
/// Separates the parts of a series name. No plugin or command name contains it.
const SEPARATOR: char = '\u{1f}';
/// The core evaluates a switch itself; it has no transient failures.
const SWITCH_ATTEMPTS: u32 = 4;
/// A job that waits for an intent, a message or a pipeline is claimed again at every start.
const WAIT_ATTEMPTS: u32 = 1_000_000;

/// Jobs that only wait, so they need no worker slot.
pub(super) const WAITING: &[&str] = &[PUBLISH_PLUGIN, SEND_PLUGIN, RECEIVE_PLUGIN];

/// The origin of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubmittedBy {
    Scheduler,
    Webhook,
    Route,
    Cli,
    Api,
    Hook,
    Intent,
    Message,
}

impl SubmittedBy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Webhook => "webhook",
            Self::Route => "route",
            Self::Cli => "cli",
            Self::Api => "api",
            Self::Hook => "hook",
            Self::Intent => "intent",
            Self::Message => "message",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub plugin: String,
    pub command: String,
    pub submitted_by: SubmittedBy,
    /// For `handle`, the event.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub payload: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_event_id: Option<String>,
    /// The record that holds the baggage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_context_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<PipelinePosition>,
    /// Identifies one run of a pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// The schedule entry that created the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_id: Option<String>,
    /// The intent that the job serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<ServedIntent>,
    /// The number of plugin jobs from the first ancestor; zero for a job that no event created.
    #[serde(default)]
    pub depth: u32,
    /// The number of hooks in the chain that led to the job.
    #[serde(default)]
    pub hook_depth: u32,
}

impl Job {
    /// A job that no event created.
    pub fn root(plugin: &str, command: &str, submitted_by: SubmittedBy, payload: Value) -> Self {
        Self {
            plugin: plugin.to_owned(),
            command: command.to_owned(),
            submitted_by,
            payload,
            dedupe_key: None,
            source_event_id: None,
            event_context_id: None,
            position: None,
            instance_id: None,
            schedule_id: None,
            serves: None,
            depth: 0,
            hook_depth: 0,
        }
    }

    pub fn read(intent: &Intent) -> Result<Self, serde_json::Error> {
        serde_json::from_str(&intent.payload)
    }

    /// `window` replaces the configured time within which a completed job with the same key makes this one a duplicate. With it,
    /// an open job with the same key counts as well.
    pub fn intent(
        &self,
        program: &Program,
        parent: Option<IntentId>,
        window: Option<Duration>,
    ) -> NewIntent {
        let retry = program.plugin(&self.plugin).map(|plugin| plugin.retry);
        let attempts_max = match retry {
            // It is not retried, even after a crash.
            Some(_) if self.command == INIT => 1,
            // The intent has its own attempts.
            Some(_) if self.serves.is_some() => 1,
            Some(retry) => u32::try_from(retry.max_attempts).unwrap_or(u32::MAX),
            None if WAITING.contains(&self.plugin.as_str()) => WAIT_ATTEMPTS,
            None => SWITCH_ATTEMPTS,
        };
        let key = self.dedupe_key.as_deref();
        let key = key.filter(|key| !key.trim().is_empty() && self.plugin != SWITCH_PLUGIN);
        let usual = if plant::on(Plant::EndlessDedupe) {
            Duration::MAX
        } else {
            program.config().service.dedupe_ttl
        };
        NewIntent {
            profile: ProfileId::Automation,
            namespace: NAMESPACE.to_owned(),
            goal: self.command.clone(),
            owner: OWNER.to_owned(),
            public: false,
            target: None,
            capability: Some(self.plugin.clone()),
            priority: 0,
            payload: serde_json::to_string(self).expect("texts and JSON values always serialise"),
            traceparent: None,
            delay_us: 0,
            ttl_us: LIFE_US,
            attempts_max,
            backoff_us: retry.map_or(0, |retry| micros(retry.backoff_base)),
            once: None,
            ties: Ties {
                parent,
                series: key.map(|key| self.series(key)),
                sender: None,
            },
            unless: key.map(|_| Unless {
                open: window.is_some(),
                completed_within_us: micros(window.unwrap_or(usual)),
            }),
        }
    }

    fn series(&self, key: &str) -> String {
        let (plugin, command) = (&self.plugin, &self.command);
        if plant::on(Plant::KeyIsTarget) {
            return key.to_owned();
        }
        let name = format!("{plugin}{SEPARATOR}{command}{SEPARATOR}{key}");
        // A key may be long, and PostgreSQL limits the size of an index entry.
        blake3::hash(name.as_bytes()).to_hex().to_string()
    }
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

/// The id in the notation of the protocol.
pub fn job_id(id: IntentId) -> String {
    let hex = id.to_string();
    let (a, b, c) = (&hex[..8], &hex[8..12], &hex[12..16]);
    format!("{a}-{b}-{c}-{}-{}", &hex[16..20], &hex[20..])
}

/// With or without hyphens.
pub fn parse_job_id(text: &str) -> Option<IntentId> {
    text.replace('-', "").to_ascii_lowercase().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_as_a_uuid_and_read_back() {
        let id = IntentId([
            0x01, 0x8b, 0xcf, 0xe5, 0x68, 0, 0x70, 0, 0x80, 0, 8, 14, 7, 42, 3, 61,
        ]);
        assert_eq!(job_id(id), "018bcfe5-6800-7000-8000-080e072a033d");
        assert_eq!(parse_job_id(&job_id(id)), Some(id));
        assert_eq!(parse_job_id("018bcfe5680070008000080E072A033D"), Some(id));
        assert_eq!(parse_job_id("nothing"), None);
    }

    #[test]
    fn a_job_is_stored_in_a_shape_that_stays() {
        let job = Job::root(
            "echo",
            "poll",
            SubmittedBy::Scheduler,
            serde_json::json!({"a": 1}),
        );
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(
            text,
            r#"{"plugin":"echo","command":"poll","submitted_by":"scheduler","payload":{"a":1},"depth":0,"hook_depth":0}"#
        );
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    }
}
