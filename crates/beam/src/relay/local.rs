//! Delivery to a socket of this node.

use std::time::Duration;

use consign_kernel::intent::Intent;
use consign_kernel::plant::{self, Plant};
use serde_json::json;

use super::check::Checked;
use super::{Ingress, RelayError, details};
use crate::frame::{IntentFrame, ResultFields, ResultFrame};
use crate::service::Beam;

impl Beam {
    async fn fail_offline(&self, row: &Intent) -> Result<String, RelayError> {
        let error = RelayError::Offline;
        let details = details::failed("ws", "OFFLINE");
        self.fail_undelivered(row, &details, &error).await?;
        Err(error)
    }

    /// Waits for the result at most so long.
    pub(super) async fn deliver_by_socket(
        &self,
        frame: &IntentFrame,
        ingress: &Ingress,
        checked: &Checked,
        row: &Intent,
        timeout: Duration,
    ) -> Result<String, RelayError> {
        let timeout_ms = self.result_timeout_ms(ingress);
        let Some(recipient) = &checked.recipient else {
            return self.fail_offline(row).await;
        };
        let mut ticket = self.inner.waiters.register(frame.nonce(), recipient);
        let message = details::socket_message(frame, checked);
        if self.inner.sockets.send(recipient, message).is_err() {
            if plant::on(Plant::OfflineIsAcked) {
                self.delivered(row, details::by_socket(timeout_ms)).await?;
                let result = ResultFrame::new(ResultFields {
                    success: true,
                    nonce: frame.nonce(),
                    ..ResultFields::default()
                });
                return self.finish(row, frame, "ws", result).await;
            }
            return self.fail_offline(row).await;
        }
        let deadline = tokio::time::Instant::now() + timeout;
        self.delivered(row, details::by_socket(timeout_ms)).await?;
        let result = tokio::time::timeout_at(deadline, ticket.result()).await;
        if let Some(result) = result.ok().flatten().or_else(|| ticket.try_result()) {
            return self.finish(row, frame, "ws", result).await;
        }
        let error = RelayError::Timeout { ms: timeout_ms };
        let mut details = details::failed("ws", "TIMEOUT");
        details["timeoutMs"] = json!(timeout_ms);
        self.fail_delivered(row, &details, &error).await?;
        // A result may have ended it elsewhere in the last moment.
        match self.answer_by_row(row).await {
            Err(RelayError::Timeout { .. }) => Err(error),
            other => other,
        }
    }
}
