//! What runs when: jobs are claimed as long as there is a free worker, of plugins that are below their own cap.
//!
//! A plugin at its cap is not asked for, so its backlog stands in nobody's way. A lease is short and is extended while the process
//! runs: whoever finds it gone knows that the job was cancelled or taken over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use consign_kernel::command::{Audience, Claim, Command, Extend};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use serde_json::json;
use tokio::sync::Notify;

use super::attempt::{Attempt, Ended};
use super::finish::{self, Finished};
use super::job::{Job, NAMESPACE, OWNER, job_id};
use super::service::Inner;
use crate::pipeline::SWITCH_PLUGIN;
use crate::program::Program;

const LEASE_US: i64 = 60 * SECOND_US;
const EXTEND_EVERY: Duration = Duration::from_secs(20);
/// A look at the ledger that nothing has asked for.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// Between two tries when the ledger cannot be reached.
const PAUSE: Duration = Duration::from_secs(1);

/// What runs at this moment, in this process.
#[derive(Default)]
pub(super) struct Running {
    jobs: HashMap<IntentId, (String, Arc<Notify>)>,
    by_plugin: HashMap<String, usize>,
}

impl Running {
    pub(super) fn count(&self) -> usize {
        self.jobs.len()
    }

    /// Asks the process of a job to end, if it runs here.
    pub(super) fn cancel(&self, id: IntentId) -> bool {
        let found = self.jobs.get(&id);
        found.inspect(|(_, cancel)| cancel.notify_one()).is_some()
    }

    fn add(&mut self, id: IntentId, plugin: &str) -> Arc<Notify> {
        let cancel = Arc::new(Notify::new());
        self.jobs
            .insert(id, (plugin.to_owned(), Arc::clone(&cancel)));
        *self.by_plugin.entry(plugin.to_owned()).or_default() += 1;
        cancel
    }

    fn remove(&mut self, id: IntentId) {
        if let Some((plugin, _)) = self.jobs.remove(&id)
            && let Some(count) = self.by_plugin.get_mut(&plugin)
        {
            *count -= 1;
        }
    }

    /// The plugins that may run another job, and how many jobs may be taken at once without passing anybody's cap.
    fn wanted(&self, program: &Program) -> Option<(Vec<String>, usize)> {
        let free = program
            .config()
            .service
            .max_workers
            .saturating_sub(self.count());
        let mut at_once = free;
        let mut plugins = vec![SWITCH_PLUGIN.to_owned()];
        for plugin in program.plugins() {
            let running = self.by_plugin.get(&plugin.name).copied().unwrap_or(0);
            let room = plugin.parallelism.saturating_sub(running);
            if room > 0 {
                at_once = at_once.min(room);
                plugins.push(plugin.name.clone());
            }
        }
        (free > 0).then_some((plugins, at_once))
    }
}

/// Takes jobs until the service stops.
pub(super) async fn dispatch(inner: Arc<Inner>) {
    let mut stopping = inner.stopping.subscribe();
    while !*stopping.borrow_and_update() {
        let program = inner.program();
        // Before the look: whatever changes afterwards is noticed.
        let changed = inner.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let wanted = inner.running().wanted(&program);
        let Some((capabilities, at_once)) = wanted else {
            tokio::select! {
                () = changed => {}
                _ = stopping.changed() => {}
            }
            continue;
        };
        let claim = Claim {
            face: Face::Automation,
            namespace: NAMESPACE.to_owned(),
            goal: None,
            holder: inner.holder(),
            audience: Audience::Publisher(OWNER.to_owned()),
            worker_id: None,
            capabilities,
            max: u32::try_from(at_once).unwrap_or(u32::MAX),
            lease_us: LEASE_US,
        };
        let leave = async {
            tokio::select! {
                () = changed => {}
                _ = stopping.changed() => {}
            }
        };
        match inner
            .engine
            .claim_unless(None, claim, LOOK_EVERY, leave)
            .await
        {
            Ok(claimed) => {
                // It may have been exchanged while nothing was there to take.
                let program = inner.program();
                for intent in claimed {
                    begin(&inner, Arc::clone(&program), intent);
                }
            }
            Err(error) => {
                tracing::warn!(component = "dispatcher", %error, "no jobs could be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn begin(inner: &Arc<Inner>, program: Arc<Program>, intent: Intent) {
    let plugin = intent.capability.clone().unwrap_or_default();
    let id = intent.id;
    let cancel = inner.running().add(id, &plugin);
    let inner = Arc::clone(inner);
    tokio::spawn(async move {
        // However the task ends, the place is free again.
        let _place = Place { inner: &inner, id };
        Box::pin(work(&inner, program, intent, cancel)).await;
    });
}

struct Place<'i> {
    inner: &'i Inner,
    id: IntentId,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.inner.running().remove(self.id);
        self.inner.changed.notify_one();
        self.inner.finished.send_modify(|count| *count += 1);
    }
}

async fn work(inner: &Inner, program: Arc<Program>, intent: Intent, cancel: Arc<Notify>) {
    let started_at = inner.instant();
    let begun = Attempt::begin(&inner.engine, program, intent, started_at).await;
    let attempt = match begun {
        Ok(attempt) => attempt,
        Err((intent, failure)) => {
            tracing::error!(
                job_id = job_id(intent.id),
                error = failure.error,
                "a job was given up"
            );
            if let Err(error) = finish::give_up(&inner.engine, &intent, &failure).await {
                tracing::error!(job_id = job_id(intent.id), %error, "it could not be settled");
            }
            return;
        }
    };
    let Job {
        plugin,
        command,
        submitted_by,
        ..
    } = &attempt.job;
    let id = attempt.job_id();
    let parent = attempt.intent.ties.parent.map(job_id);
    let number = attempt.intent.attempts;
    inner.tell(
        "job.started",
        json!({
            "job_id": id, "plugin": plugin, "command": command, "attempt": number,
            "parent_job_id": parent, "submitted_by": submitted_by.as_str(),
        }),
    );
    let spawned = |pid: u32| {
        let told = json!({"job_id": id, "plugin": plugin, "command": command, "pid": pid});
        inner.tell("plugin.spawned", told);
    };
    let cancelled = async {
        tokio::select! {
            () = cancel.notified() => {}
            () = lease_is_lost(inner, &attempt.intent) => {}
        }
    };
    let ended = attempt
        .run(&inner.engine, &inner.launcher, spawned, cancelled)
        .await;
    if let Some(stderr) = &ended.stderr {
        tracing::warn!(
            component = "plugin",
            plugin,
            job_id = id,
            stderr,
            "the plugin wrote to its standard error"
        );
    }
    if let Some(finished) = settle(inner, &attempt, &ended).await {
        report(inner, &attempt, &ended, &finished);
    }
}

/// Keeps the lease, and returns when it cannot be kept any longer.
async fn lease_is_lost(inner: &Inner, intent: &Intent) {
    loop {
        tokio::time::sleep(EXTEND_EVERY).await;
        let extend = Command::Extend(Extend {
            id: intent.id,
            holder: intent.holder.clone().unwrap_or_default(),
            token: intent.token.unwrap_or(consign_kernel::ids::Token([0; 16])),
            lease_us: LEASE_US,
        });
        match inner.engine.apply(None, extend).await {
            Err(consign_engine::Error::Refused(Refusal::LeaseLost | Refusal::NotFound)) => return,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(job_id = job_id(intent.id), %error, "a lease was not extended");
            }
        }
    }
}

/// The result of work that was done is not given up while the ledger is away.
async fn settle(inner: &Inner, attempt: &Attempt, ended: &Ended) -> Option<Finished> {
    let (plugin, job_id) = (&attempt.job.plugin, attempt.job_id());
    loop {
        match finish::finish(&inner.engine, attempt, ended).await {
            Ok(finished) => return Some(finished),
            Err(consign_engine::Error::Refused(refusal)) => {
                tracing::warn!(plugin, job_id, %refusal, "the job is not ours any more; its end is not recorded");
                return None;
            }
            Err(error) if *inner.stopping.borrow() => {
                tracing::error!(plugin, job_id, %error, "the end of a job is not recorded; it will run again");
                return None;
            }
            Err(error) => {
                tracing::error!(plugin, job_id, %error, "the end of a job could not be recorded yet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// For those who watch, and for the log.
pub(super) fn report(inner: &Inner, attempt: &Attempt, ended: &Ended, finished: &Finished) {
    let Job {
        plugin, command, ..
    } = &attempt.job;
    let id = attempt.job_id();
    let took = ended
        .completed_at
        .duration_since(attempt.started_at)
        .as_millis();
    let duration_ms = i64::try_from(took).unwrap_or(i64::MAX);
    let mut told = json!({
        "job_id": id, "plugin": plugin, "command": command, "status": finished.status, "duration_ms": duration_ms,
    });
    if let Some(error) = &finished.error {
        told["error"] = error.as_str().into();
        let line = format!("{plugin}/{command} {}: {error}", finished.status);
        told["message"] = line.as_str().into();
        told["text"] = line.into();
    }
    let (attempts, attempts_max) = (attempt.intent.attempts, attempt.intent.attempts_max);
    match finished.status {
        "succeeded" => {
            tracing::info!(
                component = "dispatcher",
                plugin,
                job_id = id,
                command,
                duration_ms,
                "job succeeded"
            );
            inner.tell("job.completed", told);
        }
        "queued" => {
            let retry_at = finished.retry_at.map(|at| format!("{at:.9}"));
            let backoff = finished
                .retry_at
                .map(|at| at.duration_since(ended.completed_at).as_millis());
            let backoff_ms = backoff.and_then(|ms| i64::try_from(ms).ok());
            tracing::warn!(
                component = "dispatcher",
                plugin,
                job_id = id,
                command,
                attempt = attempts,
                error = finished.error,
                retry_at,
                "an attempt failed; the job will be tried again"
            );
            inner.tell(
                "job.retry_scheduled",
                json!({
                    "job_id": id, "plugin": plugin, "command": command, "attempt": attempts, "max_attempts": attempts_max,
                    "backoff_ms": backoff_ms, "next_retry_at": retry_at, "reason": finished.reason,
                }),
            );
        }
        status => {
            tracing::error!(
                component = "dispatcher",
                plugin,
                job_id = id,
                command,
                status,
                error = finished.error,
                "job failed"
            );
            if status == "dead" {
                let exhausted = json!({
                    "job_id": id, "plugin": plugin, "attempts": attempts, "final_error": finished.error, "reason": finished.reason,
                });
                inner.tell("job.retry_exhausted", exhausted);
            }
            let kind = if status == "timed_out" {
                "job.timed_out"
            } else {
                "job.failed"
            };
            inner.tell(kind, told);
        }
    }
    if let Some(change) = &finished.circuit {
        inner.tell_transition(plugin, command, change);
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
                "a duplicate was not queued"
            );
            continue;
        }
        let position = job.position.as_ref();
        inner.tell(
            "router.enqueued",
            json!({
                "job_id": child, "parent_job_id": id, "plugin": job.plugin, "command": job.command,
                "pipeline": position.map(|position| &position.pipeline), "step_id": position.map(|position| &position.step),
                "event_context_id": job.event_context_id,
            }),
        );
    }
}
