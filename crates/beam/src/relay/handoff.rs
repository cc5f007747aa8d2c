//! Intents for agents that are connected to another node of the ledger.
//!
//! The node that received the intent queues it in the lane of its recipient, and the node with the socket claims it there. A
//! recipient that also has an HTTP endpoint is called there first, and handed over if the endpoint fails. The end is seen in the
//! ledger by both.

use std::time::Duration;

use consign_engine::{Error, Lease, UnitOfWork};
use consign_kernel::command::{Audience, Claim, Command, Settle, Settlement};
use consign_kernel::ids::{IntentId, Micros, SECOND_US};
use consign_kernel::intent::Intent;
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::Face;
use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

use super::begin::NAMESPACE;
use super::check::Checked;
use super::unwaited::WaitEnd;
use super::{Ingress, RelayError, details};
use crate::directory::records::named;
use crate::frame::IntentFrame;
use crate::lifecycle;
use crate::service::Beam;
use crate::text;

/// A lane is asked this often without a wake; a wake that is lost delays an intent by so much.
const LANE_POLL: Duration = Duration::from_secs(30);
/// A waiting claim ends and begins anew after this time.
const LANE_WAIT: Duration = Duration::from_mins(10);
/// Intents of one agent that this node relays at the same time.
const CLAIMED_MAX: u32 = 16;
/// How long the node of the sender waits for the end beyond the timeout.
const END_MARGIN: Duration = Duration::from_secs(2);
/// Without news of the ledger, its row is read this often.
const END_POLL: Duration = Duration::from_secs(1);

/// How long the record of a hand-over outlives the wait of its sender.
const RECORD_MARGIN_US: i64 = 60 * SECOND_US;

/// What the other node needs besides the row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Handover {
    frame: String,
    sender_key: String,
    from: String,
    is_local_sender: bool,
    acting: Option<String>,
    timeout_ms: u64,
    /// The number of the node that waits for the result. Records of older versions do not have it.
    #[serde(default)]
    pub(super) node: i64,
}

impl Handover {
    pub(super) fn key(id: IntentId) -> Key {
        named(Kind::BeamHandover, &id.to_string())
    }

    /// When the wait of the sender ends, by the end of the record.
    pub(super) fn wait_end(&self, record_end: Micros) -> WaitEnd {
        WaitEnd {
            at: record_end.minus(RECORD_MARGIN_US),
            timeout_ms: self.timeout_ms,
        }
    }
}

impl Beam {
    /// Whether another live node has the socket of the recipient.
    pub(super) async fn is_connected_elsewhere(&self, checked: &Checked) -> Result<bool, Error> {
        let Some(recipient) = &checked.recipient else {
            return Ok(false);
        };
        let beam_id = &recipient.beam_id;
        let is_candidate = self.inner.node.shared
            && recipient.http_endpoint.is_none()
            && !self.inner.sockets.is_connected(beam_id);
        if !is_candidate {
            return Ok(false);
        }
        if plant::on(Plant::HandoverUnseen) {
            return Ok(true);
        }
        self.has_presence_elsewhere(beam_id).await
    }

    pub(super) fn put_handover(
        &self,
        unit: &mut UnitOfWork,
        id: IntentId,
        frame: &IntentFrame,
        checked: &Checked,
    ) {
        let timeout_ms = self.result_timeout_ms(&Ingress::Http);
        let handover = Handover {
            frame: frame.to_value().to_text(),
            sender_key: checked.sender_key.clone(),
            from: checked.from.clone(),
            is_local_sender: checked.is_local_sender,
            acting: checked.acting.clone(),
            timeout_ms,
            node: self.inner.node.id,
        };
        let until = i64::try_from(timeout_ms)
            .unwrap_or(60_000)
            .saturating_mul(1_000);
        let until = self
            .engine()
            .now()
            .plus(until.saturating_add(RECORD_MARGIN_US));
        unit.put_until(Handover::key(id), &handover, until);
    }

    /// Queues an intent that this node holds for the node with the socket of its recipient.
    pub(super) async fn hand_over(
        &self,
        row: &Intent,
        frame: &IntentFrame,
        checked: &Checked,
    ) -> Result<(), RelayError> {
        let mut unit = UnitOfWork::default();
        unit.require(Command::Settle(Settle {
            detail: Some(details::handed_over()),
            ..Lease::of(row).settle(Settlement::GiveBack)
        }));
        self.put_handover(&mut unit, row.id, frame, checked);
        let committed = self.engine().commit(unit).await;
        committed.map_err(|error| self.or_timeout(row, error))?;
        Ok(())
    }

    /// Waits for the end of an intent that another node relays, at most so long.
    pub(super) async fn await_handed_over(
        &self,
        id: IntentId,
        frame: &IntentFrame,
        ingress: &Ingress,
        timeout: Duration,
    ) -> Result<String, RelayError> {
        let end = self.wait_end(timeout);
        let awaited = self.await_end(id, frame, ingress, timeout).await;
        if matches!(awaited, Err(RelayError::Ledger(_))) {
            self.leave_handover_to_sweep(id, end);
        }
        awaited
    }

    async fn await_end(
        &self,
        id: IntentId,
        frame: &IntentFrame,
        ingress: &Ingress,
        timeout: Duration,
    ) -> Result<String, RelayError> {
        let deadline = tokio::time::Instant::now() + timeout;
        let mut news = self.engine().follow_publisher(frame.to());
        let error = RelayError::Timeout {
            ms: self.result_timeout_ms(ingress),
        };
        let mut has_failed = false;
        loop {
            news.borrow_and_update();
            let Some(row) = self.engine().observe(id).await? else {
                return Err(error);
            };
            if lifecycle::is_terminal(row.state) {
                return match self.answer_by_row(&row).await {
                    Err(RelayError::Timeout { .. }) => Err(error),
                    other => other,
                };
            }
            let now = tokio::time::Instant::now();
            if now >= deadline + END_MARGIN {
                return Err(error);
            }
            if now >= deadline && !has_failed {
                has_failed = true;
                let mut details = details::failed("ws", "TIMEOUT");
                details["timeoutMs"] = json!(self.result_timeout_ms(ingress));
                self.fail_delivered(&row, &details, &error).await?;
                continue;
            }
            let pause = match deadline.saturating_duration_since(now) {
                Duration::ZERO => END_POLL,
                left => left.min(END_POLL),
            };
            let _woken = tokio::time::timeout(pause, news.changed()).await;
        }
    }

    /// Relays what other nodes queue for an agent of this node, until the sender of `left` is dropped. A later connection
    /// of the agent has its own claims, so these end even if the agent is connected again.
    pub(crate) async fn serve_lane(&self, beam_id: &str, mut left: watch::Receiver<()>) {
        let claim = Claim {
            face: Face::Beam,
            namespace: NAMESPACE.to_owned(),
            goal: None,
            holder: self.holder(),
            audience: Audience::Publisher(beam_id.to_owned()),
            worker_id: None,
            capabilities: Vec::new(),
            max: CLAIMED_MAX,
            lease_us: self.relay_hold(&Ingress::Http).lease_us,
            grant: None,
        };
        while left.has_changed().is_ok() {
            let leave = async { while left.changed().await.is_ok() {} };
            let claimed =
                self.engine()
                    .claim_polling(None, claim.clone(), LANE_WAIT, LANE_POLL, leave);
            match claimed.await {
                Ok(rows) => {
                    for row in rows {
                        let beam = self.clone();
                        tokio::spawn(async move { beam.relay_claimed(row).await });
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, beam_id, "the lane of an agent cannot be read; trying again");
                    tokio::time::sleep(END_POLL).await;
                }
            }
        }
    }

    async fn relay_claimed(&self, row: Intent) {
        let relayed = self.try_relay_claimed(&row).await;
        if let Err(error) = relayed {
            tracing::debug!(%error, intent = %row.id, "an intent of another node was not delivered");
        }
    }

    async fn try_relay_claimed(&self, row: &Intent) -> Result<(), RelayError> {
        let handover = self
            .engine()
            .load::<Handover>(Handover::key(row.id))
            .await?;
        let frame = handover.as_ref().and_then(|handover| {
            let value = text::parse(handover.value.frame.as_bytes()).ok()?;
            IntentFrame::parse(value).ok()
        });
        let (Some(handover), Some(frame)) = (handover, frame) else {
            // It waited longer than its sender.
            let error = RelayError::Timeout { ms: 0 };
            let details = details::failed("ws", "TIMEOUT");
            return self.fail_undelivered(row, &details, &error).await;
        };
        let handover = handover.value;
        let checked = Checked {
            from: handover.from,
            sender_key: handover.sender_key,
            is_local_sender: handover.is_local_sender,
            sender_since_us: 0,
            acting: handover.acting,
            recipient: self.agent(frame.to()).await?,
        };
        let ingress = Ingress::Http;
        let detail = details::by_socket(handover.timeout_ms);
        self.note_route(row, &ingress, detail).await?;
        let timeout = self.result_timeout(&ingress);
        self.deliver_by_socket(&frame, &ingress, &checked, row, timeout)
            .await
            .map(|_| ())
    }
}
