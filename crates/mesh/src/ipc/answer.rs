//! Bodies of answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client_message_id::ClientMessageId;
use crate::outbox::{OutboxAnswer, OutboxStatus};

/// A status and a JSON body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpcAnswer {
    pub status: u16,
    pub body: String,
}

/// The answer to a request to send; members that do not apply are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendAnswer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_fingerprint_prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Written as `null` in a conflict without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_message_id: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Status and body for a decision about the outbox.
pub fn answer_send(decision: &OutboxAnswer, id: &ClientMessageId) -> IpcAnswer {
    let own_id = Some(id.to_string());
    let (status, body) = match decision {
        OutboxAnswer::Enqueue | OutboxAnswer::OnItsWay(OutboxStatus::Pending) => {
            (202, queued(own_id, "queued"))
        }
        OutboxAnswer::OnItsWay(status) => (202, queued(own_id, status.as_str())),
        OutboxAnswer::Delivered {
            broker_message_id,
            history_id,
        } => (
            200,
            SendAnswer {
                client_message_id: own_id,
                broker_message_id: broker_message_id.clone().map(Value::String),
                history_id: history_id.clone(),
                duplicate: Some(true),
                ..SendAnswer::default()
            },
        ),
        OutboxAnswer::Conflict(conflict) => (
            409,
            SendAnswer {
                error: Some("idempotency_key_reused".to_owned()),
                conflict: Some(conflict.word()),
                daemon_fingerprint_prefix: Some(conflict.fingerprint_prefix.clone()),
                broker_message_id: Some(
                    conflict
                        .broker_message_id
                        .clone()
                        .map_or(Value::Null, Value::String),
                ),
                reason: conflict.reason.clone(),
                ..SendAnswer::default()
            },
        ),
    };
    let body = serde_json::to_string(&body).expect("strings are JSON");
    IpcAnswer { status, body }
}

fn queued(id: Option<String>, status: &str) -> SendAnswer {
    SendAnswer {
        client_message_id: id,
        status: Some(status.to_owned()),
        ..SendAnswer::default()
    }
}

/// `GET /v1/health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthAnswer {
    pub ok: bool,
    pub connected: bool,
    pub degraded: bool,
    pub lag_ms: Option<u64>,
    pub queue_depth: u64,
    pub inflight: u64,
    pub dead: u64,
    pub mesh: String,
    pub member_pubkey: String,
    pub uptime_s: u64,
    pub schema_version: u32,
    pub daemon_version: String,
    pub broker_version: Option<String>,
    pub pid: u32,
    /// The state of the connection, by mesh.
    pub brokers: BTreeMap<String, String>,
    /// Why the broker is not connected; `None` while it is.
    #[serde(default)]
    pub last_error: Option<String>,
}

/// `GET /v1/version`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VersionAnswer {
    pub daemon_version: String,
    pub ipc_api: String,
    pub ipc_minor: u32,
    pub ipc_features: Vec<String>,
    pub schema_version: u32,
    pub mesh: String,
    pub broker_features_negotiated: Vec<String>,
    pub broker_feature_params: Map<String, Value>,
    pub outbox_max_age_hours: Option<u32>,
}

impl VersionAnswer {
    pub const API: &'static str = "v1";
    pub const FEATURES: &'static [&'static str] =
        &["send", "topic", "peers", "files", "events", "health"];

    /// Whether a command of this mesh may use the daemon; otherwise it connects to the broker by itself. The pid file is
    /// never asked.
    pub fn is_usable(&self, mesh: &str, feature: &str) -> bool {
        self.ipc_api == Self::API
            && self.mesh == mesh
            && self.ipc_features.iter().any(|one| one == feature)
    }
}

/// `GET /v1/compat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompatAnswer {
    pub daemon: String,
    pub compatible_brokers: Vec<String>,
    pub required_broker_features: Vec<String>,
    pub compatible_clis: Vec<String>,
    pub compatible_sdks: BTreeMap<String, String>,
}

impl CompatAnswer {
    /// For a daemon that requires these features.
    pub fn new(required: &[String]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let sdk = |name: &str| (name.to_owned(), ">=0.9.0,<1.0.0".to_owned());
        Self {
            daemon: "0.9.0".to_owned(),
            compatible_brokers: owned(&["0.7.x", "0.8.x", "0.9.x"]),
            required_broker_features: required.to_vec(),
            compatible_clis: owned(&["0.9.x"]),
            compatible_sdks: ["python", "go", "ts"].map(sdk).into(),
        }
    }
}
