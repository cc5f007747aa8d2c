//! Publishing an intent through the outbox.

use std::sync::Arc;

use super::{LocalRequest, RouteAnswer};
use crate::daemon::shared::DaemonShared;
use crate::ipc::{IpcPublish, IpcRefusal};

pub(super) async fn publish(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let key = request.idempotency_key.as_deref();
    let publish = IpcPublish::parse(&request.body, key, &shared.slug)?;
    // In a task of its own: a caller that disconnects does not stop a commit half-way through its answer.
    let shared = Arc::clone(shared);
    let accepted = tokio::spawn(async move { shared.accept_intent(publish).await });
    accepted
        .await
        .map_err(|error| IpcRefusal::new(500, format!("internal: {error}")))?
}
