//! The retry worker: at each tick it attempts the due messages, one after another, without waiting long for a slow one.

use std::cmp::Reverse;
use std::time::Duration;

use consign_engine::{Error, Lease};
use consign_kernel::command::{Audience, Claim, Settlement};
use consign_kernel::intent::Intent;
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::Face;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{ATTEMPT_LEASE_US, NAMESPACE};
use crate::service::Beam;

/// Messages of one tick.
const CLAIMED_MAX: u32 = 10;
/// The next message of a tick is attempted after this time, even if the attempt before it has not ended: a recipient that does
/// not answer must not delay the messages of others.
const PATIENCE: Duration = Duration::from_secs(1);
/// The last message of a tick waits for the attempts of all others, which may take this long in all. If the node is killed
/// meanwhile, another node does not wait for the end of the lease, see `relay/takeover.rs`.
const TICK_LEASE_US: i64 = ATTEMPT_LEASE_US * (CLAIMED_MAX as i64);
/// How long a stop waits for the attempts in progress. After that, the next start retries it.
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
                () = self.inner.bus.due.notified() => {}
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
            max: CLAIMED_MAX * if plant::on(Plant::TickTakesAll) { 2 } else { 1 },
            lease_us: TICK_LEASE_US,
            grant: None,
        };
        let mut rows = self.engine().claim(None, claim, Duration::ZERO).await?;
        rows.sort_by_key(|row| (Reverse(row.priority), row.created_at, row.seq));
        let mut stopping = self.bus_stopping();
        let (mut attempted, mut slow) = (0, Vec::new());
        let mut rows = rows.into_iter();
        for row in rows.by_ref() {
            if *stopping.borrow() {
                self.give_back(&row).await;
                break;
            }
            attempted += 1;
            let mut attempt = self.start_attempt(row);
            tokio::select! {
                ended = &mut attempt => report_panic(ended),
                () = tokio::time::sleep(PATIENCE) => slow.push(attempt),
                () = stopped(&mut stopping) => slow.push(attempt),
            }
        }
        for row in rows {
            self.give_back(&row).await;
        }
        let all = async {
            for attempt in slow {
                report_panic(attempt.await);
            }
        };
        let is_late = async {
            stopped(&mut stopping).await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        tokio::select! {
            () = all => {}
            () = is_late => {}
        }
        Ok(attempted)
    }

    /// The attempt goes on if the tick no longer waits for it.
    fn start_attempt(&self, row: Intent) -> JoinHandle<()> {
        let beam = self.clone();
        tokio::spawn(async move {
            if let Err(error) = beam.attempt(&row).await {
                tracing::warn!(%error, message = %row.id, "the outcome of an attempt was not stored");
            }
        })
    }

    /// A message that was claimed and not attempted is due as before.
    async fn give_back(&self, row: &Intent) {
        let settle = Lease::of(row).settle(Settlement::GiveBack);
        if let Err(error) = self.engine().settle(settle).await {
            tracing::warn!(%error, message = %row.id, "a message stays leased until the next start");
        }
    }
}

fn report_panic(ended: Result<(), JoinError>) {
    if let Err(panicked) = ended {
        tracing::error!(%panicked, "the attempt of a message panicked");
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
