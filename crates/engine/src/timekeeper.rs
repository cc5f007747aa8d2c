//! The loop that processes due rows: it ends delays and leases, and deletes old once-keys, records and facts.
//!
//! Correctness does not depend on it, because claims and reads process due rows themselves. It wakes waiting claims
//! on time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use consign_kernel::command::{Command, Forget, ForgetFacts, Sweep};
use consign_kernel::ids::{FactSeq, Micros, SECOND_US};
use consign_kernel::limits;
use consign_kernel::once::Scope;
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;
use consign_store::TypedReads as _;

use crate::{Engine, Error};

const SLEEP_MAX: Duration = Duration::from_secs(1);
const SLEEP_MIN: Duration = Duration::from_millis(2);
/// While due rows are locked by another transaction, or this node's clock is wrong.
const SLEEP_WHILE_BLOCKED: Duration = Duration::from_millis(100);
/// After a failure, so that a full disk is not retried constantly.
const SLEEP_AFTER_ERROR: Duration = Duration::from_secs(1);
const FORGET_INTERVAL_US: i64 = 60 * SECOND_US;
const FORGET_ROWS_MAX: u32 = 2_000;
/// Batches per kind and round, so that leases and delays are not delayed.
const FORGET_PIECES_MAX: u32 = 20;

/// Records with an expiry of their own.
const EXPIRING_KINDS: [Kind; 8] = [
    Kind::Kv,
    Kind::Receipt,
    Kind::Node,
    Kind::ActionClaim,
    Kind::RailEvent,
    // Only the entries of a user's list of drafts expire.
    Kind::Permission,
    Kind::BeamUsedNonce,
    Kind::BulkJob,
];

#[derive(Debug)]
pub struct Timekeeper {
    engine: Engine,
    forget_at: Micros,
    /// All facts up to here are old; those that remain belong to other faces.
    facts_seen: FactSeq,
}

impl Timekeeper {
    pub fn new(engine: Engine) -> Self {
        let forget_at = engine.now().plus(FORGET_INTERVAL_US);
        Self {
            engine,
            forget_at,
            facts_seen: FactSeq(0),
        }
    }

    /// Runs until `shutdown` ends. `follow` is called about once a second to adjust the clock.
    pub async fn run(
        mut self,
        shutdown: impl Future<Output = ()> + Send,
        follow: impl Fn() + Send,
    ) {
        tokio::pin!(shutdown);
        loop {
            follow();
            let pause = match self.tick().await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "the timekeeper failed; trying again");
                    SLEEP_AFTER_ERROR
                }
            };
            // Ordering: biased, because a simulation must be repeatable.
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                () = tokio::time::sleep(pause) => {}
                () = self.engine.inner.earlier.notified() => tokio::time::sleep(SLEEP_MIN).await,
            }
        }
    }

    /// One round of bounded work; returns how long nothing is due.
    pub async fn tick(&mut self) -> Result<Duration, Error> {
        let before = self.engine.now();
        let swept = self.engine.sweep().await?;
        let now = self.engine.now();
        let mut more = swept.more;
        if now >= self.forget_at && !self.engine.has_wrong_clock() {
            // A failed batch is not retried at once, so that leases and delays are processed.
            self.forget_at = now.plus(FORGET_INTERVAL_US);
            let rest = self.forget(now).await?;
            self.forget_at = if rest {
                now
            } else {
                now.plus(FORGET_INTERVAL_US)
            };
            more |= rest;
        }
        if more {
            return Ok(Duration::ZERO);
        }
        let due = self.engine.inner.store.next_due().await?;
        let latest = now.plus(micros(SLEEP_MAX));
        let mut until = due.map_or(latest, |due| due.min(latest));
        if swept.rows == 0 && until <= before {
            // The row was due and could not be moved; an immediate retry would run hundreds of times a second.
            until = now.plus(micros(SLEEP_WHILE_BLOCKED));
        }
        self.engine.inner.planned.store(until.0, Ordering::Release);
        let pause_us = u64::try_from(until.0 - self.engine.now().0).unwrap_or(0);
        Ok(Duration::from_micros(pause_us).max(SLEEP_MIN))
    }

    /// Deletes in small batches, so that other requests can run; returns whether more is left.
    async fn forget(&mut self, now: Micros) -> Result<bool, Error> {
        let mut rest = false;
        let limit = FORGET_ROWS_MAX;
        let mut pieces: Vec<Forget> = Scope::ALL
            .iter()
            .map(|scope| Forget::Once {
                scope: *scope,
                limit,
            })
            .collect();
        for kind in EXPIRING_KINDS {
            pieces.push(Forget::Records {
                kind,
                ahead_us: 0,
                limit,
            });
        }
        for piece in pieces {
            for number in 1..=FORGET_PIECES_MAX {
                let rows = self.engine.forget_piece(piece.clone()).await?;
                if rows != u64::from(limit) {
                    break;
                }
                rest |= number == FORGET_PIECES_MAX;
            }
        }
        Ok(self.forget_facts(now).await? || rest)
    }

    /// Only facts of the Intent Protocol: other faces keep theirs longer, and their facts are skipped once.
    async fn forget_facts(&mut self, now: Micros) -> Result<bool, Error> {
        for _ in 0..FORGET_PIECES_MAX {
            let piece = ForgetFacts {
                face: Face::Intent,
                before: now.minus(limits::FACT_RETENTION_US),
                after: self.facts_seen,
                limit: FORGET_ROWS_MAX,
            };
            let Some(after) = self.engine.forget_facts(piece).await? else {
                return Ok(false);
            };
            self.facts_seen = after;
        }
        Ok(true)
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepReport {
    /// The number of rows that moved.
    pub rows: u32,
    /// More are due.
    pub more: bool,
}

impl Engine {
    /// Processes a bounded number of due rows.
    pub async fn sweep(&self) -> Result<SweepReport, Error> {
        let sweep = Command::Sweep(Sweep {
            limit: limits::SWEEP_ROWS_MAX,
        });
        self.call(sweep).await
    }
}
