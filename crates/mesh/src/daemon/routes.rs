//! The routes of the local interface.
//!
//! Invariant: every answer but an event stream is JSON or, for metrics, text; every refusal has `error`.

mod events;
mod files;
mod inbox;
mod key_change;
mod messages;
mod operator;
mod outbox;
mod peers;
mod shared_state;
mod status;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;

use super::ipc_server::{LocalCaller, is_stream};
use super::shared::DaemonShared;
use crate::ipc::{IpcAnswer, IpcRefusal, path};
use crate::role::DaemonCapability;

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
    if is_stream(request.uri().path()) && request.method() == http::Method::GET {
        return match check_caller(&shared, &caller) {
            Ok(()) => events::follow(&shared, config.ipc.max_sse).await,
            Err(refusal) => refused(&refusal),
        };
    }
    let Some(_place) = shared.requests.take(config.ipc.max_inflight) else {
        return refused(&IpcRefusal::daemon_busy());
    };
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let request = match read(request, caller, config.ipc.max_body_bytes).await {
        Ok(request) => request,
        Err(refusal) => return refused(&refusal),
    };
    if method == http::Method::GET && path == path::METRICS {
        return match check_caller(&shared, &request.caller) {
            Ok(()) => status::metrics(&shared).await,
            Err(refusal) => refused(&refusal),
        };
    }
    match answer(&shared, method.as_str(), &path, &request).await {
        Ok(answer) => answered(answer),
        Err(refusal) => refused(&refusal),
    }
}

async fn answer(
    shared: &Arc<DaemonShared>,
    method: &str,
    path: &str,
    request: &LocalRequest,
) -> RouteAnswer {
    let is_send = matches!((method, path), ("POST", path::SEND | path::TOPIC_POST));
    if !is_send {
        check_caller(shared, &request.caller)?;
    }
    match (method, path) {
        ("POST", path::SEND) => messages::send(shared, request).await,
        ("POST", path::TOPIC_POST) => messages::post(shared, request).await,
        ("POST", path::TOPIC_SUBSCRIBE) => peers::subscribe(shared, request, true).await,
        ("POST", path::TOPIC_UNSUBSCRIBE) => peers::subscribe(shared, request, false).await,
        ("GET", path::TOPIC_LIST) => peers::topics(shared).await,
        ("GET", path::PEERS) => peers::peers(shared, request).await,
        ("POST", path::PROFILE) => peers::profile(shared, request).await,
        ("GET", path::INBOX) => inbox::list(shared, request).await,
        ("POST", path::FILE_SHARE) => files::share(shared, request).await,
        ("GET", path::FILE_GET) => files::get(shared, request).await,
        ("GET", path::FILE_LIST) => files::list(shared).await,
        ("GET", path::STATE) if shares_state(shared) => shared_state::get(shared, request).await,
        ("POST", path::STATE) if shares_state(shared) => shared_state::set(shared, request).await,
        ("GET", path::OUTBOX) => outbox::list(shared, request).await,
        ("POST", path::OUTBOX_REQUEUE) => outbox::requeue(shared, request).await,
        ("POST", path::OUTBOX_DROP) => outbox::drop_row(shared, request).await,
        ("POST", path::OUTBOX_PRUNE) => outbox::prune(shared, request).await,
        ("GET", path::HEALTH) => status::health(shared).await,
        ("GET", path::VERSION) => status::version(shared),
        ("GET", path::COMPAT) => status::compat(shared),
        ("POST", path::HEARTBEAT) => json(200, &serde_json::json!({"ok": true})),
        ("POST", path::TOKEN_ROTATE) => operator::rotate_token(shared),
        ("POST", path::KEYPAIR_ROTATE) => key_change::rotate(shared).await,
        ("POST", path::ARCHIVE_CLEANUP) => key_change::clean_up(shared).await,
        ("POST", path::RELOAD) => operator::reload(shared),
        ("POST", path::SHUTDOWN) => operator::shut_down(shared, &request.caller),
        _ => Err(unknown(shared, path)),
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
    let body = Limited::new(body, bytes_max).collect().await;
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
