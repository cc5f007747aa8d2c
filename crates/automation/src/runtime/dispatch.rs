//! The dispatcher: the worker that claims jobs, with a limit for each plugin, and runs them.
//!
//! The lease of a job is kept while its process runs; a lost lease means that the job was cancelled or taken over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use consign_engine::{KEPT_LEASE_US, Lease, Limits, Reservation, Worker, WorkerSlot};
use consign_kernel::command::{Audience, Claim};
use consign_kernel::error::Refusal;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use tokio::sync::Notify;

use super::attempt::{Attempt, AttemptEnd, AttemptReport};
use super::finish::{self, FinishedAttempt};
use super::job::{Job, NAMESPACE, OWNER, WAITING, job_id};
use super::job_status::JobStatus;
use super::lifecycle::RuntimeInner;
use super::live_events::LiveEventKind;
use super::received_message;
use crate::pipeline::{RECEIVE_PLUGIN, SWITCH_PLUGIN};
use crate::program::{Plugin, Program};

/// The longest wait before the dispatcher looks at the ledger without a wake.
const POLL_INTERVAL: Duration = Duration::from_mins(1);
/// The maximum number of jobs of each kind that only wait.
const WAITS_MAX: usize = 1_000;
/// The delay between retries while the ledger is unavailable.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How to cancel the jobs that run in this process. A job that was claimed again while its previous attempt still ends has the
/// signal of the later attempt.
#[derive(Default)]
pub(super) struct CancelSignals(HashMap<IntentId, Arc<Notify>>);

impl CancelSignals {
    /// Cancels the process of a job if it runs here.
    pub(super) fn cancel(&self, id: IntentId) -> bool {
        let found = self.0.get(&id);
        found.inspect(|signal| signal.notify_one()).is_some()
    }

    fn add(&mut self, id: IntentId) -> Arc<Notify> {
        let cancel = Arc::new(Notify::new());
        self.0.insert(id, Arc::clone(&cancel));
        cancel
    }

    fn remove(&mut self, id: IntentId, cancel: &Arc<Notify>) {
        let is_own = |signal: &Arc<Notify>| Arc::ptr_eq(signal, cancel);
        if self.0.get(&id).is_some_and(is_own) {
            self.0.remove(&id);
        }
    }
}

pub(super) fn worker(holder: String) -> Worker {
    let claim = Claim {
        face: Face::Automation,
        namespace: NAMESPACE.to_owned(),
        goal: None,
        holder,
        audience: Audience::Publisher(OWNER.to_owned()),
        worker_id: None,
        capabilities: Vec::new(),
        max: 0,
        lease_us: KEPT_LEASE_US,
        grant: None,
    };
    Worker::new(claim, WAITING)
}

fn limits(program: &Program) -> Limits {
    let own = WAITING.iter().map(|name| (*name, WAITS_MAX));
    let own = own.chain([(SWITCH_PLUGIN, usize::MAX)]);
    let plugins = program.plugins();
    let plugins = plugins.map(|plugin| (plugin.name.as_str(), plugin.parallelism));
    Limits {
        slots: program.config().service.max_workers,
        capabilities: (own.chain(plugins))
            .map(|(name, max)| (name.to_owned(), max))
            .collect(),
    }
}

impl RuntimeInner {
    /// Whether no further job of this plugin may start.
    pub(super) fn is_full(&self, program: &Program, plugin: &Plugin) -> bool {
        self.worker.busy() >= program.config().service.max_workers
            || self.worker.running_of(&plugin.name) >= plugin.parallelism
    }
}

/// Claims jobs until the runtime stops.
pub(super) async fn dispatch(inner: Arc<RuntimeInner>) {
    let limits = || async {
        while let Some(pause) = inner.start_backoff.remaining() {
            tokio::time::sleep(pause).await;
        }
        limits(&inner.program())
    };
    let handle = |claimed| match claimed {
        Ok(jobs) => start_claimed(&inner, &inner.program(), jobs),
        Err(error) => {
            let error: consign_engine::Error = error;
            tracing::warn!(component = "dispatcher", %error, "jobs could not be claimed");
            inner.health.claim_refused();
        }
    };
    let stopping = inner.stopping.subscribe();
    let running = inner
        .worker
        .run(&inner.engine, stopping, POLL_INTERVAL, limits, handle);
    running.await;
}

/// Starts claimed jobs, each in its slot.
pub(super) fn start_claimed(
    inner: &Arc<RuntimeInner>,
    program: &Arc<Program>,
    claimed: Vec<(WorkerSlot, Intent)>,
) {
    if !claimed.is_empty() {
        inner.jobs_started.send_modify(|count| *count += 1);
    }
    for (slot, intent) in claimed {
        let mut slot = JobSlot {
            inner: Arc::clone(inner),
            id: intent.id,
            slot,
            cancel: inner.cancel_signals().add(intent.id),
            given_back: false,
        };
        let program = Arc::clone(program);
        tokio::spawn(async move { Box::pin(work(&mut slot, program, intent)).await });
    }
}

/// The slot of a job, which is freed however its task ends.
struct JobSlot {
    inner: Arc<RuntimeInner>,
    id: IntentId,
    slot: WorkerSlot,
    cancel: Arc<Notify>,
    /// The job is queued again and keeps its served lease.
    given_back: bool,
}

impl Drop for JobSlot {
    fn drop(&mut self) {
        self.inner.cancel_signals().remove(self.id, &self.cancel);
        if !self.given_back {
            self.inner.served_leases().remove(&self.id);
        }
    }
}

async fn work(slot: &mut JobSlot, program: Arc<Program>, intent: Intent) {
    let inner = &Arc::clone(&slot.inner);
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
    // Kept until the end is recorded: without the lease another node would take the job for lost and run it again.
    let lease = inner.leases.keep(Lease::of(&attempt.intent));
    let ended = match inner.extend_served_lease(&attempt).await {
        Ok(()) => {
            let cancelled = async {
                tokio::select! {
                    () = slot.cancel.notified() => {}
                    _ = lease.lost() => {}
                }
            };
            if *plugin == RECEIVE_PLUGIN {
                received_message::run(inner, &attempt, cancelled).await
            } else {
                attempt
                    .run(
                        &inner.engine,
                        (&inner.launcher, &inner.guarded),
                        inner.bus.as_deref(),
                        spawned,
                        cancelled,
                    )
                    .await
            }
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
    if let Some(finished) = settle_until_recorded(slot, &mut attempt, &ended).await {
        report(inner, &attempt, &ended, &finished);
    }
}

/// Returns the job to the queue without counting an attempt, and starts the back-off.
async fn give_back(slot: &mut JobSlot, attempt: &Attempt, why: &str) {
    let inner = &Arc::clone(&slot.inner);
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
    loop {
        match finish::give_back(&inner.engine, &attempt.intent).await {
            Ok(()) => {
                slot.given_back = true;
                break;
            }
            Err(consign_engine::Error::Refused(refusal)) => {
                tracing::warn!(plugin, job_id, %refusal, "the lease of the job is lost");
                break;
            }
            Err(error) if *inner.stopping.borrow() => {
                tracing::error!(plugin, job_id, %error, "a job was not returned to the queue; it will run again");
                break;
            }
            Err(error) => {
                tracing::error!(plugin, job_id, %error, "a job could not be returned to the queue; retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// Keeps the result of a finished run while the ledger is unavailable.
async fn settle_until_recorded(
    slot: &mut JobSlot,
    attempt: &mut Attempt,
    ended: &AttemptReport,
) -> Option<FinishedAttempt> {
    let inner = &Arc::clone(&slot.inner);
    let (plugin, job_id) = (attempt.job.plugin.clone(), attempt.job_id());
    loop {
        // The next job is claimed in the commit that frees the slot.
        let program = inner.program();
        let may_claim = !*inner.stopping.borrow()
            && inner.one_shot.is_none()
            && inner.start_backoff.remaining().is_none();
        let reserve = || inner.worker.reserve(&limits(&program), Some(&slot.slot));
        let next = may_claim.then(reserve).flatten();
        let claim = next.as_ref().map(Reservation::claim);
        let mut finished = finish::finish(&inner.engine, attempt, ended, claim.as_ref()).await;
        if let (Some(next), Ok(finished)) = (next, &mut finished) {
            slot.slot.release();
            let claimed = next.start(std::mem::take(&mut finished.next));
            start_claimed(inner, &program, claimed);
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
    fn a_job_that_was_claimed_again_is_cancelled_by_its_later_signal() {
        let mut signals = CancelSignals::default();
        let id = IntentId([7; 16]);
        let (first, second) = (signals.add(id), signals.add(id));
        signals.remove(id, &first);
        assert!(signals.cancel(id), "the second is still there");
        signals.remove(id, &second);
        assert!(!signals.cancel(id));
    }
}
