//! Webhooks: a signed delivery creates an event for a plugin or publishes an intent.
//!
//! Invariant: nothing is queued unless the signature over the received bytes matches the endpoint's secret, and a caller without
//! one learns nothing. Size and time of a body are bounded. Bodies are not logged.

use std::time::Duration;

use crate::config::model::{EndpointTarget, IntentTemplate, WebhookEndpoint};
use crate::nesting::is_too_deep;
use crate::runtime::{PublishError, Runtime, SubmittedBy, TriggerError, job_id};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Router};
use consign_engine::Error;
use consign_kernel::error::{Code, Refusal};
use consign_kernel::plant::{self, Plant};
use data_encoding::HEXLOWER_PERMISSIVE;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Map, Value, json};
use sha2::Sha256;

use super::about::local_health;
use super::api_error::{ApiError, answer, ok};
use super::{ApiState, Options};
use consign_web::body::{self, ReceivedBody};
use consign_web::body_budget::BodySender;
use consign_web::server::Peer;
use consign_web::throttle::{STRONG_CHARS_MIN, Throttled};

const DEADLINE: Duration = Duration::from_secs(10);
const EVENT_TYPE: &str = "webhook";

/// Endpoints come from the current configuration, so a reload needs no new router.
pub fn router(runtime: Runtime, options: Options) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .method_not_allowed_fallback(|| async { ApiError::wrong_method() })
        .fallback(receive)
        .with_state(ApiState::new(runtime, options))
}

async fn health(
    State(state): State<ApiState>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let health = local_health(&state, peer, &headers).await?;
    Ok(ok(&Value::Object(health)))
}

async fn receive(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let program = state.runtime.program();
    let endpoints = program.config().webhooks.iter();
    let mut endpoints = endpoints.flat_map(|webhooks| &webhooks.endpoints);
    let Some(endpoint) = endpoints.find(|endpoint| endpoint.path == parts.uri.path()) else {
        return Err(ApiError::not_found("not found"));
    };
    if parts.method != Method::POST {
        let mut response = ApiError::wrong_method().into_response();
        let allowed = HeaderValue::from_static("POST");
        response.headers_mut().insert(header::ALLOW, allowed);
        return Ok(response);
    }
    // A request without the signature header is refused before its body is read.
    if !parts.headers.contains_key(&endpoint.signature_header) && !plant::on(Plant::UnsignedWebhook)
    {
        return Err(ApiError::new(Code::InvalidSignature, "forbidden"));
    }
    let body = read(body, endpoint, body::sender(&parts.extensions)).await?;
    if !is_signed(&parts.headers, endpoint, &body) {
        return Err(ApiError::new(Code::InvalidSignature, "forbidden").of_wrong_credential());
    }
    // With a weak secret, a throttled address must not learn that a guess was right.
    let is_weak = endpoint.secret.expose().len() < STRONG_CHARS_MIN;
    if is_weak && parts.extensions.get::<Throttled>().is_some() {
        return Err(ApiError::too_many_failures());
    }
    let accepted = match &endpoint.target {
        EndpointTarget::Plugin(plugin) => {
            let (kind, payload) = event(&body);
            let by = SubmittedBy::Webhook;
            let queued = state
                .runtime
                .run_plugin(plugin, "handle", payload, &kind, by);
            let queued = queued.await.map_err(|error| refused(error, endpoint))?;
            json!({"job_id": job_id(queued.id)})
        }
        EndpointTarget::Publish(publication) => {
            let delivery = delivery(&parts.headers, publication)?;
            publish(&state, endpoint, publication, &body, delivery).await?
        }
    };
    Ok(answer(StatusCode::ACCEPTED, &accepted))
}

/// The sender's id of this delivery, if given.
fn delivery<'h>(
    headers: &'h HeaderMap,
    publication: &IntentTemplate,
) -> Result<Option<&'h str>, ApiError> {
    let name = &publication.delivery_header;
    let mut given = headers.get_all(name).iter();
    match (given.next(), given.next()) {
        (None, _) => Ok(None),
        (Some(given), None) => match given.to_str() {
            Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            Err(_) => Err(ApiError::bad(format!("{name} must be visible ASCII"))),
        },
        (Some(_), Some(_)) => Err(ApiError::bad(format!("{name} must be given once"))),
    }
}

/// Only the configuration sets the goal; the body is payload.
async fn publish(
    state: &ApiState,
    endpoint: &WebhookEndpoint,
    publication: &IntentTemplate,
    body: &[u8],
    delivery: Option<&str>,
) -> Result<Value, ApiError> {
    let parsed = serde_json::from_slice::<Value>(body);
    let payload = parsed.unwrap_or_else(|_| json!({"body": String::from_utf8_lossy(body)}));
    let published = state
        .runtime
        .publish(&endpoint.path, publication, &payload, delivery);
    match published.await {
        Ok(published) => {
            Ok(json!({"intent_id": published.id.to_string(), "duplicate": published.duplicate}))
        }
        Err(PublishError::TooLarge(error)) => Err(ApiError::new(Code::PayloadTooLarge, error)),
        Err(PublishError::Engine(Error::Refused(Refusal::OnceConflict { .. }))) => {
            let error = "this delivery was received before, with another body";
            Err(ApiError::new(Code::DeliveryConflict, error))
        }
        Err(PublishError::Engine(error)) => Err(error.into()),
    }
}

async fn read(
    body: Body,
    endpoint: &WebhookEndpoint,
    sender: BodySender,
) -> Result<ReceivedBody, ApiError> {
    let max = usize::try_from(endpoint.max_body_bytes).unwrap_or(usize::MAX);
    Ok(body::receive(body, max, DEADLINE, sender).await?)
}

/// Two headers are ambiguous, so neither counts.
fn is_signed(headers: &HeaderMap, endpoint: &WebhookEndpoint, body: &[u8]) -> bool {
    let mut given = headers.get_all(&endpoint.signature_header).iter();
    let (Some(given), None) = (given.next(), given.next()) else {
        return plant::on(Plant::UnsignedWebhook);
    };
    let given = given.as_bytes();
    let given = given.strip_prefix(b"sha256=").unwrap_or(given);
    let Ok(given) = HEXLOWER_PERMISSIVE.decode(given) else {
        return false;
    };
    let secret = endpoint.secret.expose();
    if secret.is_empty() {
        return false;
    }
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes());
    let mut mac = mac.expect("HMAC takes a key of any length");
    mac.update(if plant::on(Plant::TrimmedSignature) {
        body.trim_ascii()
    } else {
        body
    });
    // Constant time.
    mac.verify_slice(&given).is_ok()
}

/// The type and payload of the event that a body describes.
fn event(body: &[u8]) -> (String, Value) {
    let wrapped = |body: Value| (EVENT_TYPE.to_owned(), json!({"body": body}));
    let parsed = serde_json::from_slice::<Value>(body).ok();
    let Some(parsed) = parsed.filter(|parsed| !is_too_deep(parsed)) else {
        return wrapped(String::from_utf8_lossy(body).into());
    };
    let Value::Object(mut object) = parsed else {
        return wrapped(parsed);
    };
    let kind = object.get("type").and_then(Value::as_str);
    let kind = kind.filter(|kind| !kind.trim().is_empty());
    let kind = kind.unwrap_or(EVENT_TYPE).to_owned();
    let payload = match object.get_mut("payload") {
        Some(Value::Object(inner)) => std::mem::take(inner),
        _ => std::mem::take::<Map<String, Value>>(&mut object),
    };
    (kind, Value::Object(payload))
}

/// The sender cannot fix the configuration, so the details go to the log.
fn refused(error: TriggerError, endpoint: &WebhookEndpoint) -> ApiError {
    match error {
        TriggerError::Engine(error) => error.into(),
        TriggerError::Missing(_) | TriggerError::Routing(_) => {
            tracing::error!(component = "webhooks", path = endpoint.path, %error, "the target of a webhook does not exist");
            let error = "this webhook is not available at the moment";
            ApiError::new(Code::WebhookUnavailable, error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_becomes_an_event_whatever_it_is_du_109() {
        let (webhook, named) = ("webhook", "order.paid");
        for (body, kind, payload) in [
            (r#"{"a":1}"#, webhook, json!({"a": 1})),
            (
                r#"{"type":"order.paid","payload":{"a":1}}"#,
                named,
                json!({"a": 1}),
            ),
            (r#"{"payload":{"a":1}}"#, webhook, json!({"a": 1})),
            (
                r#"{"type":"order.paid","a":1}"#,
                named,
                json!({"type": "order.paid", "a": 1}),
            ),
            (
                r#"{"payload":[1],"type":7}"#,
                webhook,
                json!({"payload": [1], "type": 7}),
            ),
            ("[1,2]", webhook, json!({"body": [1, 2]})),
            ("plain text", webhook, json!({"body": "plain text"})),
            ("", webhook, json!({"body": ""})),
        ] {
            assert_eq!(event(body.as_bytes()), (kind.to_owned(), payload), "{body}");
        }
    }
}
