//! The way of an intent to its recipient: its own HTTP endpoint, its socket, or another directory.

use std::time::Duration;

use consign_engine::{Error, Lease};
use consign_kernel::command::{Advance, Command, Settle, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::SECOND_US;
use consign_kernel::intent::{Intent, Outcome, ResultKind};
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::Face;
use consign_kernel::state::{State, Verb};
use serde_json::Value;

use super::check::Checked;
use super::endpoint::EndpointCall;
use super::rows::{IntentRow, bounded_latency_ms, error_code};
use super::{Ingress, RelayError, details};
use crate::frame::{IntentFrame, ResultFrame};
use crate::service::Beam;
use crate::timestamp;

/// How far the clocks of two nodes of one ledger may differ; a node that is further off takes no work.
const CLOCK_MARGIN_US: i64 = 2 * SECOND_US;

impl Beam {
    /// Whether an intent is older than the agent that was registered then, see [`Agent::since_us`].
    ///
    /// [`Agent::since_us`]: crate::directory::records::Agent::since_us
    pub(crate) fn is_before(&self, row: &Intent, since_us: i64) -> bool {
        let margin_us = if self.inner.node.shared {
            CLOCK_MARGIN_US
        } else {
            0
        };
        row.created_at.0.saturating_add(margin_us) < since_us
    }

    pub(super) fn result_timeout(&self, ingress: &Ingress) -> Duration {
        match ingress {
            Ingress::Http | Ingress::Federation { .. } => self.settings().http_result_timeout(),
            Ingress::Socket { .. } => self.settings().socket_result_timeout(),
        }
    }

    pub(super) fn result_timeout_ms(&self, ingress: &Ingress) -> u64 {
        u64::try_from(self.result_timeout(ingress).as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the first route is a socket of this node.
    pub(super) fn goes_by_socket(&self, checked: &Checked) -> bool {
        checked.recipient.as_ref().is_some_and(|recipient| {
            recipient.http_endpoint.is_none() && self.inner.sockets.is_connected(&recipient.beam_id)
        })
    }

    pub(super) async fn route(
        &self,
        frame: &IntentFrame,
        ingress: &Ingress,
        checked: &Checked,
        row: &Intent,
    ) -> Result<String, RelayError> {
        self.publish_feed(row);
        let Some(recipient) = &checked.recipient else {
            return self.route_to_peer(frame, ingress, row).await;
        };
        let mut by_socket_noted = self.goes_by_socket(checked);
        let mut timeout = self.result_timeout(ingress);
        if let Some(endpoint) = &recipient.http_endpoint {
            let began = tokio::time::Instant::now();
            // The socket is tried next, so some time is left for it.
            let limit = if self.is_agent_connected(frame.to()).await? {
                timeout / 2
            } else {
                timeout
            };
            let is_busy = match self
                .call_endpoint(endpoint, frame, ingress, row, limit)
                .await?
            {
                EndpointCall::Answered(result) => {
                    return self.finish(row, frame, "direct-http", *result).await;
                }
                EndpointCall::Busy => true,
                EndpointCall::Failed => false,
            };
            by_socket_noted = false;
            let is_here = self.inner.sockets.is_connected(frame.to());
            let is_elsewhere = !is_here && self.has_presence_elsewhere(frame.to()).await?;
            if is_busy && !is_here && !is_elsewhere {
                return self.fail_busy(row).await;
            }
            timeout = timeout.saturating_sub(began.elapsed());
            if timeout.is_zero() {
                let error = RelayError::Timeout {
                    ms: self.result_timeout_ms(ingress),
                };
                let details = details::failed("direct-http", "TIMEOUT");
                self.fail_undelivered(row, &details, &error).await?;
                return Err(error);
            }
            if is_elsewhere {
                self.hand_over(row, frame, checked).await?;
                return self
                    .await_handed_over(row.id, frame, ingress, timeout)
                    .await;
            }
        }
        if !by_socket_noted && self.inner.sockets.is_connected(frame.to()) {
            let detail = details::by_socket(self.result_timeout_ms(ingress));
            self.note_route(row, ingress, detail).await?;
        }
        self.deliver_by_socket(frame, ingress, checked, row, timeout)
            .await
    }

    /// Too many calls to the endpoint of the recipient, or to all, are running. That says nothing about the recipient.
    async fn fail_busy(&self, row: &Intent) -> Result<String, RelayError> {
        let text = "Too many calls to HTTP endpoints are running; send the intent again later";
        let error = RelayError::DeliveryFailed(text.to_owned());
        let details = details::failed("direct-http", "DELIVERY_FAILED");
        self.fail_undelivered(row, &details, &error).await?;
        Err(error)
    }

    /// Stores that the other side accepted the intent.
    pub(super) async fn delivered(&self, row: &Intent, detail: String) -> Result<(), RelayError> {
        let settle = Settle {
            detail: Some(detail),
            ..Lease::of(row).settle(Settlement::Deliver)
        };
        let settled = self.engine().settle(settle).await;
        settled.map_err(|error| self.or_timeout(row, error))?;
        self.publish_feed_as(row, State::Delivered);
        Ok(())
    }

    /// The lease ends after the timeout. A relay that has lost it, because the machine was suspended, has timed out; a result
    /// that arrives later still counts.
    pub(super) fn or_timeout(&self, row: &Intent, error: Error) -> RelayError {
        if !matches!(error, Error::Refused(Refusal::LeaseLost)) {
            return error.into();
        }
        let began = row.claimed_at.unwrap_or(row.created_at);
        let passed_us = self.engine().now().0.saturating_sub(began.0);
        RelayError::Timeout {
            ms: u64::try_from(passed_us / 1_000).unwrap_or(0),
        }
    }

    /// Stores that this attempt failed before anyone accepted it.
    pub(super) async fn fail_undelivered(
        &self,
        row: &Intent,
        detail: &Value,
        error: &RelayError,
    ) -> Result<(), RelayError> {
        let text = format!("{}: {error}", relay_word(error));
        let settle = Settle {
            detail: Some(detail.to_string()),
            ..Lease::of(row).settle(Settlement::Reject { error: text })
        };
        match self.engine().settle(settle).await {
            Ok(_) | Err(Error::Refused(Refusal::LeaseLost)) => {}
            Err(error) => return Err(error.into()),
        }
        self.publish_feed_of(row.id).await;
        Ok(())
    }

    /// Stores that a delivered intent failed. If it has ended otherwise meanwhile, that end stays; if it was restarted, which
    /// happens after a suspend, this attempt does not end the next one.
    pub(super) async fn fail_delivered(
        &self,
        row: &Intent,
        detail: &Value,
        error: &RelayError,
    ) -> Result<(), RelayError> {
        let mut fail = Advance::by_system(row.id, Face::Beam, Verb::Fail);
        fail.refuse_repeated = true;
        fail.attempt = Some(row.attempts);
        fail.detail = Some(detail.to_string());
        fail.error = Some(format!("{}: {error}", relay_word(error)));
        match self
            .engine()
            .apply(None, Command::Advance(Box::new(fail)))
            .await
        {
            Ok(_) | Err(Error::Refused(Refusal::IllegalState)) => {}
            Err(error) => return Err(error.into()),
        }
        self.publish_feed_of(row.id).await;
        Ok(())
    }

    /// Stores the recipient's result and returns its text.
    pub(super) async fn finish(
        &self,
        row: &Intent,
        frame: &IntentFrame,
        transport: &str,
        result: ResultFrame,
    ) -> Result<String, RelayError> {
        let latency_ms = self.latency_ms(frame.timestamp(), &result);
        let code = (!result.success()).then(|| result.error_code().unwrap_or("RESULT_ERROR"));
        let details = details::ended(transport, latency_ms, code);
        self.store_result(row, &result, details).await
    }

    /// The same with other details.
    pub(super) async fn store_result(
        &self,
        row: &Intent,
        result: &ResultFrame,
        details: Value,
    ) -> Result<String, RelayError> {
        let text = result.to_value().to_text();
        let advance = result_step(row, result, &text, &details);
        if plant::on(Plant::ResultBeforeCommit) {
            let beam = self.clone();
            tokio::spawn(async move {
                // Long enough for a campaign to end the process meanwhile.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let step = Command::Advance(Box::new(advance));
                let _ = beam.engine().apply(None, step).await;
            });
            return Ok(text);
        }
        match self
            .engine()
            .apply(None, Command::Advance(Box::new(advance)))
            .await
        {
            Ok(_) => {
                self.publish_feed_of(row.id).await;
                Ok(text)
            }
            // It has ended meanwhile, perhaps by a timeout on another node, which a result still overrules.
            Err(Error::Refused(Refusal::IllegalState)) => {
                self.store_late_result(&row.owner, 0, result).await?;
                self.answer_by_row(row).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The latency that the result states, within what is possible, or else the measured one.
    pub(super) fn latency_ms(&self, sent: &str, result: &ResultFrame) -> i64 {
        let stated = result.latency().filter(|latency| latency.is_finite());
        let stated = stated.map(bounded_latency_ms);
        stated.unwrap_or_else(|| {
            let sent = timestamp::parse(sent).unwrap_or(self.engine().wall());
            (self.engine().wall().0 - sent.0).max(0) / 1_000
        })
    }

    /// The answer to a sender, from the stored end of its intent.
    pub(super) async fn answer_by_row(&self, row: &Intent) -> Result<String, RelayError> {
        let Some(row) = self.engine().observe(row.id).await? else {
            return Err(RelayError::DeliveryFailed(
                "The intent was removed".to_owned(),
            ));
        };
        if let Some(result) = &row.result {
            return Ok(result.body.clone());
        }
        let code = error_code(&row);
        Err(match code.as_deref() {
            Some("OFFLINE") => RelayError::Offline,
            Some("DELIVERY_FAILED") => {
                let text = row.last_error.as_deref().unwrap_or("Delivery failed");
                let text = text.strip_prefix("DELIVERY_FAILED: ").unwrap_or(text);
                RelayError::DeliveryFailed(text.to_owned())
            }
            _ => RelayError::Timeout {
                ms: IntentRow::of(&row)
                    .and_then(|view| view.completed_at_ms.map(|end| end - view.requested_at_ms))
                    .map_or(0, |ms| u64::try_from(ms).unwrap_or(0)),
            },
        })
    }
}

/// The step that a result means for a delivered intent.
pub(super) fn result_step(
    row: &Intent,
    result: &ResultFrame,
    text: &str,
    details: &Value,
) -> Advance {
    let verb = if result.success() {
        Verb::Complete
    } else {
        Verb::Fail
    };
    let mut advance = Advance::by_system(row.id, Face::Beam, verb);
    // The sender gets this result only if it is the one that is stored.
    advance.refuse_repeated = true;
    advance.actor = Some(row.owner.clone());
    advance.detail = Some(details.to_string());
    advance.result = Some(Outcome {
        kind: ResultKind::Json,
        body: text.to_owned(),
    });
    if !result.success() {
        let code = result.error_code().unwrap_or("RESULT_ERROR");
        let error = result.error().unwrap_or("the recipient reported a failure");
        advance.error = Some(format!("{code}: {error}"));
    }
    advance
}

/// The code of the relay in the ledger.
fn relay_word(error: &RelayError) -> &'static str {
    match error {
        RelayError::Offline => "OFFLINE",
        RelayError::Timeout { .. } => "TIMEOUT",
        RelayError::Shape(_)
        | RelayError::BadRequest(_)
        | RelayError::Forbidden(_)
        | RelayError::RateLimited(_)
        | RelayError::InProgress(_)
        | RelayError::DeliveryFailed(_)
        | RelayError::Ledger(_) => "DELIVERY_FAILED",
    }
}
