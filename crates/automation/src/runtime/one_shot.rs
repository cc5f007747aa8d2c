//! One-shot mode: runs the jobs that this process was started for and what follows from them, and no others.
//!
//! The jobs of this mode are leased by their ids when they are due. No other process may work on the ledger meanwhile.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consign_engine::{Error, KEPT_LEASE_US};
use consign_kernel::command::{Hold, Take};
use consign_kernel::error::Refusal;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::state::State;

use super::dispatch;
use super::lifecycle::RuntimeInner;
use super::reads::is_over;

/// The longest wait before the ledger is read without a wake.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The jobs that are not known to be over.
#[derive(Debug, Default)]
pub(super) struct OneShotJobs(Mutex<BTreeSet<IntentId>>);

impl OneShotJobs {
    pub(super) fn add(&self, id: IntentId) {
        self.jobs().insert(id);
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, BTreeSet<IntentId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the one-shot jobs until the runtime stops.
pub(super) async fn run(inner: Arc<RuntimeInner>) {
    let mut stopping = inner.stopping.subscribe();
    while !*stopping.borrow_and_update() {
        if let Err(error) = claim_due_jobs(&inner).await {
            tracing::warn!(component = "dispatcher", %error, "jobs could not be claimed");
        }
        tokio::select! {
            () = inner.worker.woken() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = stopping.changed() => {}
        }
    }
}

async fn claim_due_jobs(inner: &Arc<RuntimeInner>) -> Result<(), Error> {
    let Some(one_shot) = &inner.one_shot else {
        return Ok(());
    };
    if inner.start_backoff.remaining().is_some() {
        return Ok(());
    }
    let known: Vec<IntentId> = one_shot.jobs().iter().copied().collect();
    let mut open = Vec::with_capacity(known.len());
    for id in known {
        let job = inner.engine.observe(id).await?;
        match job.filter(|job| !is_over(job)) {
            Some(job) => open.push(job),
            None => {
                one_shot.jobs().remove(&id);
            }
        }
    }
    for job in &open {
        if may_start(inner, job, &open) {
            take_job(inner, job.id).await?;
        }
    }
    Ok(())
}

async fn take_job(inner: &Arc<RuntimeInner>, id: IntentId) -> Result<(), Error> {
    let take = Take {
        detail: None,
        id,
        face: Face::Automation,
        hold: Hold {
            holder: inner.holder(),
            lease_us: KEPT_LEASE_US,
        },
    };
    match inner.engine.take(take).await {
        Ok(Some(job)) => {
            let claimed = vec![(inner.worker.start(&job), job)];
            dispatch::start_claimed(inner, &inner.program(), claimed);
            Ok(())
        }
        // Cancelled or pruned meanwhile.
        Ok(None) | Err(Error::Refused(Refusal::IllegalState | Refusal::NotFound)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A lease by id ignores delays, series and limits, so they are checked here.
fn may_start(inner: &RuntimeInner, job: &Intent, open: &[Intent]) -> bool {
    let is_due = job.state == State::Queued && job.run_at <= inner.engine.now();
    let series = job.ties.series.as_ref();
    let is_behind = open.iter().any(|other| {
        let is_before = other.state == State::Dispatched || other.seq < job.seq;
        is_before && series.is_some() && other.ties.series.as_ref() == series
    });
    let program = inner.program();
    let plugin = program.plugin(job.capability.as_deref().unwrap_or_default());
    let is_full = plugin.is_some_and(|plugin| inner.is_full(&program, plugin));
    is_due && !is_behind && !is_full
}
