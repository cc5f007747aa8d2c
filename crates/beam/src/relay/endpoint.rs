//! Delivery to the HTTP endpoint of an agent.

use std::time::Duration;

use consign_kernel::intent::Intent;
use http::HeaderName;
use serde_json::json;

use super::{Ingress, RelayError};
use crate::counters::EndpointCallOutcome;
use crate::frame::{IntentFrame, ResultFields, ResultFrame};
use crate::outbound::{CallLimits, OutboundError, OutboundRequest, OutboundResponse};
use crate::service::Beam;
use crate::text::{self, BeamObject, BeamValue};
use crate::timestamp;

/// How long an endpoint may take, if the timeout of the result is not shorter.
const ENDPOINT_TIMEOUT_MAX: Duration = Duration::from_secs(30);

/// What became of a call to an endpoint.
#[derive(Debug)]
pub(super) enum EndpointCall {
    Answered(Box<ResultFrame>),
    Failed,
    /// It was not called, because too many calls are running.
    Busy,
}

impl Beam {
    /// Calls the endpoint of the recipient. If it did not accept the intent, the socket is tried next.
    pub(super) async fn call_endpoint(
        &self,
        endpoint: &str,
        frame: &IntentFrame,
        ingress: &Ingress,
        row: &Intent,
        limit: Duration,
    ) -> Result<EndpointCall, RelayError> {
        let began = self.engine().wall();
        let mut details = json!({"transport": "direct-http", "endpoint": endpoint});
        let called = self.post_intent(endpoint, frame, limit).await;
        let outcome = EndpointCallOutcome::of(&called);
        self.inner.counters.endpoint_called(outcome);
        let is_busy = matches!(called, Err(OutboundError::Busy));
        let failure = match called {
            Ok(response) if response.status.is_success() => {
                self.note_route(row, ingress, details.to_string()).await?;
                self.delivered(row, details.to_string()).await?;
                let latency_ms = (self.engine().wall().0 - began.0).max(0) / 1_000;
                let now = timestamp::format(self.engine().wall());
                let result = result_of(&response.body, frame, &now, latency_ms);
                return Ok(EndpointCall::Answered(Box::new(result)));
            }
            Ok(response) => ("status", json!(response.status.as_u16())),
            Err(error) => ("message", json!(error.to_string())),
        };
        details["outcome"] = json!("fallback");
        details["errorCode"] = json!("DIRECT_HTTP_FAILED");
        details[failure.0] = failure.1;
        self.note_route(row, ingress, details.to_string()).await?;
        Ok(if is_busy {
            EndpointCall::Busy
        } else {
            EndpointCall::Failed
        })
    }

    async fn post_intent(
        &self,
        endpoint: &str,
        frame: &IntentFrame,
        limit: Duration,
    ) -> Result<OutboundResponse, OutboundError> {
        let url = self.inner.outbound.guard().check_text(endpoint)?;
        let body = BeamValue::object([
            ("intent", BeamValue::from(frame.intent())),
            ("from", BeamValue::from(frame.from())),
            ("payload", BeamValue::Object(frame.payload().clone())),
            ("nonce", BeamValue::from(frame.nonce())),
            ("timestamp", BeamValue::from(frame.timestamp())),
        ]);
        let name = HeaderName::from_static;
        let signature = frame.signature().unwrap_or_default();
        let request = OutboundRequest::post_json(body.to_text())
            .header(name("x-beam-sender"), frame.from())?
            .header(name("x-beam-signature"), signature)?
            .header(name("x-beam-nonce"), frame.nonce())?
            .header(name("x-beam-timestamp"), frame.timestamp())?;
        let limits = CallLimits::relay(limit.min(ENDPOINT_TIMEOUT_MAX));
        self.inner.outbound.call(&url, request, limits).await
    }
}

/// The result that the body of an endpoint means.
fn result_of(body: &[u8], frame: &IntentFrame, now: &str, latency_ms: i64) -> ResultFrame {
    let value = text::parse(body).ok();
    let object = value.as_ref().and_then(BeamValue::as_object);
    let is_frame = object.is_some_and(|object| {
        object.get("v").and_then(BeamValue::as_str) == Some("1")
            && object.get("success").and_then(BeamValue::as_bool).is_some()
    });
    let text = |name: &str| object.and_then(|object| object.get(name)?.as_str());
    let success = object.and_then(|object| object.get("success")?.as_bool());
    let payload = match (object, success) {
        (Some(object), Some(_)) => object
            .get("payload")
            .and_then(BeamValue::as_object)
            .cloned(),
        (Some(object), None) => Some(object.clone()),
        (None, _) => Some(BeamObject::new()),
    };
    let stated = object.and_then(|object| object.get("latency")?.as_f64());
    #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
    let stated = stated.map(|stated| stated.round() as i64);
    ResultFrame::new(ResultFields {
        success: success.unwrap_or(true),
        nonce: frame.nonce(),
        timestamp: text("timestamp").filter(|_| is_frame).unwrap_or(now),
        payload,
        error: text("error").filter(|_| success.is_some()),
        error_code: text("errorCode").filter(|_| success.is_some()),
        latency_ms: Some(stated.filter(|_| is_frame).unwrap_or(latency_ms)),
    })
}
