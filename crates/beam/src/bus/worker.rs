//! The retry worker: at each tick it attempts the due messages, one after another.

use std::cmp::Reverse;
use std::time::Duration;

use consign_engine::{Error, Lease};
use consign_kernel::command::{Audience, Claim, Settlement};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{ATTEMPT_LEASE_US, NAMESPACE};
use crate::service::Beam;

/// Messages of one tick.
const CLAIMED_MAX: u32 = 10;
/// The last message of a tick waits for the attempts of all others.
const TICK_LEASE_US: i64 = ATTEMPT_LEASE_US * (CLAIMED_MAX as i64);
/// How long a stop waits for the attempt in progress. After that, the next start retries it.
const STOP_GRACE: Duration = Duration::from_secs(2);
const INTERVAL_MIN: Duration = Duration::from_millis(1);

impl Beam {
    /// Retries messages until the process stops. Waiting requests and event streams of the bus end then too.
    pub async fn run_bus(self, mut stopping: watch::Receiver<bool>) {
        let stop = async {
            // An error means that the sender is gone, which is the end as well.
            let _ = stopping.wait_for(|stopping| *stopping).await;
            self.inner.bus.stopping.send_replace(true);
        };
        tokio::join!(stop, self.retry_until_stopped());
    }

    async fn retry_until_stopped(&self) {
        let every = self.settings().bus.retry_interval.max(INTERVAL_MIN);
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = self.bus_stopping();
        loop {
            tokio::select! {
                () = stopped(&mut stopping) => return,
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.retry_due_messages().await {
                tracing::warn!(%error, "due messages could not be claimed; trying again");
            }
        }
    }

    /// One tick: attempts at most ten due messages, those of the highest priority and then the oldest first. Returns how
    /// many were attempted.
    pub async fn retry_due_messages(&self) -> Result<usize, Error> {
        let claim = Claim {
            face: Face::Beam,
            namespace: NAMESPACE.to_owned(),
            goal: None,
            holder: self.holder(),
            audience: Audience::Caller,
            worker_id: None,
            capabilities: Vec::new(),
            max: CLAIMED_MAX,
            lease_us: TICK_LEASE_US,
        };
        let mut rows = self.engine().claim(None, claim, Duration::ZERO).await?;
        rows.sort_by_key(|row| (Reverse(row.priority), row.created_at, row.seq));
        let mut stopping = self.bus_stopping();
        let mut attempted = 0;
        let mut rows = rows.into_iter();
        for row in rows.by_ref() {
            if *stopping.borrow() {
                self.give_back(&row).await;
                break;
            }
            attempted += 1;
            if !self.attempt_unless_stopped(row, &mut stopping).await {
                break;
            }
        }
        for row in rows {
            self.give_back(&row).await;
        }
        Ok(attempted)
    }

    /// False if the process stops before the attempt ends.
    async fn attempt_unless_stopped(
        &self,
        row: Intent,
        stopping: &mut watch::Receiver<bool>,
    ) -> bool {
        let beam = self.clone();
        let attempt = tokio::spawn(async move {
            if let Err(error) = beam.attempt(&row).await {
                tracing::warn!(%error, message = %row.id, "the outcome of an attempt was not stored");
            }
        });
        let is_late = async {
            stopped(stopping).await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        tokio::select! {
            ended = attempt => {
                if let Err(panicked) = ended {
                    tracing::error!(%panicked, "the attempt of a message panicked");
                }
                true
            }
            () = is_late => false,
        }
    }

    /// A message that was claimed and not attempted is due as before.
    async fn give_back(&self, row: &Intent) {
        let settle = Lease::of(row).settle(Settlement::GiveBack);
        if let Err(error) = self.engine().settle(settle).await {
            tracing::warn!(%error, message = %row.id, "a message stays leased until the next start");
        }
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
