//! Sending: direct messages, groups, queues and posts to topics.

use std::sync::Arc;

use super::{LocalRequest, RouteAnswer};
use crate::daemon::ipc_server::LocalCaller;
use crate::daemon::shared::DaemonShared;
use crate::ipc::{IpcRefusal, IpcSend};

pub(super) async fn send(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let key = request.idempotency_key.as_deref();
    let send = IpcSend::parse_send(&request.body, key, &shared.slug)?;
    accept(shared, request, send).await
}

pub(super) async fn post(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let key = request.idempotency_key.as_deref();
    let send = IpcSend::parse_post(&request.body, key, &shared.slug)?;
    accept(shared, request, send).await
}

async fn accept(shared: &Arc<DaemonShared>, request: &LocalRequest, send: IpcSend) -> RouteAnswer {
    let hook = match &request.caller {
        LocalCaller::Hook(token) => Some(token.clone()),
        LocalCaller::User(_) => None,
    };
    // In a task of its own: a caller that disconnects does not stop a commit half-way through its answer.
    let shared = Arc::clone(shared);
    let accepted = tokio::spawn(async move { shared.accept(send, hook.as_deref()).await });
    accepted
        .await
        .map_err(|error| IpcRefusal::new(500, format!("internal: {error}")))?
}
