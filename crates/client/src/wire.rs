//! The server's answers, as plain data.
//!
//! Invariant: unknown fields are ignored, and fields that another server may leave out have a
//! default, so older and newer servers can be read. Payloads and results keep their exact text,
//! because rewriting numbers could change them.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The answer to a publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub id: String,
    pub status: String,
    #[serde(default)]
    pub namespace: String,
}

/// An intent that the caller has claimed.
#[derive(Clone, Serialize, Deserialize)]
pub struct Claimed {
    pub id: String,
    pub goal: String,
    #[serde(default)]
    pub namespace: String,
    /// Required in every later call about this claim.
    pub claim_token: String,
    pub payload: Box<RawValue>,
    #[serde(default)]
    pub claim_attempts: u32,
    #[serde(default)]
    pub priority: i64,
    /// The length of the lease in seconds.
    #[serde(default)]
    pub claim_timeout: u64,
    #[serde(default)]
    pub target_worker: Option<String>,
    #[serde(default)]
    pub required_capability: Option<String>,
    /// The trace context of the publisher, if it sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Omits the token, which is a credential, and the payload, which is the user's data.
impl fmt::Debug for Claimed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Claimed")
            .field("id", &self.id)
            .field("goal", &self.goal)
            .field("namespace", &self.namespace)
            .field("claim_attempts", &self.claim_attempts)
            .finish_non_exhaustive()
    }
}

/// The answer to an extension.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Extended {
    #[serde(default)]
    pub id: String,
    /// Seconds from now, after the server's limits were applied.
    pub extended_by: u64,
}

/// The answer to the report of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailReply {
    /// The error was longer than what the server keeps of it: it has the beginning and the end.
    #[serde(default)]
    pub error_truncated: bool,
}

/// The status of an intent. Times are Unix seconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IntentStatus {
    pub id: String,
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub goal: String,
    pub status: String,
    #[serde(default)]
    pub priority: i64,
    #[serde(default)]
    pub visibility: String,
    #[serde(default)]
    pub claim_attempts: u32,
    #[serde(default)]
    pub run_at: Option<f64>,
    #[serde(default)]
    pub claim_expires_at: Option<f64>,
    #[serde(default)]
    pub target_worker: Option<String>,
    #[serde(default)]
    pub required_capability: Option<String>,
    #[serde(default)]
    pub completed_at: Option<f64>,
    #[serde(default)]
    pub last_error: Option<String>,
    /// The id that the last claimer gave itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// The status of an intent, and its result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IntentResult {
    pub id: String,
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub goal: String,
    pub status: String,
    #[serde(default)]
    pub priority: i64,
    #[serde(default)]
    pub visibility: String,
    #[serde(default)]
    pub claim_attempts: u32,
    #[serde(default)]
    pub run_at: Option<f64>,
    #[serde(default)]
    pub claim_expires_at: Option<f64>,
    #[serde(default)]
    pub target_worker: Option<String>,
    #[serde(default)]
    pub required_capability: Option<String>,
    #[serde(default)]
    pub completed_at: Option<f64>,
    #[serde(default)]
    pub result_type: Option<String>,
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    /// The last failure, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The id that the last claimer gave itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// One page of intents; `cursor` asks for the next one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListPage {
    pub intents: Vec<IntentStatus>,
    #[serde(default)]
    pub cursor: Option<String>,
}

/// All transitions of an intent, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timeline {
    pub id: String,
    pub facts: Vec<TimelineEntry>,
}

/// One transition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TimelineEntry {
    pub seq: u64,
    /// As sent: seconds as a number or a timestamp as text.
    pub at: serde_json::Value,
    pub verb: String,
    #[serde(default)]
    pub from: Option<String>,
    #[serde(default)]
    pub to: Option<String>,
    #[serde(default)]
    pub cause: Option<String>,
    #[serde(default)]
    pub attempt: Option<u32>,
    #[serde(default)]
    pub actor: Option<String>,
    #[serde(default)]
    pub worker: Option<String>,
    #[serde(default)]
    pub detail: serde_json::Value,
}

/// The server's verification of a receipt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReceiptStanding {
    pub valid: bool,
    /// `current`, `reopened`, `superseded` or `unknown`; absent if it is not genuine.
    #[serde(default)]
    pub standing: Option<String>,
    /// The receipt that replaced it.
    #[serde(default)]
    pub superseded_by: Option<String>,
    /// Why it is not valid.
    #[serde(default)]
    pub error: Option<String>,
}

/// A new key; its text is shown only once.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    pub key: crate::SecretKey,
    pub id: String,
    pub owner: String,
    /// The reserved namespaces in which it may claim.
    pub grants: Vec<String>,
}

/// A key as the server lists it, without its text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApiKeyInfo {
    pub id: String,
    #[serde(default)]
    pub owner: String,
    #[serde(default)]
    pub total_requests: u64,
    /// Unix seconds.
    #[serde(default)]
    pub created_at: f64,
    /// The reserved namespaces in which it may claim.
    #[serde(default)]
    pub grants: Vec<String>,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Empty for all that are not reserved.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Requests per minute.
    #[serde(default)]
    pub rate: u64,
    #[serde(default)]
    pub open_max: u64,
    /// Unix seconds, as the times below.
    #[serde(default)]
    pub expires_at: Option<f64>,
    #[serde(default)]
    pub last_used_at: Option<f64>,
    /// How long the secret before the last rotation is still accepted.
    #[serde(default)]
    pub past_secret_until: Option<f64>,
}

/// The settings of a key; what is absent is the server's default, or stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KeyOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_max: Option<u64>,
    /// In seconds; zero for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
}

/// A user of the dashboard and the routes of operators.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UserStatus {
    pub name: String,
    pub role: String,
    /// Unix seconds.
    #[serde(default)]
    pub created_at: f64,
    #[serde(default)]
    pub changed_at: f64,
    /// A password that the server made for this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// What an operator did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditRecord {
    pub id: String,
    /// Unix seconds.
    pub at: f64,
    pub actor: String,
    pub action: String,
    #[serde(default)]
    pub target: String,
    pub outcome: String,
    #[serde(default)]
    pub address: String,
    #[serde(default)]
    pub user_agent: String,
    #[serde(default)]
    pub request_id: String,
}

/// A page of the audit log, from the newest entry to the oldest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditRecords {
    pub entries: Vec<AuditRecord>,
    #[serde(default)]
    pub next: Option<String>,
}

/// The permission of a key to claim in a reserved namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyGrant {
    pub key_id: String,
    pub namespace: String,
    /// Unix seconds.
    #[serde(default)]
    pub granted_at: f64,
}

/// A node of a ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub id: i64,
    pub name: String,
    #[serde(default)]
    pub address: String,
    #[serde(default)]
    pub version: String,
    /// Unix seconds.
    #[serde(default)]
    pub started_at: f64,
    #[serde(default)]
    pub seen_at: f64,
    pub state: String,
    #[serde(default)]
    pub leases: u64,
    /// Whether this node answered.
    #[serde(default)]
    pub here: bool,
}

/// Code and message of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    pub code: String,
    #[serde(default)]
    pub message: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: ErrorDetail,
}

/// The error format of the transaction protocol.
#[derive(Debug, Deserialize)]
pub(crate) struct FlatErrorBody {
    pub(crate) error: String,
    pub(crate) message: String,
}

/// Beam's error format.
#[derive(Debug, Deserialize)]
pub(crate) struct BeamErrorBody {
    pub(crate) error: String,
    #[serde(rename = "errorCode")]
    pub(crate) code: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ItemList<T> {
    pub(crate) intents: Vec<T>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_keeps_its_payload_as_written_and_hides_its_token() {
        let claimed: Claimed = serde_json::from_str(
            r#"{"id":"a","claim_token":"secret-token","goal":"g","payload":{"n": 1.50, "big":9007199254740993},"more":1}"#,
        )
        .unwrap();
        assert_eq!(
            claimed.payload.get(),
            r#"{"n": 1.50, "big":9007199254740993}"#
        );
        assert!(!format!("{claimed:?}").contains("secret-token"));
    }

    #[test]
    fn a_result_without_a_result_is_read() {
        let result: IntentResult =
            serde_json::from_str(r#"{"id":"a","status":"open","result":null,"result_type":null}"#)
                .unwrap();
        assert!(result.result.is_none());
    }
}
