//! The routes of the local interface.
//!
//! Invariant: every answer but an event stream is JSON or, for metrics, text; every refusal has `error`.

mod events;
mod files;
mod inbox;
mod intents;
mod key_change;
mod messages;
mod operator;
mod outbox;
mod peers;
mod shared_state;
mod status;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use tokio::time::timeout;

use super::ipc_server::LocalCaller;
use super::shared::DaemonShared;
use crate::ipc::{IpcAnswer, IpcRefusal, IpcRoute};
use crate::role::DaemonCapability;

/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The answer of a route: a status with a JSON text.
pub(super) type RouteAnswer = Result<IpcAnswer, IpcRefusal>;

/// A request that was admitted, with its body.
pub(super) struct LocalRequest {
    pub(super) caller: LocalCaller,
    pub(super) query: String,
    pub(super) idempotency_key: Option<String>,
    pub(super) body: Bytes,
}

pub(super) async fn route(
    shared: Arc<DaemonShared>,
    caller: LocalCaller,
    request: Request<Body>,
) -> Response {
    let config = shared.config();
    let path = request.uri().path().to_owned();
    let route = IpcRoute::find(request.method().as_str(), &path);
    if route == Some(IpcRoute::Events) {
        return match check_caller(&shared, &caller) {
            Ok(()) => events::follow(&shared, config.ipc.max_sse).await,
            Err(refusal) => refused(&refusal),
        };
    }
    // Stopped clients may hold all places; then an operator still sees the daemon and ends it.
    let needs_place = !matches!(route, Some(IpcRoute::Health | IpcRoute::Shutdown));
    let place = shared.requests.take(config.ipc.max_inflight);
    if needs_place && place.is_none() {
        return refused(&IpcRefusal::daemon_busy());
    }
    let request = match read(request, caller, config.ipc.max_body_bytes).await {
        Ok(request) => request,
        Err(refusal) => return refused(&refusal),
    };
    if route == Some(IpcRoute::Metrics) {
        return match check_caller(&shared, &request.caller) {
            Ok(()) => status::metrics(&shared).await,
            Err(refusal) => refused(&refusal),
        };
    }
    match answer(&shared, route, &path, &request).await {
        Ok(answer) => answered(answer),
        Err(refusal) => refused(&refusal),
    }
}

async fn answer(
    shared: &Arc<DaemonShared>,
    route: Option<IpcRoute>,
    path: &str,
    request: &LocalRequest,
) -> RouteAnswer {
    if !route.is_some_and(IpcRoute::sends) {
        check_caller(shared, &request.caller)?;
    }
    let Some(route) = route else {
        return Err(unknown(shared, path));
    };
    match route {
        IpcRoute::Send => messages::send(shared, request).await,
        IpcRoute::TopicPost => messages::post(shared, request).await,
        IpcRoute::TopicSubscribe => peers::subscribe(shared, request, true).await,
        IpcRoute::TopicUnsubscribe => peers::subscribe(shared, request, false).await,
        IpcRoute::TopicList => peers::topics(shared).await,
        IpcRoute::Peers => peers::peers(shared, request).await,
        IpcRoute::Profile => peers::profile(shared, request).await,
        IpcRoute::Inbox => inbox::list(shared, request).await,
        IpcRoute::FileShare => files::share(shared, request).await,
        IpcRoute::FileGet => files::get(shared, request).await,
        IpcRoute::FileList => files::list(shared, request).await,
        IpcRoute::StateGet if shares_state(shared) => shared_state::get(shared, request).await,
        IpcRoute::StateSet if shares_state(shared) => shared_state::set(shared, request).await,
        IpcRoute::Intents => intents::publish(shared, request).await,
        IpcRoute::Outbox => outbox::list(shared, request).await,
        IpcRoute::OutboxRequeue => outbox::requeue(shared, request).await,
        IpcRoute::OutboxDrop => outbox::drop_row(shared, request).await,
        IpcRoute::OutboxPrune => outbox::prune(shared, request).await,
        IpcRoute::Health => status::health(shared).await,
        IpcRoute::Version => status::version(shared),
        IpcRoute::Compat => status::compat(shared),
        IpcRoute::Heartbeat => json(200, &serde_json::json!({"ok": true})),
        IpcRoute::TokenRotate => operator::rotate_token(shared),
        IpcRoute::KeypairRotate => key_change::rotate(shared).await,
        IpcRoute::ArchiveCleanup => key_change::clean_up(shared).await,
        IpcRoute::Reload => operator::reload(shared),
        IpcRoute::Shutdown => operator::shut_down(shared, &request.caller),
        // The state is off, or the answer is no JSON and was given above.
        IpcRoute::StateGet | IpcRoute::StateSet | IpcRoute::Events | IpcRoute::Metrics => {
            Err(unknown(shared, path))
        }
    }
}

/// No token of a hook covers a request that sends nothing.
fn check_caller(shared: &DaemonShared, caller: &LocalCaller) -> Result<(), IpcRefusal> {
    match caller {
        LocalCaller::User(_) => Ok(()),
        LocalCaller::Hook(token) => shared.hooks.authorize(token, None),
    }
}

fn shares_state(shared: &DaemonShared) -> bool {
    shared.config().capabilities.has(DaemonCapability::State)
}

/// Parts of the interface that are off say so.
fn unknown(shared: &DaemonShared, path: &str) -> IpcRefusal {
    let part = path.strip_prefix("/v1/").unwrap_or_default();
    let first = part.split('/').next().unwrap_or_default();
    let capability = match (first, part) {
        ("inbox", "inbox/search") => Some(DaemonCapability::InboxFts),
        ("state", _) => Some(DaemonCapability::State),
        ("memory", _) => Some(DaemonCapability::Memory),
        ("vector", _) => Some(DaemonCapability::Vector),
        ("graph", _) => Some(DaemonCapability::Graph),
        ("tasks" | "task", _) => Some(DaemonCapability::Tasks),
        ("scheduling" | "schedule", _) => Some(DaemonCapability::Scheduling),
        ("mcp_host" | "mcp", _) => Some(DaemonCapability::McpHost),
        ("skill_share" | "skill" | "skills", _) => Some(DaemonCapability::SkillShare),
        _ => None,
    };
    match capability {
        Some(capability) if !shared.config().capabilities.has(capability) => {
            IpcRefusal::capability_disabled(capability.as_str())
        }
        _ => IpcRefusal::not_found(),
    }
}

async fn read(
    request: Request<Body>,
    caller: LocalCaller,
    bytes_max: usize,
) -> Result<LocalRequest, IpcRefusal> {
    let (head, body) = request.into_parts();
    let text = |name: &str| {
        let value = head.headers.get(name)?;
        // What is not ASCII is refused where ids are checked.
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let idempotency_key = text("idempotency-key");
    let body = Limited::new(body, bytes_max).collect();
    let body = timeout(BODY_TIMEOUT, body)
        .await
        .map_err(|_| IpcRefusal::new(408, "request_timeout"))?;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            IpcRefusal::payload_too_large()
        } else {
            IpcRefusal::bad_request("incomplete body")
        }
    })?;
    Ok(LocalRequest {
        caller,
        query: head.uri.query().unwrap_or_default().to_owned(),
        idempotency_key,
        body: body.to_bytes(),
    })
}

/// An answer with this body.
pub(super) fn json(status: u16, body: &impl Serialize) -> RouteAnswer {
    let body = serde_json::to_string(body)
        .map_err(|error| IpcRefusal::new(500, format!("internal: {error}")))?;
    Ok(IpcAnswer { status, body })
}

fn answered(answer: IpcAnswer) -> Response {
    respond(answer.status, "application/json", answer.body)
}

pub(super) fn refused(refusal: &IpcRefusal) -> Response {
    respond(refusal.status, "application/json", refusal.to_body())
}

fn respond(status: u16, content_type: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_is_given_up() {
        let bytes = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let request = Request::new(Body::from_stream(bytes));
        let caller = LocalCaller::Hook("h".to_owned());
        let began = tokio::time::Instant::now();
        let refused = read(request, caller, 10).await.err();
        assert_eq!(refused, Some(IpcRefusal::new(408, "request_timeout")));
        assert_eq!(began.elapsed().as_secs(), BODY_TIMEOUT.as_secs());
    }
}
