//! Delivery to another directory.
//!
//! The frame is sent unchanged, so that the signature of its sender stays valid. If the connection ends before the
//! response, the peer may have delivered the intent: it is stored as failed, and a repetition with the same nonce is
//! answered with the stored result of the peer, or delivered once.

use std::time::Duration;

use consign_engine::{Error, Lease, UnitOfWork};
use consign_kernel::command::{Command, Settle, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::intent::Intent;
use consign_kernel::plant::{self, Plant};
use consign_kernel::state::State;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::route::result_step;
use super::{HOPS_MAX, Ingress, RelayError, details};
use crate::beam_id::BeamId;
use crate::frame::{IntentFrame, ResultFrame};
use crate::outbound::{OutboundError, OutboundResponse};
use crate::service::Beam;
use crate::text;

/// One relay to a peer, for the details of its facts.
struct PeerRelay {
    peer_url: String,
    hops: u32,
    began: Instant,
}

impl PeerRelay {
    fn latency_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn details(&self) -> Value {
        json!({"peerUrl": self.peer_url, "hopCount": self.hops, "transport": "federation"})
    }

    fn ended(&self, latency_ms: i64, code: Option<&str>) -> Value {
        let mut ended = details::ended("federation", latency_ms, code);
        ended["peerUrl"] = json!(self.peer_url);
        ended
    }

    fn failed(&self, code: &str) -> Value {
        let latency_ms = i64::try_from(self.latency_ms()).unwrap_or(i64::MAX);
        self.ended(latency_ms, Some(code))
    }
}

impl Beam {
    /// The key of an agent of another directory. Only the directory that sent the intent is asked, and only if it is an
    /// active peer. The caller has checked that the agent is not local.
    pub(super) async fn federated_key(
        &self,
        beam_id: &str,
        source: &str,
    ) -> Result<Option<String>, RelayError> {
        let Ok(beam_id) = BeamId::parse(beam_id) else {
            return Ok(None);
        };
        match self.active_peer(source).await? {
            Some(peer) => Ok(self.key_at_peer(&beam_id, &peer).await?),
            None => Ok(None),
        }
    }

    pub(super) async fn route_to_peer(
        &self,
        frame: &IntentFrame,
        ingress: &Ingress,
        row: &Intent,
    ) -> Result<String, RelayError> {
        let deadline = Instant::now() + self.result_timeout(ingress);
        let chosen = json!({"deliveryTarget": "federation"});
        self.note_route(row, ingress, chosen.to_string()).await?;
        let source = match ingress {
            Ingress::Federation { source, .. } => Some(source.as_str()),
            Ingress::Http | Ingress::Socket { .. } => None,
        };
        let hops = ingress.hops() + 1;
        if hops > HOPS_MAX && !plant::on(Plant::EndlessRelay) {
            let text = format!("Federation hop limit exceeded ({HOPS_MAX})");
            let details = details::failed("federation", "DELIVERY_FAILED");
            let error = RelayError::DeliveryFailed(text);
            self.fail_undelivered(row, &details, &error).await?;
            return Err(error);
        }
        let found = match BeamId::parse(frame.to()) {
            Ok(to) => self.find_route(&to, source, remaining(deadline)).await?,
            Err(_) => None,
        };
        let Some(found) = found else {
            let error = RelayError::Offline;
            let details = details::failed("federation", "OFFLINE");
            self.fail_undelivered(row, &details, &error).await?;
            return Err(error);
        };
        let relay = PeerRelay {
            peer_url: found.directory_url,
            hops,
            began: Instant::now(),
        };
        let scope = found.scope.word();
        let resolved =
            json!({"peerUrl": relay.peer_url, "scope": scope, "transport": "federation"});
        self.note_route(row, ingress, resolved.to_string()).await?;
        self.note_route(row, ingress, relay.details().to_string())
            .await?;
        let body = frame.to_value().to_text();
        let response = self
            .post_to_peer(&relay.peer_url, body, hops, remaining(deadline))
            .await;
        match result_of(response, frame.nonce()) {
            Ok(result) => self.finish_relay(row, frame, &relay, &result).await,
            Err(error) => {
                let details = relay.failed("DELIVERY_FAILED");
                self.fail_undelivered(row, &details, &error).await?;
                Err(error)
            }
        }
    }

    /// Stores the result of the peer: its acceptance and the end, in one commit.
    async fn finish_relay(
        &self,
        row: &Intent,
        frame: &IntentFrame,
        relay: &PeerRelay,
        result: &ResultFrame,
    ) -> Result<String, RelayError> {
        let mut delivered = relay.details();
        delivered["latencyMs"] = json!(relay.latency_ms());
        let code = (!result.success()).then(|| result.error_code().unwrap_or("RESULT_ERROR"));
        let ended = relay.ended(self.latency_ms(frame.timestamp(), result), code);
        let text = result.to_value().to_text();
        let mut unit = UnitOfWork::default();
        unit.require(Command::Settle(Settle {
            detail: Some(delivered.to_string()),
            ..Lease::of(row).settle(Settlement::Deliver)
        }));
        let step = result_step(row, result, &text, &ended);
        unit.require(Command::Advance(Box::new(step)));
        match self.engine().commit(unit).await {
            Ok(_) => {
                self.publish_feed_as(row, State::Delivered);
                self.publish_feed_of(row.id).await;
                if let Err(error) = self.note_peer_seen(&relay.peer_url).await {
                    tracing::debug!(%error, "the time of a peer's response was not stored");
                }
                Ok(text)
            }
            Err(Error::Refused(Refusal::IllegalState | Refusal::LeaseLost)) => {
                self.answer_by_row(row).await
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// The result frame in the response of a peer. Addresses and causes are logged and not returned to the sender.
fn result_of(
    response: Result<OutboundResponse, OutboundError>,
    nonce: &str,
) -> Result<ResultFrame, RelayError> {
    let failed = |why: &str| RelayError::DeliveryFailed(format!("Federated relay failed: {why}"));
    let response = response.map_err(|error| {
        tracing::debug!(%error, nonce, "an intent was not relayed to a peer");
        failed(match error {
            OutboundError::Timeout { .. } => "no complete response in time",
            OutboundError::TooLarge { .. } => "the response is too large",
            OutboundError::Malformed(_) | OutboundError::Broken(_) => "the response is incomplete",
            OutboundError::Busy => "too many relays are running",
            OutboundError::Refused(_)
            | OutboundError::Header { .. }
            | OutboundError::Request(_)
            | OutboundError::Connect(_) => "the peer cannot be reached",
        })
    })?;
    if !response.status.is_success() {
        let text = format!(
            "Federated relay failed with status {}",
            response.status.as_u16()
        );
        return Err(RelayError::DeliveryFailed(text));
    }
    let value = text::parse(&response.body).ok();
    let result = value.and_then(|value| ResultFrame::parse(value).ok());
    result
        .filter(|result| result.nonce() == nonce || plant::on(Plant::ForeignResult))
        .ok_or_else(|| failed("the response is not a result for this nonce"))
}
