//! Results for which no relay of this node waits: after a restart, after the timeout, or sent to another node.

use consign_engine::{Error, UnitOfWork};
use consign_kernel::command::{Advance, Command, Hold, Settle, Settlement, Take};
use consign_kernel::error::Refusal;
use consign_kernel::ids::SECOND_US;
use consign_kernel::intent::Intent;
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::Face;
use consign_kernel::state::{State, Verb};
use serde_json::{Value, json};

use super::begin::nonce_key;
use super::check::is_storable;
use super::details;
use super::route::result_step;
use super::rows::{IntentRow, error_code};
use super::waiters::ResultDelivery;
use crate::frame::ResultFrame;
use crate::retryable::repeated_nonce_restarts;
use crate::service::Beam;
use crate::sockets::ConnectedAgent;

impl Beam {
    /// A result that the socket of an agent sent. Results for intents of other agents are ignored.
    pub(crate) async fn on_result(&self, agent: &ConnectedAgent, result: ResultFrame) {
        let ResultDelivery::Unclaimed(result) = self.inner.waiters.deliver(agent, result) else {
            return;
        };
        if plant::on(Plant::LateResultDropped) {
            return;
        }
        if let Err(error) = self
            .store_late_result(&agent.beam_id, agent.since_us, &result)
            .await
        {
            tracing::warn!(%error, nonce = result.nonce(), "a late result was not stored");
        }
    }

    /// Stores a result for an intent that may have ended. A result of another agent changes nothing, also if that agent had
    /// the same id before.
    pub(super) async fn store_late_result(
        &self,
        recipient: &str,
        since_us: i64,
        result: &ResultFrame,
    ) -> Result<(), Error> {
        // No intent has such a nonce.
        if !is_storable(result.nonce()) {
            return Ok(());
        }
        let Some(used) = self.engine().first_use(nonce_key(result.nonce())).await? else {
            return Ok(());
        };
        let Some(id) = used.intent else { return Ok(()) };
        let Some(row) = self.engine().observe(id).await? else {
            return Ok(());
        };
        if row.owner != recipient || self.is_before(&row, since_us) {
            return Ok(());
        }
        let sent = IntentRow::of(&row)
            .map(|view| view.timestamp)
            .unwrap_or_default();
        let latency_ms = self.latency_ms(&sent, result);
        let code = (!result.success()).then(|| result.error_code().unwrap_or("RESULT_ERROR"));
        let mut details = details::ended("ws", latency_ms, code);
        details["lateResult"] = json!(true);
        let text = result.to_value().to_text();
        let stored = match row.state {
            State::Delivered => {
                let step = result_step(&row, result, &text, &details);
                let step = Command::Advance(Box::new(step));
                self.engine().apply(None, step).await.map(|_| ())
            }
            State::Failed if repeated_nonce_restarts(error_code(&row).as_deref()) => {
                details["recoveredAfterFailure"] = json!(true);
                details["previousStatus"] = json!("failed");
                self.end_failed(&row, result, &text, &details).await
            }
            State::Failed if plant::on(Plant::LateResultReplaces) => {
                self.end_failed(&row, result, &text, &details).await
            }
            State::Received
            | State::Validated
            | State::Queued
            | State::Dispatched
            | State::Acked
            | State::Failed
            | State::DeadLetter => Ok(()),
        };
        match stored {
            // The sender was faster and repeats it, or the result came twice.
            Err(Error::Refused(Refusal::IllegalState | Refusal::Held | Refusal::LeaseLost)) => {
                Ok(())
            }
            Ok(()) => {
                self.publish_feed_of(id).await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// An intent that failed without an answer takes every legal step to its end.
    async fn end_failed(
        &self,
        row: &Intent,
        result: &ResultFrame,
        text: &str,
        details: &Value,
    ) -> Result<(), Error> {
        let mut retry = Advance::by_system(row.id, Face::Beam, Verb::Retry);
        retry.from = Some(row.state);
        retry.detail = Some(details.to_string());
        let mut unit = UnitOfWork::default();
        unit.require(Command::Advance(Box::new(retry)));
        let taken = unit.take(Take {
            id: row.id,
            face: Face::Beam,
            hold: Hold {
                holder: self.holder(),
                lease_us: 60 * SECOND_US,
            },
            detail: Some(details.to_string()),
        });
        let mut committed = self.engine().commit(unit).await?;
        let held: Vec<Intent> = committed.get(taken)?;
        let Some(held) = held.into_iter().next() else {
            return Ok(());
        };
        let mut unit = UnitOfWork::default();
        unit.require(Command::Settle(Settle {
            detail: Some(details.to_string()),
            ..consign_engine::Lease::of(&held).settle(Settlement::Deliver)
        }));
        let step = result_step(row, result, text, details);
        unit.require(Command::Advance(Box::new(step)));
        self.engine().commit(unit).await?;
        Ok(())
    }
}
