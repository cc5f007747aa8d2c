//! Publishes the intents of the outbox, one after the other in the order in which they are due.
//!
//! Invariant: while the server cannot be reached, no row is claimed, as no message is while the broker is not connected. A row
//! that the server answers with "later" waits alone; the others go on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use consign_client::Client;
use futures_util::future::FutureExt as _;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::access::IntentAccess;
use super::outcome::{IntentAttempt, attempt};
use crate::daemon::drain::{GOODBYE, OutboxSender, TOO_OLD};
use crate::daemon::outbox_queue::{CLAIM_WAIT, ClaimedRow, RowKind};
use crate::daemon::random;
use crate::daemon::shared::{DaemonShared, wall_ms};
use crate::max_age::MaxAge;
use crate::outbox::AckOutcome;
use crate::reconnect::reconnect_delay_ms;

/// Runs until the daemon ends.
pub(in crate::daemon) async fn drain(shared: Arc<DaemonShared>) {
    let publisher = IntentPublisher {
        sender: OutboxSender::of(&shared),
        shared: Arc::clone(&shared),
    };
    let ended = async { drop(shared.until_end().await) }.shared();
    tokio::select! {
        // An attempt in progress is given its moment inside.
        () = publisher.run(&ended) => {}
        () = async { ended.clone().await; sleep(2 * GOODBYE).await } => {}
    }
}

/// A client for the settings that it was made from.
struct Opened {
    access: IntentAccess,
    client: Client,
}

struct IntentPublisher {
    sender: OutboxSender,
    shared: Arc<DaemonShared>,
}

impl IntentPublisher {
    async fn run(&self, ended: &(impl Future<Output = ()> + Clone)) {
        let mut opened = None;
        let mut failures = 0;
        while !self.shared.is_ending() {
            let claimed = self
                .sender
                .queue
                .claim(RowKind::Intent, 1, CLAIM_WAIT, ended.clone())
                .await;
            let row = match claimed {
                Ok(mut rows) => rows.pop(),
                Err(error) => {
                    let fields = json!({"error": error.to_string()});
                    self.shared.log.error("outbox_read_failed", &fields);
                    failures += 1;
                    self.pause(failures, ended).await;
                    continue;
                }
            };
            let Some(row) = row else {
                continue;
            };
            let tried = self.publish(&mut opened, &row, ended).await;
            let is_over = !matches!(tried.outcome, AckOutcome::Retry(_));
            let is_reached = tried.is_reached;
            self.sender.conclude(&row, tried.outcome, None).await;
            if is_over {
                failures = 0;
                continue;
            }
            failures += 1;
            self.pause(failures, ended).await;
            while !is_reached && !self.is_there(&mut opened).await && !self.shared.is_ending() {
                failures += 1;
                self.pause(failures, ended).await;
            }
        }
    }

    /// One attempt.
    async fn publish(
        &self,
        opened: &mut Option<Opened>,
        row: &ClaimedRow,
        ended: &(impl Future<Output = ()> + Clone),
    ) -> IntentAttempt {
        let dead = |error: &str| IntentAttempt {
            outcome: AckOutcome::Dead {
                error: error.to_owned(),
                is_reused: false,
            },
            is_reached: true,
        };
        let later = |error: String| IntentAttempt {
            outcome: AckOutcome::Retry(error),
            is_reached: true,
        };
        if self.is_too_old(row) {
            return dead(TOO_OLD);
        }
        let request = row.payload.as_ref().and_then(|payload| {
            let request = payload.request().filter(|request| !request.is_empty());
            Some((request?, payload.client_message_id.as_str()))
        });
        let Some((request, id)) = request else {
            return dead("invalid: the row has no request");
        };
        let client = match self.client(opened) {
            Ok(client) => client,
            Err(error) => return later(error),
        };
        let answer = client.publish_text(&request, id);
        let gone = async {
            ended.clone().await;
            sleep(GOODBYE).await;
        };
        tokio::select! {
            biased;
            answer = answer => attempt(answer),
            () = gone => later("the daemon ended before the answer".to_owned()),
        }
    }

    /// How old a row may be is known by the two clocks of this machine; it is given up only if both say so.
    fn is_too_old(&self, row: &ClaimedRow) -> bool {
        let hours = self.shared.config().intents.max_age_hours;
        let max_age = MaxAge {
            hours,
            cutoff_hours: hours,
            warning: None,
        };
        let age_ms = |now_ms: i64| now_ms.saturating_sub(row.enqueued_at_ms);
        max_age.is_past(age_ms(self.sender.queue.now_ms()), age_ms(wall_ms()))
    }

    /// The client for the current settings.
    fn client<'a>(&self, opened: &'a mut Option<Opened>) -> Result<&'a Client, String> {
        let access = IntentAccess::read(&self.shared).map_err(|error| error.to_string())?;
        let is_current = opened.as_ref().is_some_and(|open| open.access == access);
        if !is_current {
            let client = access.client().map_err(|error| error.to_string())?;
            *opened = Some(Opened { access, client });
        }
        let open = opened.as_ref().map(|open| &open.client);
        open.ok_or_else(|| "there is no client".to_owned())
    }

    /// Whether the server answers at all. Without a way to ask, the next attempt says why.
    async fn is_there(&self, opened: &mut Option<Opened>) -> bool {
        match self.client(opened) {
            Ok(client) => client.reach().await.is_ok(),
            Err(_) => true,
        }
    }

    /// The pause of a connection that failed, or less at the end of the daemon.
    async fn pause(&self, failures: u32, ended: &(impl Future<Output = ()> + Clone)) {
        let entropy = u64::from_le_bytes(random::bytes());
        let config = self.shared.config();
        let pause = reconnect_delay_ms(&config.reconnect, failures.saturating_sub(1), entropy);
        let pause = Duration::from_millis(pause);
        // Either is fine.
        let _ = timeout(pause, ended.clone()).await;
    }
}
