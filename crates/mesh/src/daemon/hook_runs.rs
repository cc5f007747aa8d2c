//! What follows from the runs of hooks: the event that reports each, and the replies that some may post.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::hooks::{HookKind, HookReply, HookRun};
use super::shared::DaemonShared;
use crate::ipc::{IpcSend, MeshEventKind};

/// Runs until the daemon ends.
pub(super) async fn follow(shared: Arc<DaemonShared>, mut runs: mpsc::UnboundedReceiver<HookRun>) {
    loop {
        let run = tokio::select! {
            run = runs.recv() => run,
            _ = shared.until_end() => return,
        };
        let Some(run) = run else {
            return;
        };
        let audit = run.audit.to_value();
        shared.events.publish(MeshEventKind::HookExecuted, audit);
        if let Some(reply) = run.reply {
            post(&shared, &reply).await;
        }
    }
}

async fn post(shared: &DaemonShared, reply: &HookReply) {
    let body = json!({
        "to": reply.to,
        "message": reply.message,
        "reply_to_id": reply.reply_to_id,
    });
    let body = body.to_string();
    let posted = match IpcSend::parse_send(body.as_bytes(), None, &shared.slug) {
        Ok(send) => shared.accept(send, None).await,
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = posted {
        let fields = json!({"to": reply.to, "error": refusal.error});
        shared.log.warn("hook_reply_refused", &fields);
    }
}

impl DaemonShared {
    /// Runs the hook of an event that is no message.
    pub(super) fn fire(&self, kind: HookKind, event: Value) {
        if let Value::Object(event) = event {
            self.hooks.fire(kind, &event);
        }
    }
}
