//! Replaces the key of the daemon at the broker.
//!
//! Invariant: a message that waits was encrypted in the name of the current key, and its recipient would look for the new one;
//! so a key is replaced only while no message waits, and requests to send wait until it is replaced.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::RouteAnswer;
use crate::daemon::accept::unavailable;
use crate::daemon::key_archive::cleanup_answer;
use crate::daemon::key_rotation::PendingRotation;
use crate::daemon::line::LineError;
use crate::daemon::shared::{DaemonShared, MemberKeys, wall_ms};
use crate::frame::{ClientFrame, ListPeers};
use crate::ipc::IpcRefusal;

pub(super) async fn rotate(shared: &Arc<DaemonShared>) -> RouteAnswer {
    // To its end, also if the caller disconnects: the broker may have the new key by then.
    let shared = Arc::clone(shared);
    let rotated = tokio::spawn(async move { rotate_now(&shared).await });
    rotated
        .await
        .map_err(|error| IpcRefusal::new(500, format!("internal: {error}")))?
}

async fn rotate_now(shared: &DaemonShared) -> RouteAnswer {
    let line = shared
        .line()
        .ok_or_else(|| IpcRefusal::new(503, "broker_unreachable"))?;
    let mut archive = shared.archive.lock().await;
    let sealing = shared.sealing.write().await;
    // Intents are not encrypted with the key, and may wait for their server for hours.
    let messages_wait = shared.outbox.messages_wait().await;
    if messages_wait.map_err(|error| unavailable(&error))? {
        return Err(IpcRefusal::new(409, "outbox_not_empty"));
    }
    let keys = shared.keys();
    let old_pubkey = keys.identity.key.public_key();
    let grace_days = shared.config().crypto.key_grace_period_days;
    let pending = PendingRotation::begin(
        &keys.identity,
        &mut archive,
        grace_days,
        &shared.log,
        &shared.metrics,
    );
    let pending = pending.map_err(|error| IpcRefusal::new(503, error.to_string()))?;
    let frame = pending.frame(wall_ms().unsigned_abs());
    let new_pubkey = frame.new_pubkey.clone();
    let key_id = frame.key_id.clone();
    let asked = line.ask_after(Some(ClientFrame::from(frame)), ListPeers::default().into());
    let identity = match asked.await {
        Ok(_) => pending.commit(&shared.log),
        Err(LineError::Refused(refusal)) => {
            pending
                .abort(&mut archive)
                .map_err(|error| IpcRefusal::new(503, error.to_string()))?;
            return Err(IpcRefusal::new(409, refusal.code));
        }
        // Both keys are on disk, and the next connection finds out which one the broker knows.
        Err(LineError::Closed | LineError::NoAnswer) => {
            shared.set_keys(MemberKeys::new(pending.unresolved(), &archive));
            line.hang_up();
            return Err(IpcRefusal::new(504, "broker_timeout"));
        }
    };
    let identity = identity.map_err(|error| IpcRefusal::new(503, error.to_string()))?;
    shared.set_keys(MemberKeys::new(identity, &archive));
    // The next hello is signed with the new key, and no message of the new key goes over the connection of the old one.
    line.hang_up();
    drop((archive, sealing));
    super::json(
        200,
        &json!({"old_pubkey": old_pubkey, "new_pubkey": new_pubkey, "key_id": key_id}),
    )
}

pub(super) async fn clean_up(shared: &Arc<DaemonShared>) -> RouteAnswer {
    let mut archive = shared.archive.lock().await;
    let removed = archive.clean_up(Timestamp::now());
    let removed = removed.map_err(|error| IpcRefusal::new(503, error.to_string()))?;
    let identity = shared.keys().identity.clone();
    shared.set_keys(MemberKeys::new(identity, &archive));
    super::json(200, &cleanup_answer(removed, &archive))
}
