//! The end of messages and of their ids, and of the records and facts that go with them.
//!
//! Messages that are past their end are removed by whatever applies passed deadlines; a pass of the retention does the same
//! for any time, and removes expired ids, records and facts as well. The removal of a message and the mark in the record of
//! its id are one commit of the ledger.

use consign_engine::{Error, Operator};
use consign_kernel::command::{Clean, Forget, ForgetFacts, Prune};
use consign_kernel::ids::{DAY_US, FactSeq, Micros};
use consign_kernel::limits;
use consign_kernel::once::Scope;
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;

use super::counters::BrokerMetric;
use super::{Broker, BrokerError, DedupeRetention};

/// Rows per commit, so that a pass does not delay messages for long.
const PIECE_ROWS: u32 = 500;
/// Facts are kept this much longer than the messages of any mesh.
const FACTS_KEPT_AFTER_DAYS: u32 = 30;

/// The records that end with messages, and those that have an end of their own, which no other time moves.
const OF_MESSAGES: [Kind; 2] = [Kind::MeshHistory, Kind::MeshBlob];
const OTHERS: [Kind; 2] = [Kind::MeshInvite, Kind::MeshPresence];

/// What a pass of the retention removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionReport {
    pub messages_pruned: u64,
    pub dedupe_expired: u64,
}

impl Broker {
    /// Removes what ends by `as_of`, a time of the wall clock, or only counts it.
    pub async fn sweep(
        &self,
        operator: Operator,
        as_of: Micros,
        dry_run: bool,
    ) -> Result<RetentionReport, BrokerError> {
        let engine = self.engine();
        let ahead_us = as_of.0.saturating_sub(engine.wall().0);
        let until = Micros(engine.now().0.saturating_add(ahead_us));
        if dry_run {
            let ending = engine.mesh_ending(operator, until).await?;
            return Ok(RetentionReport {
                messages_pruned: ending.messages,
                dedupe_expired: ending.keys,
            });
        }
        let messages_pruned = self.prune_until(until).await?;
        let dedupe_expired = self
            .forget_all(|| Forget::OnceEnding {
                scope: Scope::MeshMessage,
                ahead_us,
                limit: PIECE_ROWS,
            })
            .await?;
        let of_messages = OF_MESSAGES.map(|kind| (kind, ahead_us));
        let others = OTHERS.map(|kind| (kind, 0));
        for (kind, ahead_us) in of_messages.into_iter().chain(others) {
            self.forget_all(|| Forget::Records {
                kind,
                ahead_us,
                limit: PIECE_ROWS,
            })
            .await?;
        }
        self.clean_settled().await?;
        self.remove_old_blobs().await?;
        self.counters().count(BrokerMetric::TTL_SWEEPS, &[]);
        Ok(RetentionReport {
            messages_pruned,
            dedupe_expired,
        })
    }

    async fn prune_until(&self, until: Micros) -> Result<u64, Error> {
        let mut messages = 0;
        loop {
            let piece = Prune {
                face: Face::Mesh,
                until,
                limit: PIECE_ROWS,
            };
            let pruned = self.engine().prune(piece).await?;
            messages += pruned.messages;
            if !pruned.more {
                return Ok(messages);
            }
        }
    }

    async fn forget_all(&self, piece: impl Fn() -> Forget) -> Result<u64, Error> {
        let mut forgotten = 0;
        loop {
            let rows = self.engine().forget_piece(piece()).await?;
            forgotten += rows;
            if rows < u64::from(PIECE_ROWS) {
                return Ok(forgotten);
            }
        }
    }

    /// Removes acknowledged deliveries and finished items of queues.
    async fn clean_settled(&self) -> Result<(), Error> {
        loop {
            let piece = Clean {
                face: Face::Mesh,
                retention_us: limits::RETENTION_US,
                limit: PIECE_ROWS,
            };
            if !self.engine().clean(piece).await?.more {
                return Ok(());
            }
        }
    }

    /// Removes facts that are older than every message. `seen` is where the last pass stopped.
    pub(super) async fn forget_old_facts(
        &self,
        operator: Operator,
        seen: &mut FactSeq,
    ) -> Result<(), BrokerError> {
        let meshes = self.meshes(operator).await?;
        let longest = meshes.iter().map(|mesh| mesh.message_days).max();
        let days = longest.unwrap_or(0).saturating_add(FACTS_KEPT_AFTER_DAYS);
        let before = self.engine().now().minus(i64::from(days) * DAY_US);
        loop {
            let piece = ForgetFacts {
                face: Face::Mesh,
                before,
                after: *seen,
                limit: PIECE_ROWS,
            };
            match self.engine().forget_facts(piece).await? {
                Some(after) => *seen = after,
                None => return Ok(()),
            }
        }
    }

    /// Counts the meshes whose messages outlive their ids: a late retry would be a second message there.
    pub(super) async fn note_misconfigured(&self, operator: Operator) -> Result<(), BrokerError> {
        for mesh in self.meshes(operator).await? {
            if let DedupeRetention::Days(days) = mesh.dedupe
                && days < mesh.message_days
            {
                let (ids, messages) = (days.to_string(), mesh.message_days.to_string());
                let labels = [&*mesh.id, &ids, &messages];
                self.counters().count(BrokerMetric::MISCONFIGURED, &labels);
                tracing::warn!(mesh = %mesh.slug, "this mesh forgets ids before messages");
            }
        }
        Ok(())
    }
}
