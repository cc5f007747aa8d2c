//! A process that was started for a few jobs: it runs these and what follows from them, and leaves all others where they are.
//!
//! A claim takes the first of those that wait, and cannot name one. So the jobs of an errand stand before all others
//! (`Program::for_one_shot`), and are claimed one by one when they are due, while nobody else works on the ledger.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consign_engine::Error;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::state::State;

use super::dispatch;
use super::lifecycle::RuntimeInner;
use super::reads::is_over;

/// A look at the ledger that nothing has asked for.
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

/// Runs the jobs of the errand until the service stops.
pub(super) async fn run(inner: Arc<RuntimeInner>) {
    let mut stopping = inner.stopping.subscribe();
    while !*stopping.borrow_and_update() {
        // Before the look: whatever changes afterwards is noticed.
        let changed = inner.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if let Err(error) = look(&inner).await {
            tracing::warn!(component = "dispatcher", %error, "no jobs could be taken");
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = stopping.changed() => {}
        }
    }
}

async fn look(inner: &Arc<RuntimeInner>) -> Result<(), Error> {
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
        if may_begin(inner, job, &open) {
            dispatch::claim_job(inner, job).await?;
        }
    }
    Ok(())
}

/// One that cannot be taken must not be asked for: the claim would bring another job instead.
fn may_begin(inner: &RuntimeInner, job: &Intent, open: &[Intent]) -> bool {
    let is_due = job.state == State::Queued && job.run_at <= inner.engine.now();
    let series = job.ties.series.as_ref();
    let is_behind = open.iter().any(|other| {
        let is_before = other.state == State::Dispatched || other.seq < job.seq;
        is_before && series.is_some() && other.ties.series.as_ref() == series
    });
    let program = inner.program();
    let plugin = program.plugin(job.capability.as_deref().unwrap_or_default());
    let is_full = plugin.is_some_and(|plugin| inner.running().is_full(&program, plugin));
    is_due && !is_behind && !is_full
}
