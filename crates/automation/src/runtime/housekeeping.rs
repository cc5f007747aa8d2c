//! Periodic work beside the scheduler: follows up unreported ends and deletes old rows in batches.
//!
//! It runs in its own task, so that a large deletion delays no schedule.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Engine, Error};
use consign_kernel::command::{Clean, Forget, ForgetFacts};
use consign_kernel::ids::FactSeq;
use consign_kernel::limits::RECORD_LIFE_US;
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;

use super::job::micros;
use super::lifecycle::RuntimeInner;
use super::unreported_ends::UnreportedEnds;
use crate::config::model::ServiceConfig;

/// The minimum pause, whatever `tick_interval` says.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);
const AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// Rows per commit; small, so that jobs never wait long.
const PIECE_ROWS: u32 = 500;
/// Batches per round and kind; the rest is deleted in the next round.
const PIECES_MAX: usize = 20;

/// Runs until the runtime stops.
pub(super) async fn run(inner: Arc<RuntimeInner>) {
    let mut stopping = inner.stopping.subscribe();
    let mut unreported_ends = UnreportedEnds::default();
    let mut retention = RetentionSweep::default();
    while !*stopping.borrow_and_update() {
        let program = inner.program();
        let service = &program.config().service;
        if let Err(error) = inner.finish_reload().await {
            tracing::warn!(component = "reload", %error, "follow-up work of a reload failed; the next round retries it");
        }
        // Before anything is deleted: following up a job needs its row.
        if let Err(error) = unreported_ends.follow_up_all(&inner, &program).await {
            tracing::warn!(component = "recovery", %error, "unreported ends of jobs could not be followed up; the next round retries");
        }
        if let Err(error) = retention.forget(&inner.engine, service).await {
            tracing::warn!(component = "retention", %error, "old rows could not be deleted; the next round retries");
        }
        let pause = service.tick_interval.clamp(AT_MOST_EVERY, AT_LEAST_EVERY);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = inner.unreported_ends.notified() => {}
            _ = stopping.changed() => {}
        }
    }
}

#[derive(Default)]
struct RetentionSweep {
    /// All facts up to this one are past retention; those that remain belong to other faces.
    facts_seen: FactSeq,
}

impl RetentionSweep {
    async fn forget(&mut self, engine: &Engine, service: &ServiceConfig) -> Result<(), Error> {
        let changes = service.breaker_transitions_retention;
        forget_records(engine, Kind::JobLog, service.job_log_retention).await?;
        forget_records(engine, Kind::BreakerChange, changes).await?;
        clean(engine, micros(service.job_queue_retention)).await?;
        // The same facts serve the views of transitions and of attempts.
        let retention = service
            .job_transitions_retention
            .max(service.job_attempts_retention);
        for _ in 0..PIECES_MAX {
            let piece = ForgetFacts {
                face: Face::Automation,
                before: engine.now().minus(micros(retention)),
                after: self.facts_seen,
                limit: PIECE_ROWS,
            };
            let Some(after) = engine.forget_facts(piece).await? else {
                break;
            };
            self.facts_seen = after;
        }
        forget_records(engine, Kind::PastJob, retention).await
    }
}

/// Deletes records older than the current retention, whatever it was when they were written.
async fn forget_records(engine: &Engine, kind: Kind, retention: Duration) -> Result<(), Error> {
    for _ in 0..PIECES_MAX {
        let piece = Forget::Records {
            kind,
            ahead_us: RECORD_LIFE_US.saturating_sub(micros(retention)),
            limit: PIECE_ROWS,
        };
        if engine.forget_piece(piece).await? != u64::from(PIECE_ROWS) {
            break;
        }
    }
    Ok(())
}

async fn clean(engine: &Engine, retention_us: i64) -> Result<(), Error> {
    for _ in 0..PIECES_MAX {
        let piece = Clean {
            face: Face::Automation,
            retention_us,
            limit: PIECE_ROWS,
        };
        if !engine.clean(piece).await?.more {
            break;
        }
    }
    Ok(())
}
