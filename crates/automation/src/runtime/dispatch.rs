//! The dispatcher: claims jobs while worker slots are free, only for plugins below their own concurrency limit.
//!
//! A plugin at its limit is left out of the claim, so its backlog does not block other plugins. Leases are short and extended
//! while the process runs; a lost lease means that the job was cancelled or taken over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use consign_kernel::command::{Audience, Claim, Command, Extend};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use tokio::sync::Notify;

use super::attempt::{Attempt, AttemptEnd, AttemptReport};
use super::finish::{self, FinishedAttempt};
use super::job::{Job, NAMESPACE, OWNER, job_id};
use super::job_status::JobStatus;
use super::lifecycle::RuntimeInner;
use super::live_events::LiveEventKind;
use crate::pipeline::{PUBLISH_PLUGIN, SWITCH_PLUGIN};
use crate::program::{Plugin, Program};

const LEASE_US: i64 = 60 * SECOND_US;
const EXTEND_EVERY: Duration = Duration::from_secs(20);
/// The longest wait before the dispatcher looks at the ledger without a wake.
const POLL_INTERVAL: Duration = Duration::from_mins(1);
/// The maximum number of steps that wait for an intent.
const WAITS_MAX: usize = 1_000;
/// The delay between retries while the ledger is unavailable.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The jobs that run in this process.
#[derive(Default)]
pub(super) struct RunningJobs {
    /// How to cancel each job. A job that was claimed again while its previous attempt still ends has two slots and one signal.
    cancel_signals: HashMap<IntentId, Arc<Notify>>,
    slots: usize,
    by_plugin: HashMap<String, usize>,
    /// Jobs that pending claims may return: in total, and per plugin.
    pending_slots: usize,
    pending_by_plugin: HashMap<String, usize>,
}

/// Which plugins a claim covers and how many jobs it may return. They count as running until [`RunningJobs::finish_claim`].
#[derive(Default)]
struct ClaimPlan {
    plugins: Vec<String>,
    jobs_max: usize,
    /// How many of the jobs need a worker slot.
    worker_slots: usize,
}

impl RunningJobs {
    pub(super) fn count(&self) -> usize {
        self.slots
    }

    /// The number of used worker slots. A job that waits for an intent uses none.
    pub(super) fn working(&self) -> usize {
        self.slots - self.by_plugin.get(PUBLISH_PLUGIN).copied().unwrap_or(0)
    }

    /// Cancels the process of a job if it runs here.
    pub(super) fn cancel(&self, id: IntentId) -> bool {
        let found = self.cancel_signals.get(&id);
        found.inspect(|signal| signal.notify_one()).is_some()
    }

    fn add(&mut self, id: IntentId, plugin: &str) -> Arc<Notify> {
        let cancel = Arc::new(Notify::new());
        self.cancel_signals.insert(id, Arc::clone(&cancel));
        self.slots += 1;
        *self.by_plugin.entry(plugin.to_owned()).or_default() += 1;
        cancel
    }

    /// Must be called once for each [`RunningJobs::add`].
    fn remove(&mut self, id: IntentId, plugin: &str, cancel: &Arc<Notify>) {
        self.slots -= 1;
        if let Some(count) = self.by_plugin.get_mut(plugin) {
            *count -= 1;
        }
        if self
            .cancel_signals
            .get(&id)
            .is_some_and(|signal| Arc::ptr_eq(signal, cancel))
        {
            self.cancel_signals.remove(&id);
        }
    }

    /// Whether no further job of this plugin may start.
    pub(super) fn is_full(&self, program: &Program, plugin: &Plugin) -> bool {
        let own = self.by_plugin.get(&plugin.name).copied().unwrap_or(0);
        self.working() >= program.config().service.max_workers || own >= plugin.parallelism
    }

    /// Plans the largest claim that exceeds no limit. `ending` is the plugin of a job whose slot becomes free.
    fn plan_claim(&mut self, program: &Program, ending: Option<&str>) -> Option<ClaimPlan> {
        let frees_slot = ending.is_some_and(|plugin| plugin != PUBLISH_PLUGIN);
        let taken = self.working() + self.pending_slots - usize::from(frees_slot);
        let free = program.config().service.max_workers.saturating_sub(taken);
        let own = |plugin| {
            let of = |counts: &HashMap<String, usize>| counts.get(plugin).copied().unwrap_or(0);
            of(&self.by_plugin) + of(&self.pending_by_plugin) - usize::from(ending == Some(plugin))
        };
        let waits = WAITS_MAX.saturating_sub(own(PUBLISH_PLUGIN));
        let mut plan = ClaimPlan {
            plugins: Vec::new(),
            jobs_max: if free > 0 { free } else { waits },
            worker_slots: 0,
        };
        if waits > 0 {
            plan.plugins.push(PUBLISH_PLUGIN.to_owned());
            plan.jobs_max = plan.jobs_max.min(waits);
        }
        if free > 0 {
            plan.plugins.push(SWITCH_PLUGIN.to_owned());
            for plugin in program.plugins() {
                let room = plugin.parallelism.saturating_sub(own(plugin.name.as_str()));
                if room > 0 {
                    plan.jobs_max = plan.jobs_max.min(room);
                    plan.plugins.push(plugin.name.clone());
                }
            }
        }
        if ending.is_some() {
            plan.jobs_max = plan.jobs_max.min(1);
        }
        if plan.plugins.is_empty() || plan.jobs_max == 0 {
            return None;
        }
        plan.worker_slots = if free > 0 { plan.jobs_max } else { 0 };
        self.pending_slots += plan.worker_slots;
        for plugin in &plan.plugins {
            *self.pending_by_plugin.entry(plugin.clone()).or_default() += plan.jobs_max;
        }
        Some(plan)
    }

    /// Releases the reservation of a claim, whatever it returned.
    fn finish_claim(&mut self, plan: &mut ClaimPlan) {
        let plan = std::mem::take(plan);
        self.pending_slots -= plan.worker_slots;
        for plugin in &plan.plugins {
            if let Some(count) = self.pending_by_plugin.get_mut(plugin) {
                *count -= plan.jobs_max;
            }
        }
    }
}

impl RuntimeInner {
    fn begin_claim(
        self: &Arc<Self>,
        program: &Program,
        ending: Option<&str>,
    ) -> Option<PendingClaim<'_>> {
        let plan = self.running().plan_claim(program, ending)?;
        Some(PendingClaim { inner: self, plan })
    }

    /// Begins the claim for the slot of a job that ends; `None` while the runtime stops and in one-shot mode.
    fn begin_next_claim(
        self: &Arc<Self>,
        program: &Program,
        ending: &str,
    ) -> Option<PendingClaim<'_>> {
        let may_claim = !*self.stopping.borrow()
            && self.one_shot.is_none()
            && self.start_backoff.remaining().is_none();
        let begin = || self.begin_claim(program, Some(ending));
        may_claim.then(begin).flatten()
    }

    fn claim(&self, plugins: Vec<String>, jobs_max: usize) -> Claim {
        Claim {
            face: Face::Automation,
            namespace: NAMESPACE.to_owned(),
            goal: None,
            holder: self.holder(),
            audience: Audience::Publisher(OWNER.to_owned()),
            worker_id: None,
            capabilities: plugins,
            max: u32::try_from(jobs_max).unwrap_or(u32::MAX),
            lease_us: LEASE_US,
        }
    }
}

/// Claims jobs until the runtime stops.
pub(super) async fn dispatch(inner: Arc<RuntimeInner>) {
    let mut stopping = inner.stopping.subscribe();
    while !*stopping.borrow_and_update() {
        if let Some(pause) = inner.start_backoff.remaining() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stopping.changed() => {}
            }
            continue;
        }
        let program = inner.program();
        // Subscribe before reading, so that no later change is missed.
        let changed = inner.claims_changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let Some(pending) = inner.begin_claim(&program, None) else {
            tokio::select! {
                () = changed => {}
                _ = stopping.changed() => {}
            }
            continue;
        };
        let leave = async {
            tokio::select! {
                () = changed => {}
                _ = stopping.changed() => {}
            }
        };
        let claim = pending.claim();
        let claimed = inner.engine.claim_unless(None, claim, POLL_INTERVAL, leave);
        let claimed = claimed.await;
        // The program may have been replaced during the wait.
        let program = inner.program();
        pending.start(&program, claimed.as_deref().unwrap_or_default());
        if let Err(error) = claimed {
            tracing::warn!(component = "dispatcher", %error, "jobs could not be claimed");
            inner.health.claim_refused();
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

/// Claims the job with the highest priority of its kind, for one-shot mode.
pub(super) async fn claim_job(
    inner: &Arc<RuntimeInner>,
    job: &Intent,
) -> Result<(), consign_engine::Error> {
    let program = inner.program();
    let claim = Claim {
        goal: Some(job.goal.clone()),
        ..inner.claim(job.capability.iter().cloned().collect(), 1)
    };
    let claimed = inner.engine.claim(None, claim, Duration::ZERO).await?;
    start_claimed(inner, inner.running(), &program, &claimed);
    Ok(())
}

/// A claim in progress. Dropping it releases its slots, even after a panic; otherwise a restarted dispatcher would find none
/// free.
struct PendingClaim<'i> {
    inner: &'i Arc<RuntimeInner>,
    plan: ClaimPlan,
}

impl PendingClaim<'_> {
    fn claim(&self) -> Claim {
        self.inner
            .claim(self.plan.plugins.clone(), self.plan.jobs_max)
    }

    /// Starts the claimed jobs in the reserved slots.
    fn start(mut self, program: &Arc<Program>, claimed: &[Intent]) {
        let mut running = self.inner.running();
        running.finish_claim(&mut self.plan);
        start_claimed(self.inner, running, program, claimed);
    }
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        self.inner.running().finish_claim(&mut self.plan);
    }
}

fn start_claimed(
    inner: &Arc<RuntimeInner>,
    mut running: MutexGuard<'_, RunningJobs>,
    program: &Arc<Program>,
    claimed: &[Intent],
) {
    let begun: Vec<_> = claimed
        .iter()
        .map(|intent| {
            let plugin = intent.capability.as_deref().unwrap_or_default();
            running.add(intent.id, plugin)
        })
        .collect();
    drop(running);
    if !claimed.is_empty() {
        inner.jobs_started.send_modify(|count| *count += 1);
    }
    for (intent, cancel) in claimed.iter().zip(begun) {
        spawn_attempt(inner, Arc::clone(program), intent.clone(), cancel);
    }
}

fn spawn_attempt(
    inner: &Arc<RuntimeInner>,
    program: Arc<Program>,
    intent: Intent,
    cancel: Arc<Notify>,
) {
    let id = intent.id;
    let inner = Arc::clone(inner);
    tokio::spawn(async move {
        // The slot is released however the task ends.
        let slot = WorkerSlot {
            inner: &inner,
            id,
            plugin: intent.capability.clone().unwrap_or_default(),
            cancel,
            released: AtomicBool::new(false),
            given_back: AtomicBool::new(false),
        };
        Box::pin(work(&slot, program, intent)).await;
    });
}

/// A worker slot that a job occupies.
struct WorkerSlot<'i> {
    inner: &'i Arc<RuntimeInner>,
    id: IntentId,
    plugin: String,
    cancel: Arc<Notify>,
    released: AtomicBool,
    /// The job is queued again and keeps its served lease.
    given_back: AtomicBool,
}

impl WorkerSlot<'_> {
    fn release(&self) {
        if !self.released.swap(true, Ordering::Relaxed) {
            let mut running = self.inner.running();
            running.remove(self.id, &self.plugin, &self.cancel);
        }
    }
}

impl Drop for WorkerSlot<'_> {
    fn drop(&mut self) {
        self.release();
        if !self.given_back.load(Ordering::Relaxed) {
            self.inner.served_leases().remove(&self.id);
        }
        self.inner.claims_changed.notify_one();
        self.inner.jobs_finished.send_modify(|count| *count += 1);
    }
}

async fn work(slot: &WorkerSlot<'_>, program: Arc<Program>, intent: Intent) {
    let inner = slot.inner;
    let started_at = inner.wall_time();
    let begun = Attempt::begin(&inner.engine, program, intent, started_at).await;
    let mut attempt = match begun {
        Ok(attempt) => attempt,
        Err((intent, failure)) => {
            tracing::error!(
                job_id = job_id(intent.id),
                error = failure.error,
                "a job that cannot be read was failed"
            );
            if let Err(error) = finish::fail_unreadable(&inner.engine, &intent, &failure).await {
                tracing::error!(job_id = job_id(intent.id), %error, "the job could not be settled");
            }
            return;
        }
    };
    let Job {
        plugin, command, ..
    } = &attempt.job;
    let id = attempt.job_id();
    let spawned = |pid: u32| {
        inner.start_backoff.reset();
        inner.emit(LiveEventKind::PluginSpawned {
            job: attempt.intent.id,
            plugin: plugin.clone(),
            command: command.clone(),
            pid,
        });
    };
    let ended = match inner.extend_served_lease(&attempt).await {
        Ok(()) => {
            let extension = extension(&attempt.intent);
            let cancelled = async {
                tokio::select! {
                    () = slot.cancel.notified() => {}
                    () = lease_is_lost(inner, &extension) => {}
                }
            };
            attempt
                .run(
                    &inner.engine,
                    (&inner.launcher, &inner.guarded),
                    spawned,
                    cancelled,
                )
                .await
        }
        Err(failure) => Attempt::report(AttemptEnd::Failed(failure), &inner.engine),
    };
    if let AttemptEnd::NoResources(why) = &ended.end {
        give_back(slot, &attempt, why).await;
        return;
    }
    if let Some(stderr) = &ended.stderr {
        tracing::warn!(
            component = "plugin",
            plugin,
            job_id = id,
            stderr,
            "the plugin wrote to its standard error"
        );
    }
    if let Some(finished) = settle(slot, &mut attempt, &ended).await {
        report(inner, &attempt, &ended, &finished);
    }
}

/// Returns the job to the queue without counting an attempt, and starts the back-off.
async fn give_back(slot: &WorkerSlot<'_>, attempt: &Attempt, why: &str) {
    let inner = slot.inner;
    let (plugin, job_id) = (&attempt.job.plugin, attempt.job_id());
    // Of several failures at the same time, only the first is logged.
    if let Some(pause) = inner.start_backoff.start_failed() {
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            component = "dispatcher",
            plugin,
            job_id,
            pause_ms,
            error = why,
            "the system has no resources for another process; jobs wait, and no attempt is counted"
        );
    }
    let extension = extension(&attempt.intent);
    let giving_back = async {
        loop {
            match finish::give_back(&inner.engine, &attempt.intent).await {
                Ok(()) => {
                    slot.given_back.store(true, Ordering::Relaxed);
                    return;
                }
                Err(consign_engine::Error::Refused(refusal)) => {
                    tracing::warn!(plugin, job_id, %refusal, "the lease of the job is lost");
                    return;
                }
                Err(error) if *inner.stopping.borrow() => {
                    tracing::error!(plugin, job_id, %error, "a job was not returned to the queue; it will run again");
                    return;
                }
                Err(error) => {
                    tracing::error!(plugin, job_id, %error, "a job could not be returned to the queue; retrying");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    };
    tokio::select! {
        () = giving_back => {}
        () = lease_is_lost(inner, &extension) => {}
    }
}

/// Requests a lease of the initial length.
fn extension(intent: &Intent) -> Extend {
    Extend {
        id: intent.id,
        holder: intent.holder.clone().unwrap_or_default(),
        token: intent.token.unwrap_or(consign_kernel::ids::Token([0; 16])),
        lease_us: LEASE_US,
    }
}

/// Extends the lease until that fails, then returns.
async fn lease_is_lost(inner: &RuntimeInner, extension: &Extend) {
    let mut pause = EXTEND_EVERY;
    loop {
        tokio::time::sleep(pause).await;
        let extend = Command::Extend(extension.clone());
        pause = match inner.engine.apply(None, extend).await {
            Err(consign_engine::Error::Refused(Refusal::LeaseLost | Refusal::NotFound)) => return,
            Ok(_) => EXTEND_EVERY,
            Err(error) => {
                let job_id = job_id(extension.id);
                tracing::warn!(job_id, %error, "a lease could not be extended; retrying");
                RETRY_DELAY
            }
        };
    }
}

/// Keeps the result of a finished run, and its lease, while the ledger is unavailable. Without the lease another node would take
/// the job for lost and run it again.
async fn settle(
    slot: &WorkerSlot<'_>,
    attempt: &mut Attempt,
    ended: &AttemptReport,
) -> Option<FinishedAttempt> {
    let extension = extension(&attempt.intent);
    let keeping = async {
        lease_is_lost(slot.inner, &extension).await;
        // The lease may be gone because the job was just settled. If not, the settlement is refused as well.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        finished = settle_until_recorded(slot, attempt, ended) => finished,
        () = keeping => None,
    }
}

async fn settle_until_recorded(
    slot: &WorkerSlot<'_>,
    attempt: &mut Attempt,
    ended: &AttemptReport,
) -> Option<FinishedAttempt> {
    let inner = slot.inner;
    let (plugin, job_id) = (attempt.job.plugin.clone(), attempt.job_id());
    loop {
        // The next job is claimed in the commit that frees the slot.
        let program = inner.program();
        let pending = inner.begin_next_claim(&program, &plugin);
        let next = pending.as_ref().map(PendingClaim::claim);
        let finished = finish::finish(&inner.engine, attempt, ended, next.as_ref()).await;
        if let (Some(pending), Ok(finished)) = (pending, &finished) {
            slot.release();
            pending.start(&program, &finished.next);
        }
        match finished {
            Ok(finished) => return Some(finished),
            // Perhaps only the lease of the served intent is lost; the job can still be settled.
            Err(consign_engine::Error::Refused(refusal))
                if refusal != Refusal::VersionMismatch && attempt.job.serves.take().is_some() =>
            {
                tracing::warn!(plugin, job_id, %refusal, "the intent of the job could not be settled");
            }
            // A version conflict is normal under load and no reason to run the job again.
            Err(consign_engine::Error::Refused(refusal)) if refusal != Refusal::VersionMismatch => {
                tracing::warn!(plugin, job_id, %refusal, "the lease of the job is lost; its result is not recorded");
                return None;
            }
            Err(error) if *inner.stopping.borrow() => {
                tracing::error!(plugin, job_id, %error, "the result of a job was not recorded; it will run again");
                return None;
            }
            Err(error) => {
                tracing::error!(plugin, job_id, %error, "the result of a job could not be recorded; retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// Logs a finished attempt and notifies the tasks that it concerns.
pub(super) fn report(
    inner: &RuntimeInner,
    attempt: &Attempt,
    ended: &AttemptReport,
    finished: &FinishedAttempt,
) {
    let Job {
        plugin, command, ..
    } = &attempt.job;
    let id = attempt.job_id();
    let took = ended
        .completed_at
        .duration_since(attempt.started_at)
        .as_millis();
    let duration_ms = i64::try_from(took).unwrap_or(i64::MAX);
    match finished.status {
        JobStatus::Succeeded => {
            if let Some(schedule_id) = &attempt.job.schedule_id {
                let entry = (plugin.clone(), schedule_id.clone());
                inner.succeeded_schedules().push(entry);
                inner.recheck.notify_one();
            }
            tracing::info!(
                component = "dispatcher",
                plugin,
                job_id = id,
                command,
                duration_ms,
                "job succeeded"
            );
        }
        JobStatus::Queued => {
            let retry_at = finished.retry_at.map(|at| format!("{at:.9}"));
            tracing::warn!(
                component = "dispatcher",
                plugin,
                job_id = id,
                command,
                attempt = attempt.intent.attempts,
                error = finished.error,
                retry_at,
                "an attempt failed; the job will be retried"
            );
        }
        status @ (JobStatus::Running
        | JobStatus::Failed
        | JobStatus::TimedOut
        | JobStatus::Dead) => {
            tracing::error!(
                component = "dispatcher",
                plugin,
                job_id = id,
                command,
                status = status.as_str(),
                error = finished.error,
                "job failed"
            );
        }
    }
    if let Some(change) = &finished.circuit {
        inner.emit_transition(plugin, command, change);
    }
    for (job, admitted) in &finished.children {
        let child = job_id(admitted.id);
        if admitted.replayed {
            let key = job.dedupe_key.as_deref();
            tracing::info!(
                component = "queue",
                plugin = job.plugin,
                dedupe_key = key,
                existing_job_id = child,
                "a duplicate job was not queued"
            );
            continue;
        }
        inner.track_one_shot_job(admitted.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_was_taken_again_frees_both_its_places() {
        let mut running = RunningJobs::default();
        let id = IntentId([7; 16]);
        let first = running.add(id, PUBLISH_PLUGIN);
        let second = running.add(id, PUBLISH_PLUGIN);
        assert_eq!((running.count(), running.working()), (2, 0));
        running.remove(id, PUBLISH_PLUGIN, &first);
        assert!(running.cancel(id), "the second is still there");
        running.remove(id, PUBLISH_PLUGIN, &second);
        assert_eq!((running.count(), running.working()), (0, 0));
        assert!(!running.cancel(id));
        assert_eq!(running.by_plugin[PUBLISH_PLUGIN], 0);
    }
}
