//! The feed of intents: what happens to them, for sockets that follow it.
//!
//! A node that is alone reports the steps that it takes. On a shared ledger, each node with readers follows the facts of all
//! nodes instead; see `all_nodes`.

mod all_nodes;

use std::sync::Arc;

use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::state::State;
use serde_json::{Value, json};

use crate::lifecycle;
use crate::relay::IntentRow;
use crate::service::Beam;
use crate::timestamp;
use consign_kernel::ids::Micros;

impl Beam {
    /// Reports a step of an intent that this node relays.
    pub(crate) fn publish_feed(&self, row: &Intent) {
        self.publish_feed_as(row, row.state);
    }

    /// The same for a step that the given row does not show yet.
    pub(crate) fn publish_feed_as(&self, row: &Intent, state: State) {
        let sockets = &self.inner.sockets;
        if self.inner.node.shared || !sockets.has_feeds() {
            return;
        }
        let Some(view) = IntentRow::of(row) else {
            return;
        };
        self.send_to_feeds(&IntentRow { state, ..view });
    }

    fn send_to_feeds(&self, view: &IntentRow) {
        let message = json!({"type": "intent_feed", "entry": entry(view)});
        let message: Arc<str> = message.to_string().into();
        let sockets = &self.inner.sockets;
        sockets.publish(&view.from, &view.to, &message);
    }

    /// Reports the end of an intent.
    pub(crate) async fn publish_feed_of(&self, id: IntentId) {
        if self.inner.node.shared || !self.inner.sockets.has_feeds() {
            return;
        }
        if let Ok(Some(row)) = self.engine().observe(id).await {
            self.publish_feed(&row);
        }
    }
}

/// An intent as the feed and the list of recent intents show it.
pub(crate) fn entry(view: &IntentRow) -> Value {
    let completed_at = view
        .completed_at_ms
        .filter(|_| lifecycle::is_terminal(view.state));
    let completed_at = completed_at.map(|ms| timestamp::format(Micros(ms * 1_000)));
    json!({
        "nonce": view.nonce,
        "from": view.from,
        "to": view.to,
        "intentType": view.intent_type,
        "timestamp": view.timestamp,
        "completedAt": completed_at,
        "roundTripLatencyMs": view.latency_ms,
        "status": view.status(),
        "errorCode": view.error_code,
    })
}
