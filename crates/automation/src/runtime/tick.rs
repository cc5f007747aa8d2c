//! What is done on the ticks besides the schedules: loose ends are followed up, and old things go, in pieces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_engine::{Engine, Error};
use consign_kernel::command::{Answer, Clean, Command, Forget, ForgetFacts};
use consign_kernel::ids::FactSeq;
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;

use super::aftermath::Aftermath;
use super::job::micros;
use super::service::Inner;
use crate::config::model::Service;
use crate::program::Program;

/// However often the clock ticks.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// Per commit, so that jobs are never held up for long.
const PIECE_ROWS: u32 = 500;
/// Per round and kind of thing; what is left has its turn in the next one.
const PIECES_MAX: usize = 20;

#[derive(Default)]
pub(super) struct Rounds {
    last: Option<Instant>,
    aftermath: Aftermath,
    /// Up to here all facts are old, and those that are left belong to others.
    facts_seen: FactSeq,
}

impl Rounds {
    pub(super) async fn go(&mut self, inner: &Inner, program: &Arc<Program>) {
        if self.last.is_some_and(|last| last.elapsed() < AT_MOST_EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        if let Err(error) = inner.end_removed().await {
            tracing::warn!(component = "reload", %error, "jobs of removed plugins could not be ended; the next tick tries again");
        }
        // Before anything is removed: what follows from a job needs the job.
        if let Err(error) = self.aftermath.go(inner, program).await {
            tracing::warn!(component = "recovery", %error, "ends of jobs could not be followed up; the next tick tries again");
        }
        if let Err(error) = self.forget(&inner.engine, &program.config().service).await {
            tracing::warn!(component = "retention", %error, "old rows could not be removed; the next tick tries again");
        }
    }

    async fn forget(&mut self, engine: &Engine, service: &Service) -> Result<(), Error> {
        for kind in [Kind::JobLog, Kind::BreakerChange] {
            forget_records(engine, kind).await?;
        }
        clean(engine, micros(service.job_queue_retention)).await?;
        // Transitions and attempts are told by the same facts.
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
            let answer = engine.apply(None, Command::ForgetFacts(piece)).await?;
            match answer {
                Answer::FactsForgotten {
                    after: Some(after), ..
                } => self.facts_seen = after,
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// They say themselves until when they are kept.
async fn forget_records(engine: &Engine, kind: Kind) -> Result<(), Error> {
    for _ in 0..PIECES_MAX {
        let piece = Command::Forget(Forget::Records {
            kind,
            limit: PIECE_ROWS,
        });
        let full = Answer::Forgotten {
            rows: u64::from(PIECE_ROWS),
        };
        if engine.apply(None, piece).await? != full {
            break;
        }
    }
    Ok(())
}

async fn clean(engine: &Engine, retention_us: i64) -> Result<(), Error> {
    for _ in 0..PIECES_MAX {
        let piece = Command::Clean(Clean {
            face: Face::Automation,
            retention_us,
            limit: PIECE_ROWS,
        });
        match engine.apply(None, piece).await? {
            Answer::Cleaned(cleaned) if cleaned.more => {}
            _ => break,
        }
    }
    Ok(())
}
