//! The cleanup pass and the purge of one face, in bounded batches, and the schedule of the pass.
//!
//! The ledger records the time of the last pass, so an interval continues when a server restarts. A pass right after a start
//! would be wrong: it requeues lapsed leases with a delay, and after a restart workers must find them at once. It also deletes,
//! and an operator who started with a wrong clock needs a moment to notice.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use consign_kernel::command::{Clean, Command, Forget, Purge};
use consign_kernel::ids::{Micros, SECOND_US, Seq};
use consign_kernel::once::Scope;
use consign_kernel::profile::Face;
use consign_kernel::record::{Key, Kind};

use crate::records::new_put;
use crate::{Engine, Error, Operator};

/// Rows per commit, so that a pass does not block other requests for long.
const PIECE_ROWS: u32 = 500;
/// After a start, no pass begins for this long.
const START_GRACE_US: i64 = 60 * SECOND_US;
const RETRY_AFTER_US: i64 = 60 * SECOND_US;

/// The result of a cleanup pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupReport {
    pub expired_open_deleted: u64,
    pub expired_claims_requeued: u64,
    pub expired_claims_dead: u64,
    pub fulfilled_deleted: u64,
    pub dead_deleted: u64,
    pub store_deleted: u64,
    pub rate_limits_deleted: u64,
    pub idempotency_deleted: u64,
    pub nonces_deleted: u64,
}

/// When the next pass may begin. Until [`Engine::resume_cleanup`] has read the ledger, that is an interval after the start.
#[derive(Debug)]
pub(crate) struct CleanupSchedule {
    next_at: AtomicI64,
    interval_us: i64,
}

impl CleanupSchedule {
    pub(crate) fn new(now: Micros, interval: Duration) -> Self {
        let interval_us = i64::try_from(interval.as_micros()).unwrap_or(i64::MAX);
        Self {
            next_at: AtomicI64::new(now.plus(interval_us).0),
            interval_us,
        }
    }

    /// Returns `true` to exactly one caller per interval.
    fn take(&self, now: Micros) -> bool {
        let next = self.next_at.load(Ordering::Relaxed);
        next <= now.0
            && self
                .next_at
                .compare_exchange(
                    next,
                    now.plus(self.interval_us).0,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// The next pass is an interval after the last one, at most an interval away, and not right now.
    fn resume(&self, last: Micros, now: Micros) {
        let next = last.min(now).plus(self.interval_us);
        let next = next.max(now.plus(START_GRACE_US));
        self.next_at.store(next.0, Ordering::Release);
    }

    fn failed(&self, now: Micros) {
        self.next_at
            .store(now.plus(RETRY_AFTER_US).0, Ordering::Release);
    }
}

impl Engine {
    /// Called with every request: runs the pass when it is due. After a failure the next try is a minute later. With
    /// a wrong clock there is no pass.
    pub async fn cleanup_if_due(&self, face: Face) -> Option<CleanupReport> {
        if self.has_wrong_clock() || !self.inner.cleanup.take(self.now()) {
            return None;
        }
        match self.cleanup(Operator::vouched(), face).await {
            Ok(report) => Some(report),
            Err(error) => {
                tracing::warn!(%error, "the cleanup pass failed; trying again in a minute");
                self.inner.cleanup.failed(self.now());
                None
            }
        }
    }

    /// Continues the interval that began with the last recorded pass. In a ledger without one, it begins now.
    pub async fn resume_cleanup(&self, face: Face) -> Result<(), Error> {
        let now = self.now();
        let last = if let Some(last) = self.load(last_pass_key(face)).await? {
            Micros(last.value)
        } else {
            self.record_pass(face, now).await?;
            now
        };
        self.inner.cleanup.resume(last, now);
        Ok(())
    }

    /// When the last pass of a face was recorded.
    pub async fn last_cleanup(&self, face: Face) -> Result<Option<Micros>, Error> {
        let last = self.load(last_pass_key(face)).await?;
        Ok(last.map(|last| Micros(last.value)))
    }

    async fn record_pass(&self, face: Face, at: Micros) -> Result<(), Error> {
        self.put(new_put(last_pass_key(face), &at.0)).await?;
        Ok(())
    }

    /// Whether a pass is due, without starting it: one load on the path of every request.
    pub fn cleanup_is_due(&self) -> bool {
        self.inner.cleanup.next_at.load(Ordering::Relaxed) <= self.now().0
    }

    /// Does nothing while this node's clock is wrong, because nothing is known to be expired.
    pub async fn cleanup(&self, _: Operator, face: Face) -> Result<CleanupReport, Error> {
        let mut report = CleanupReport::default();
        if self.has_wrong_clock() {
            return Ok(report);
        }
        loop {
            let piece = Clean {
                face,
                retention_us: consign_kernel::limits::RETENTION_US,
                limit: PIECE_ROWS,
            };
            let cleaned = self.clean(piece).await?;
            report.expired_open_deleted += cleaned.expired_deleted;
            report.expired_claims_requeued += cleaned.leases_requeued;
            report.expired_claims_dead += cleaned.leases_dead;
            report.fulfilled_deleted += cleaned.done_deleted;
            report.dead_deleted += cleaned.dead_deleted;
            if !cleaned.more {
                break;
            }
        }
        report.idempotency_deleted = self.forget_once(Scope::IntentIdempotency).await?;
        report.nonces_deleted = self.forget_once(Scope::IntentNonce).await?;
        report.store_deleted = self
            .forget(|| Forget::Records {
                kind: Kind::Kv,
                ahead_us: 0,
                limit: PIECE_ROWS,
            })
            .await?;
        report.rate_limits_deleted = self.forget_windows().await?;
        self.forget_audit().await?;
        self.record_pass(face, self.now()).await?;
        Ok(report)
    }

    /// Removes all intents of a face, or those of one namespace. Without a namespace it also removes the face's
    /// once-keys, key-value entries and rate windows.
    pub async fn purge(
        &self,
        _: Operator,
        face: Face,
        namespace: Option<&str>,
    ) -> Result<u64, Error> {
        let (mut after, mut removed) = (Seq(0), 0);
        loop {
            let purge = Purge {
                face,
                namespace: namespace.map(str::to_owned),
                after,
                limit: PIECE_ROWS,
            };
            let (rows, next): (u32, Option<Seq>) = self.call(Command::Purge(purge)).await?;
            removed += u64::from(rows);
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
        if namespace.is_none() {
            self.forget(|| Forget::OnceOfFace {
                face,
                limit: PIECE_ROWS,
            })
            .await?;
            self.forget_all_records(Kind::Kv).await?;
            self.forget_all_windows().await?;
        }
        Ok(removed)
    }

    pub(crate) async fn forget_all_records(&self, kind: Kind) -> Result<u64, Error> {
        self.forget(|| Forget::AllRecords {
            kind,
            limit: PIECE_ROWS,
        })
        .await
    }

    async fn forget_once(&self, scope: Scope) -> Result<u64, Error> {
        self.forget(|| Forget::Once {
            scope,
            limit: PIECE_ROWS,
        })
        .await
    }

    pub(crate) async fn forget(&self, piece: impl Fn() -> Forget) -> Result<u64, Error> {
        let mut forgotten = 0;
        loop {
            let rows = self.forget_piece(piece()).await?;
            forgotten += rows;
            if rows < u64::from(PIECE_ROWS) {
                return Ok(forgotten);
            }
        }
    }
}

/// The record with the engine time of the last pass, in microseconds.
fn last_pass_key(face: Face) -> Key {
    Key {
        kind: Kind::Site,
        owner: String::new(),
        name: format!("cleanup.{}", face.name()),
    }
}
