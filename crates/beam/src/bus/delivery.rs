//! One delivery: the directory of this server or another one is asked to relay the message.
//!
//! The directory of this server is called without HTTP, and its answer is judged as if it had come over HTTP.

use std::time::Duration;

use consign_kernel::intent::Intent;
use consign_kernel::plant::{self, Plant};
use consign_web::error_status;
use http::StatusCode;

use super::ATTEMPT_TIMEOUT_S;
use super::message::MessageContent;
use crate::counters::RelayPath;
use crate::frame::{IntentFields, IntentFrame};
use crate::outbound::{CallLimits, OutboundError, OutboundRequest, OutboundResponse, TargetUrl};
use crate::relay::{Ingress, RelayError};
use crate::retryable;
use crate::service::Beam;
use crate::signed_text::BeamSignedText;
use crate::text::{self, BeamValue};
use crate::timestamp;

const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(ATTEMPT_TIMEOUT_S);
/// The directory's code for a recipient that it cannot reach.
const OFFLINE: &str = "OFFLINE";
/// Longer texts of another directory are cut.
const ERROR_CHARS_MAX: usize = 1_000;

/// Why the directory did not accept a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct DeliveryFailure {
    pub text: String,
    /// The directory's code, if it gave one.
    pub code: Option<String>,
    /// Another attempt may succeed.
    pub is_retryable: bool,
    /// The directory found no way to the recipient, so nothing was sent to it.
    pub is_unreached: bool,
}

impl DeliveryFailure {
    fn new(status: Option<StatusCode>, code: Option<&str>, text: &str) -> Self {
        let status = status.map(|status| status.as_u16());
        Self {
            text: text.chars().take(ERROR_CHARS_MAX).collect(),
            code: code.map(|code| code.chars().take(ERROR_CHARS_MAX).collect()),
            is_retryable: retryable::bus_retries(status, code),
            is_unreached: code == Some(OFFLINE) && status == Some(503),
        }
    }

    pub(super) fn timeout() -> Self {
        let text = format!("Delivery timeout ({ATTEMPT_TIMEOUT_S}s)");
        Self::new(None, Some("TIMEOUT"), &text)
    }

    fn connection(error: &str) -> Self {
        let text = format!("Connection error: {error}");
        Self::new(None, Some("DELIVERY_FAILED"), &text)
    }

    /// The directory relayed it, and the recipient reported a failure.
    fn of_result(result: &BeamValue) -> Self {
        let code = result.get("errorCode").and_then(BeamValue::as_str);
        let error = result.get("error").and_then(BeamValue::as_str);
        let text = error.or(code).unwrap_or("Unknown directory error");
        Self::new(Some(StatusCode::OK), code, text)
    }
}

impl From<&RelayError> for DeliveryFailure {
    fn from(error: &RelayError) -> Self {
        let code = error.code();
        let word = code.name().to_ascii_uppercase();
        let status = error_status::of(code);
        Self::new(Some(status), Some(&word), &error.to_string())
    }
}

impl Beam {
    /// Delivers the message once.
    pub(super) async fn deliver_message(
        &self,
        row: &Intent,
        content: &MessageContent,
    ) -> Result<(), DeliveryFailure> {
        let frame = self.message_frame(row, content);
        if let Some(directory) = &self.settings().bus.remote_directory {
            return self.deliver_by_http(directory, &frame).await;
        }
        let relay = self.relay_from(RelayPath::Bus, frame, Ingress::Http, None);
        match tokio::time::timeout(ATTEMPT_TIMEOUT, relay).await {
            Ok(Ok(result)) => judge_result(result.as_bytes()),
            Ok(Err(error)) => Err((&error).into()),
            // The relay continues; the next attempt finds its result.
            Err(_) => Err(DeliveryFailure::timeout()),
        }
    }

    /// The frame of one attempt: a new time and signature, and the nonce of the message.
    fn message_frame(&self, row: &Intent, content: &MessageContent) -> IntentFrame {
        let sender = row.ties.sender.as_deref().unwrap_or_default();
        let now = if plant::on(Plant::StaleRetry) {
            row.created_at
        } else {
            self.engine().wall()
        };
        let mut frame = IntentFrame::new(IntentFields {
            from: sender.to_owned(),
            to: row.owner.clone(),
            intent: row.goal.clone(),
            payload: content.payload.clone(),
            nonce: content.nonce.clone(),
            timestamp: timestamp::format(now),
        });
        if let Some(key) = self.inner.bus.identities.get(sender) {
            let signature = BeamSignedText::intent(&frame).sign(key);
            frame.set_signature(signature);
        }
        frame
    }

    async fn deliver_by_http(
        &self,
        directory: &str,
        frame: &IntentFrame,
    ) -> Result<(), DeliveryFailure> {
        let url = format!("{}/intents/send", directory.trim_end_matches('/'));
        let url = TargetUrl::parse(&url)
            .map_err(|error| DeliveryFailure::connection(&error.to_string()))?;
        let request = OutboundRequest::post_json(frame.to_value().to_text());
        let limits = CallLimits::relay(ATTEMPT_TIMEOUT);
        let outbound = &self.inner.outbound;
        match outbound.call_configured(&url, request, limits).await {
            Ok(response) => judge_response(&response),
            Err(OutboundError::Timeout { .. }) => Err(DeliveryFailure::timeout()),
            Err(error) => Err(DeliveryFailure::connection(&error.to_string())),
        }
    }
}

fn judge_response(response: &OutboundResponse) -> Result<(), DeliveryFailure> {
    if response.status.is_success() {
        return judge_result(&response.body);
    }
    let body = text::parse(&response.body).ok();
    let member = |name: &str| body.as_ref().and_then(|body| body.get(name)?.as_str());
    let status = response.status;
    let text = if let Some(error) = member("error") {
        error.to_owned()
    } else {
        let body = String::from_utf8_lossy(&response.body);
        format!("HTTP {}: {body}", status.as_u16())
    };
    Err(DeliveryFailure::new(
        Some(status),
        member("errorCode"),
        &text,
    ))
}

fn judge_result(result: &[u8]) -> Result<(), DeliveryFailure> {
    let result =
        text::parse(result).map_err(|error| DeliveryFailure::connection(&error.to_string()))?;
    match result.get("success").and_then(BeamValue::as_bool) {
        Some(true) => Ok(()),
        _ => Err(DeliveryFailure::of_result(&result)),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn judged(status: u16, body: &str) -> Result<(), (String, Option<String>, bool)> {
        let response = OutboundResponse {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        };
        judge_response(&response)
            .map_err(|failure| (failure.text, failure.code, failure.is_retryable))
    }

    #[test]
    fn only_a_directory_without_a_way_to_the_recipient_has_not_reached_it() {
        assert!(DeliveryFailure::from(&RelayError::Offline).is_unreached);
        assert!(!DeliveryFailure::from(&RelayError::Timeout { ms: 5 }).is_unreached);
        assert!(!DeliveryFailure::timeout().is_unreached);
        // The recipient was reached, whatever it calls its failure.
        let result = text::parse(br#"{"success":false,"errorCode":"OFFLINE"}"#).unwrap();
        assert!(!DeliveryFailure::of_result(&result).is_unreached);
    }

    fn failure(text: &str, code: &str, is_retryable: bool) -> (String, Option<String>, bool) {
        let code = (!code.is_empty()).then(|| code.to_owned());
        (text.to_owned(), code, is_retryable)
    }

    #[test]
    fn be_034_be_046_a_response_of_the_directory_is_judged_by_status_and_body() {
        assert_eq!(judged(200, r#"{"success":true}"#), Ok(()));
        for (status, body, expected) in [
            (
                200,
                r#"{"success":false,"error":"none left","errorCode":"OUT_OF_STOCK"}"#,
                failure("none left", "OUT_OF_STOCK", true),
            ),
            (
                200,
                r#"{"success":false,"errorCode":"FORBIDDEN"}"#,
                failure("FORBIDDEN", "FORBIDDEN", false),
            ),
            (
                200,
                r#"{"success":"true"}"#,
                failure("Unknown directory error", "", true),
            ),
            (
                503,
                r#"{"error":"agent_offline","errorCode":"OFFLINE"}"#,
                failure("agent_offline", "OFFLINE", true),
            ),
            (502, "gone", failure("HTTP 502: gone", "", true)),
            (404, "", failure("HTTP 404: ", "", false)),
            (302, "", failure("HTTP 302: ", "", true)),
            (429, "slow", failure("HTTP 429: slow", "", true)),
        ] {
            assert_eq!(judged(status, body), Err(expected), "{status} {body}");
        }
        let (text, code, is_retryable) = judged(200, "<html>").unwrap_err();
        assert!(text.starts_with("Connection error: "), "{text}");
        assert_eq!(code.as_deref(), Some("DELIVERY_FAILED"));
        assert!(is_retryable);
    }

    #[test]
    fn an_error_of_the_relay_is_judged_as_over_http() {
        for (error, code, is_retryable) in [
            (RelayError::Offline, "OFFLINE", true),
            (RelayError::Timeout { ms: 5 }, "TIMEOUT", true),
            (RelayError::InProgress("n".to_owned()), "IN_PROGRESS", true),
            (
                RelayError::RateLimited("a".to_owned()),
                "RATE_LIMITED",
                true,
            ),
            (
                RelayError::DeliveryFailed("d".to_owned()),
                "DELIVERY_FAILED",
                true,
            ),
            (RelayError::Forbidden("f".to_owned()), "FORBIDDEN", false),
            (
                RelayError::BadRequest("b".to_owned()),
                "INVALID_INTENT",
                false,
            ),
        ] {
            let failure = DeliveryFailure::from(&error);
            assert_eq!(failure.text, error.to_string());
            assert_eq!(failure.code.as_deref(), Some(code));
            assert_eq!(failure.is_retryable, is_retryable, "{code}");
        }
    }
}
