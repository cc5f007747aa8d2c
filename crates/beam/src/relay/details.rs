//! The details of the facts of an intent: which transport did what.

use consign_kernel::plant::{self, Plant};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Ingress;
use super::check::Checked;
use crate::frame::IntentFrame;

/// The member with the timestamp of a repeated frame.
const SENT_AT: &str = "timestamp";

pub(super) fn received(ingress: &Ingress) -> String {
    with_ingress(ingress, json!({"transport": ingress.transport()}))
}

pub(super) fn validated(ingress: &Ingress, checked: &Checked) -> String {
    let mut details = json!({"transport": ingress.transport()});
    match ingress {
        Ingress::Socket {
            beam_id,
            api_key_hash,
        } => {
            details["actingOnBehalf"] = json!(*beam_id != checked.from);
            details["authenticatedViaApiKey"] = json!(api_key_hash.is_some());
        }
        Ingress::Http | Ingress::Federation { .. } => {
            let source = if checked.is_local_sender {
                "local"
            } else {
                "federated"
            };
            details["senderSource"] = json!(source);
        }
    }
    with_ingress(ingress, details)
}

pub(super) fn dispatched(ingress: &Ingress) -> String {
    let transport = ingress.transport();
    json!({"deliveryTarget": "local-or-federated", "transport": transport}).to_string()
}

/// Handed to a socket, or accepted by it.
pub(super) fn by_socket(timeout_ms: u64) -> String {
    json!({"transport": "ws", "timeoutMs": timeout_ms}).to_string()
}

/// A repeated nonce begins anew. The row keeps the frame with which it began, so the step tells what the new one differs in.
pub(super) fn restarted(previous: &str, code: Option<&str>, frame: &IntentFrame) -> String {
    let payload = Sha256::digest(frame.payload_value().to_text());
    json!({
        "retry": true,
        "previousStatus": previous,
        "previousErrorCode": code,
        (SENT_AT): frame.timestamp(),
        "payloadSha256": HEXLOWER.encode(&payload),
    })
    .to_string()
}

/// When the sender repeated the intent, if these are the details of that.
pub(crate) fn repeated_at(details: &Value) -> Option<&str> {
    details.get(SENT_AT)?.as_str()
}

pub(super) fn failed(transport: &str, code: &str) -> Value {
    json!({"transport": transport, "errorCode": code})
}

/// The recipient answered.
pub(super) fn ended(transport: &str, latency_ms: i64, code: Option<&str>) -> Value {
    json!({"transport": transport, "latencyMs": latency_ms, "errorCode": code})
}

fn with_ingress(ingress: &Ingress, mut details: Value) -> String {
    match ingress {
        Ingress::Http => {
            details["sourceDirectory"] = Value::Null;
            details["hopCount"] = json!(0);
        }
        Ingress::Federation { source, hops } => {
            details["sourceDirectory"] = json!(source);
            details["hopCount"] = json!(hops);
        }
        Ingress::Socket { beam_id, .. } => details["connectedBeamId"] = json!(beam_id),
    }
    details.to_string()
}

/// The message to a recipient.
pub(super) fn socket_message(frame: &IntentFrame, checked: &Checked) -> String {
    let mut message = String::with_capacity(256);
    message.push_str(r#"{"type":"intent","frame":"#);
    let relayed = if plant::on(Plant::UnknownFieldsDropped) {
        frame.without_unknown_fields().to_value()
    } else {
        frame.to_value()
    };
    message.push_str(&relayed.to_text());
    message.push_str(r#","senderPublicKey":"#);
    message.push_str(&json!(checked.sender_key).to_string());
    if let Some(acting) = &checked.acting {
        message.push_str(r#","actingBeamId":"#);
        message.push_str(&json!(acting).to_string());
    }
    message.push('}');
    message
}

/// The recipient is connected to another node, which claims the intent.
pub(super) fn handed_over() -> String {
    json!({"deliveryTarget": "node", "transport": "ledger"}).to_string()
}
