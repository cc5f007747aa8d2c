//! Follows up ends of jobs that no dispatcher reported: an expired lease, a cancelled job, and a job that an earlier start left
//! running.
//!
//! They are found in the facts of the ledger. The watermark is written together with the consequences, so each end is followed up
//! exactly once, by any node, even after a crash.

use std::sync::Arc;

use consign_engine::{Error, EventFilter, UnitOfWork, Versioned};
use consign_kernel::error::Refusal;
use consign_kernel::fact::{Event, Fact};
use consign_kernel::ids::FactSeq;
use consign_kernel::profile::Face;
use consign_kernel::state::{State, Verb};

use super::attempt::{Attempt, AttemptEnd, AttemptFailure, AttemptReport};
use super::dispatch;
use super::finish::{self, RECOVERED};
use super::job::{Job, OWNER, job_id};
use super::lifecycle::{RuntimeInner, timestamp};
use super::publish;
use super::records;
use crate::pipeline::PUBLISH_PLUGIN;
use crate::program::Program;

const PAGE_FACTS: u32 = 500;
/// The maximum number of facts without consequences that a restart may have to read again.
const MARK_EVERY: u64 = 5_000;

#[derive(Default)]
pub(super) struct UnreportedEnds {
    scanned: FactSeq,
}

impl UnreportedEnds {
    pub(super) async fn follow_up_all(
        &mut self,
        inner: &RuntimeInner,
        program: &Arc<Program>,
    ) -> Result<(), Error> {
        while !*inner.stopping.borrow() {
            match self.page(inner, program).await {
                Ok(true) => {}
                Ok(false) => break,
                // Another node is following up, or a breaker changed meanwhile: the next round reads again.
                Err(Error::Refused(Refusal::VersionMismatch)) => {
                    self.scanned = FactSeq(0);
                    inner.unreported_ends.notify_one();
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether there are more pages.
    async fn page(&mut self, inner: &RuntimeInner, program: &Arc<Program>) -> Result<bool, Error> {
        let engine = &inner.engine;
        let mut mark: Versioned<records::Watermark> =
            engine.load_or_default(records::watermark_key()).await?;
        let marked = FactSeq(mark.value.fact);
        let reading = engine.events(EventFilter {
            face: Face::Automation,
            owner: OWNER.to_owned(),
            after: self.scanned.max(marked),
            limit: PAGE_FACTS,
        });
        let mut stopping = inner.stopping.subscribe();
        let page = tokio::select! {
            page = reading => page?,
            // The read waits for open transactions of other nodes; a stopping runtime does not.
            _ = stopping.wait_for(|stopping| *stopping) => return Ok(false),
        };
        for event in page.events {
            if is_unreported_end(&event.fact) {
                mark.value.fact = event.fact.seq.0;
                follow_up(inner, program, event, &mut mark).await?;
            }
        }
        self.scanned = page.seen;
        if page.seen.0 >= mark.value.fact + MARK_EVERY {
            mark.value.fact = page.seen.0;
            let mut unit = UnitOfWork::default();
            unit.replace(&mark);
            engine.commit(unit).await?;
        }
        Ok(page.more)
    }
}

fn is_unreported_end(fact: &Fact) -> bool {
    matches!(fact.verb, Verb::Expire | Verb::Recover | Verb::Cancel)
}

async fn follow_up(
    inner: &RuntimeInner,
    program: &Arc<Program>,
    Event { fact, id, .. }: Event,
    mark: &mut Versioned<records::Watermark>,
) -> Result<(), Error> {
    let Some(mut intent) = inner.engine.observe(id).await? else {
        return Ok(());
    };
    let job = match Job::read(&intent) {
        Ok(job) => job,
        Err(error) => {
            tracing::error!(job_id = job_id(id), %error, "a job cannot be read; its end is not followed up");
            return Ok(());
        }
    };
    // If the step was retried meanwhile, it waits for the same intent.
    if job.plugin == PUBLISH_PLUGIN && intent.state == State::DeadLetter {
        publish::cancel_published(&inner.engine, id).await?;
    }
    let failure = failure(&fact, intent.attempts_max);
    let completed_at = timestamp(fact.at);
    let has_run = fact.from != Some(State::Queued);
    let claimed_at = intent.claimed_at.filter(|at| has_run && *at <= fact.at);
    // The values at the time of the fact; the job may have moved on.
    intent.attempts = fact.attempt;
    let attempt = Attempt {
        intent,
        job,
        program: Arc::clone(program),
        context: serde_json::Map::new(),
        unready: None,
        started_at: claimed_at.map_or(completed_at, timestamp),
    };
    let ended = AttemptReport {
        end: AttemptEnd::Cancelled,
        stdout: None,
        stderr: None,
        completed_at,
    };
    let finished =
        finish::record_unreported_end(&inner.engine, &attempt, &ended, &failure, mark).await?;
    mark.version += 1;
    dispatch::report(inner, &attempt, &ended, &finished);
    Ok(())
}

/// How a fact that no dispatcher wrote ended an attempt.
pub(super) fn failure(fact: &Fact, attempts_max: u32) -> AttemptFailure {
    let timed_out = fact.verb == Verb::Expire;
    let (reason, usual, again) = if timed_out {
        let silent = "the lease of the node that ran it expired";
        ("lease_expired", silent, fact.attempt < attempts_max)
    } else if fact.verb == Verb::Recover {
        (RECOVERED, "the service stopped", fact.to == State::Queued)
    } else {
        ("cancelled", "it was cancelled", false)
    };
    AttemptFailure {
        error: fact.detail.clone().unwrap_or_else(|| usual.to_owned()),
        reason,
        timed_out,
        again,
    }
}
