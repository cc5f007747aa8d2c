//! Sends the messages of the outbox in the order in which they were accepted, and settles each row by its acknowledgement.
//!
//! Invariant: a row is in flight at most once, and none stays in flight longer than the time limit of its acknowledgement.
//! Several rows are in flight together, so that the way to the broker and back is paid once for many.

use std::sync::Arc;
use std::time::Duration;

use consign_kernel::plant::{self, Plant};
use futures_util::StreamExt as _;
use futures_util::future::FutureExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use tokio::time::timeout;

use super::event_hub::EventHub;
use super::line::{BrokerLine, LineError};
use super::log::DaemonLog;
use super::metrics::{DaemonMetric, DaemonMetrics};
use super::outbox_payload::OutboxPayload;
use super::outbox_queue::{CLAIM_WAIT, ClaimedRow, OutboxQueue, RowKind};
use super::reseal::{CurrentKeys, resealed};
use super::shared::{DaemonShared, LinkState};
use crate::frame::{AckFrame, SendFrame};
use crate::id::MeshSlug;
use crate::ipc::MeshEventKind;
use crate::limits::{ACK_TIMEOUT_MS, DRAIN_BATCH_MAX};
use crate::outbox::{AckOutcome, ack_outcome};

pub(super) const TOO_OLD: &str = "max_age_exceeded";
/// The pause after a claim that failed, as on a full disk.
const CLAIM_RETRY: Duration = Duration::from_secs(1);
/// Rows in flight: a batch that is acknowledged, and the next one that is on its way meanwhile. So a claim is one commit for
/// many rows, and one lost acknowledgement holds nothing up.
const IN_FLIGHT_MAX: usize = 2 * DRAIN_BATCH_MAX;
/// How long acknowledgements are awaited at the end of the daemon.
pub(super) const GOODBYE: Duration = Duration::from_secs(1);

/// Sends rows, settles them, and reports what became of them.
#[derive(Debug, Clone)]
pub(super) struct OutboxSender {
    pub(super) slug: MeshSlug,
    pub(super) queue: OutboxQueue,
    pub(super) log: DaemonLog,
    pub(super) metrics: DaemonMetrics,
    pub(super) events: Arc<EventHub>,
    /// `None` in the simulation, which seals nothing.
    pub(super) keys: Option<CurrentKeys>,
}

/// Runs until the daemon ends.
pub(super) async fn drain(shared: Arc<DaemonShared>) {
    let sender = OutboxSender::of(&shared);
    let ended = async { drop(shared.until_end().await) }.shared();
    let mut lines = shared.line.subscribe();
    loop {
        let line = tokio::select! {
            opened = lines.wait_for(|state| matches!(state, LinkState::Open(_))) => match opened {
                Ok(state) => match &*state {
                    LinkState::Open(line) => Arc::clone(line),
                    LinkState::Connecting | LinkState::Closed => continue,
                },
                Err(_) => return,
            },
            () = ended.clone() => return,
        };
        sender.drain_over(&line, &ended).await;
        if is_over(&ended) {
            return;
        }
        // The next connection, not this one again.
        tokio::select! {
            () = line.until_closed() => {}
            () = ended.clone() => return,
        }
    }
}

/// Whether the future has resolved.
fn is_over(future: &(impl Future + Clone)) -> bool {
    future.clone().now_or_never().is_some()
}

impl OutboxSender {
    pub(super) fn of(shared: &DaemonShared) -> Self {
        Self {
            slug: shared.slug.clone(),
            queue: shared.outbox.queue.clone(),
            log: shared.log.clone(),
            metrics: shared.metrics.clone(),
            events: Arc::clone(&shared.events),
            keys: Some(shared.current_keys()),
        }
    }

    /// Sends over one connection until it or the daemon ends.
    pub(super) async fn drain_over(
        &self,
        line: &BrokerLine,
        ended: &(impl Future<Output = ()> + Clone),
    ) {
        let mut in_flight = FuturesUnordered::new();
        loop {
            let is_full = in_flight.len() + DRAIN_BATCH_MAX > IN_FLIGHT_MAX;
            let leave = async {
                tokio::select! {
                    biased;
                    () = line.until_closed() => {}
                    () = ended.clone() => {}
                }
            };
            if is_full {
                tokio::select! {
                    biased;
                    () = leave => break,
                    _ = in_flight.next() => continue,
                }
            }
            let claim = self
                .queue
                .claim(RowKind::Message, DRAIN_BATCH_MAX, CLAIM_WAIT, leave);
            tokio::pin!(claim);
            // A claim is never dropped: it may have taken rows already.
            let claimed = loop {
                tokio::select! {
                    biased;
                    _ = in_flight.next(), if !in_flight.is_empty() => {}
                    claimed = &mut claim => break claimed,
                }
            };
            match claimed {
                Ok(rows) => {
                    for row in rows {
                        if let Some(sent) = self.send(line, row).await {
                            in_flight.push(sent);
                        }
                    }
                }
                Err(error) => {
                    let fields = json!({"error": error.to_string()});
                    self.log.error("outbox_read_failed", &fields);
                    tokio::time::sleep(CLAIM_RETRY).await;
                }
            }
            if is_over(ended) || line.is_closed() {
                break;
            }
        }
        // Closed lines end all waiting at once; at the end of the daemon the last acknowledgements get a moment.
        let rest = async { while in_flight.next().await.is_some() {} };
        if timeout(GOODBYE, rest).await.is_err() {
            line.close();
            while in_flight.next().await.is_some() {}
        }
    }

    /// Sends a row. Returns what settles it, unless that happened already.
    async fn send<'a>(
        &'a self,
        line: &'a BrokerLine,
        row: ClaimedRow,
    ) -> Option<impl Future<Output = ()> + 'a> {
        if self.is_too_old(line, &row) {
            self.conclude(&row, dead(TOO_OLD), None).await;
            return None;
        }
        let frame = row.payload.as_ref().and_then(|row| self.frame(row));
        let Some(frame) = frame else {
            let error = "invalid: the row has no target or no ciphertext";
            self.conclude(&row, dead(error), None).await;
            return None;
        };
        let acked = line.send_message(frame).await;
        Some(async move {
            let limit = Duration::from_millis(ACK_TIMEOUT_MS);
            let answer = match acked {
                Ok(acked) => match timeout(limit, acked).await {
                    Ok(Ok(ack)) => Ok(ack),
                    Ok(Err(_)) => Err(LineError::Closed),
                    Err(_) => Err(LineError::NoAnswer),
                },
                Err(error) => Err(error),
            };
            if let Some(payload) = &row.payload {
                line.forget_message(&payload.client_message_id);
            }
            match answer {
                Ok(ack) => self.conclude(&row, ack_outcome(&ack), Some(&ack)).await,
                Err(LineError::Closed) if plant::on(Plant::SentIsDone) => {
                    self.log_failure(self.queue.complete(&row, "", None).await);
                }
                Err(LineError::NoAnswer) => {
                    self.log_failure(self.queue.retry(&row, "no ack in time").await);
                }
                Err(error) => self.log_failure(self.queue.retry(&row, &error.to_string()).await),
            }
        })
    }

    /// The frame of a row. What an earlier key has sealed is sealed again: its recipient looks for the current one.
    fn frame(&self, payload: &OutboxPayload) -> Option<SendFrame> {
        let keys = self.keys.as_ref().map(CurrentKeys::get);
        let again = keys.and_then(|keys| resealed(payload, &keys.identity.key));
        again.as_ref().unwrap_or(payload).frame()
    }

    fn is_too_old(&self, line: &BrokerLine, row: &ClaimedRow) -> bool {
        let age_ms = |now_ms: i64| now_ms.saturating_sub(row.enqueued_at_ms);
        line.terms
            .max_age
            .is_some_and(|max| max.is_past(age_ms(self.queue.now_ms()), age_ms(line.now_ms())))
    }

    /// Settles a row by what became of its attempt, and reports it. `ack` is the broker's answer, if one was the reason.
    pub(super) async fn conclude(
        &self,
        row: &ClaimedRow,
        outcome: AckOutcome,
        ack: Option<&AckFrame>,
    ) {
        let settled = self.settle(row, outcome, ack).await;
        self.log_failure(settled);
    }

    async fn settle(
        &self,
        row: &ClaimedRow,
        outcome: AckOutcome,
        ack: Option<&AckFrame>,
    ) -> Result<(), consign_engine::Error> {
        let client_id = client_id(row);
        match outcome {
            AckOutcome::Done {
                broker_message_id,
                is_duplicate,
                is_pruned,
            } => {
                let history_id = ack.and_then(|ack| ack.history_id.as_deref());
                let done = self.queue.complete(row, &broker_message_id, history_id);
                done.await?;
                let fields =
                    json!({"client_message_id": client_id, "broker_message_id": broker_message_id});
                let metrics = &self.metrics;
                metrics.count(DaemonMetric::Send, &[kind(row), "done"]);
                let is_forgotten = row
                    .known_as
                    .as_ref()
                    .is_some_and(|known| !is_duplicate && *known != broker_message_id);
                if is_forgotten {
                    metrics.count(DaemonMetric::RetryAfterDedupeExpired, &[]);
                    self.log.warn("retry_after_dedupe_expired", &fields);
                }
                if is_duplicate {
                    metrics.count(DaemonMetric::Dedupe, &["out"]);
                }
                match (is_duplicate, is_pruned) {
                    (true, true) => {
                        metrics.count(DaemonMetric::DedupeHistoryPruned, &[]);
                        self.log.warn("dedupe_history_pruned", &fields);
                    }
                    (true, false) => self.log.info("dedupe_duplicate", &fields),
                    (false, _) => self.log.debug("message_accepted", &fields),
                }
            }
            AckOutcome::Retry(error) => {
                self.queue.retry(row, &error).await?;
                let fields = json!({
                    "client_message_id": client_id,
                    "attempts": row.attempts,
                    "error": error,
                });
                self.log.info("message_refused_for_now", &fields);
                self.metrics
                    .count(DaemonMetric::Send, &[kind(row), "retry"]);
            }
            AckOutcome::Dead { error, is_reused } => {
                let killed = self.queue.kill(row, &error).await;
                self.report_dead(row, &error, is_reused, ack);
                killed?;
            }
        }
        Ok(())
    }

    /// The line of the log and the event of a row that is never sent again.
    fn report_dead(&self, row: &ClaimedRow, error: &str, is_reused: bool, ack: Option<&AckFrame>) {
        let client_id = client_id(row);
        let mut event = json!({
            "mesh": self.slug.as_str(),
            "id": row.table_id(),
            "client_message_id": client_id,
            "reason": error,
            "severity": "high",
        });
        if let (true, Some(ack)) = (is_reused, ack) {
            event["conflict"] = json!(ack.conflict);
            event["broker_fingerprint_prefix"] = json!(ack.broker_fingerprint_prefix);
        }
        let msg = if is_reused {
            "idempotency_key_reused"
        } else {
            "outbox_dead"
        };
        self.log.error(msg, &event);
        self.metrics.count(DaemonMetric::Send, &[kind(row), "dead"]);
        self.events.publish(MeshEventKind::OutboxDead, event);
    }

    fn log_failure(&self, settled: Result<(), consign_engine::Error>) {
        if let Err(error) = settled {
            // The lease ends by itself, and the row is sent again.
            let fields = json!({"error": error.to_string()});
            self.log.error("outbox_write_failed", &fields);
        }
    }
}

fn dead(error: &str) -> AckOutcome {
    AckOutcome::Dead {
        error: error.to_owned(),
        is_reused: false,
    }
}

fn kind(row: &ClaimedRow) -> &str {
    let payload = row.payload.as_ref();
    let kind = payload.and_then(|payload| payload.destination_kind.as_deref());
    kind.unwrap_or("queue")
}

fn client_id(row: &ClaimedRow) -> Option<&str> {
    let payload = row.payload.as_ref()?;
    Some(&payload.client_message_id)
}
