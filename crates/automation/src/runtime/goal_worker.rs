//! The runtime as a worker of the Intent Protocol: it claims intents of the goals that plugins serve and queues a job for each.
//!
//! Invariant: an intent is claimed only while its plugin has a free slot here; other workers take what a busy plugin cannot. Each
//! goal has its own task, which ends with the configuration that defines it. `served_intent` defines how job and intent end
//! together.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Error, KEPT_LEASE_US, MAIN_KEY_ID};
use consign_kernel::command::{Audience, Claim};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::job::{Job, SubmittedBy};
use super::lifecycle::{Runtime, RuntimeInner};
use super::served_intent::{FIRST_LEASE_US, ServedIntent};
use super::successors::EventSource;
use crate::config::model::ServedGoal;
use crate::nesting::is_too_deep;
use crate::plugin::request::HANDLE;
use crate::program::{Plugin, Program};

/// The worker id that intents can target and that their timelines show.
const WORKER: &str = "automation";
/// The longest wait before the worker looks at the ledger without a wake.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The delay between retries while the ledger is unavailable.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The maximum number of open jobs to count; a plugin with more has a backlog, and nothing is claimed for it.
const OPEN_MAX: u32 = 500;

/// Serves the goals of the current configuration until the runtime stops.
pub(super) async fn serve_goals(inner: Arc<RuntimeInner>) {
    let mut stopping = inner.stopping.subscribe();
    let mut generations = inner.config_generation.subscribe();
    while !*stopping.borrow_and_update() {
        // Subscribe before reading, so that no later reload is missed.
        let generation = *generations.borrow_and_update();
        let program = inner.program();
        // All workers of the previous configuration have ended.
        inner.serving_generation.send_replace(generation);
        let replaced = watch::Sender::new(false);
        let mut goals = JoinSet::new();
        for plugin in program.plugins() {
            for served in &plugin.serves {
                let goal = GoalWorker {
                    inner: Arc::clone(&inner),
                    program: Arc::clone(&program),
                    plugin: plugin.clone(),
                    served: served.clone(),
                };
                goals.spawn(goal.run(replaced.subscribe()));
            }
        }
        tokio::select! {
            _ = generations.changed() => {}
            _ = stopping.changed() => {}
        }
        replaced.send_replace(true);
        while goals.join_next().await.is_some() {}
    }
}

impl RuntimeInner {
    /// Waits until no intent is claimed for a replaced configuration any more. The wait is bounded by one poll interval, in case
    /// the ledger does not respond.
    pub(super) async fn wait_until_serving(&self) {
        let generation = *self.config_generation.borrow();
        let mut serving = self.serving_generation.subscribe();
        let served = serving.wait_for(|serving| *serving >= generation);
        let _ = tokio::time::timeout(POLL_INTERVAL, served).await;
    }
}

struct GoalWorker {
    inner: Arc<RuntimeInner>,
    program: Arc<Program>,
    plugin: Plugin,
    served: ServedGoal,
}

impl GoalWorker {
    async fn run(self, mut replaced: watch::Receiver<bool>) {
        let (mut finished, mut started) = (
            self.inner.worker.ended(),
            self.inner.jobs_started.subscribe(),
        );
        while !*replaced.borrow_and_update() {
            finished.mark_unchanged();
            started.mark_unchanged();
            let claimed = match self.has_free_slot().await {
                Ok(true) => self.claim(&mut replaced, &mut started).await,
                Ok(false) => {
                    tokio::select! {
                        _ = finished.changed() => {}
                        () = tokio::time::sleep(POLL_INTERVAL) => {}
                        _ = replaced.changed() => {}
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = claimed {
                let goal = &self.served.goal;
                tracing::warn!(component = "intents", goal, %error, "no intent could be claimed");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Queued jobs count as well, because they run first.
    async fn has_free_slot(&self) -> Result<bool, Error> {
        let engine = &self.inner.engine;
        let is_backing_off = self.inner.start_backoff.remaining().is_some();
        if engine.claims_paused().is_some() || is_backing_off || self.is_full() {
            return Ok(false);
        }
        let open = engine.open_jobs(&self.plugin.name, None, OPEN_MAX).await?;
        let (now, own) = (engine.now(), self.inner.holder());
        let busy = open.iter().filter(|job| {
            if job.state == State::Queued {
                return job.run_at <= now;
            }
            job.holder.as_deref() == Some(own.as_str())
        });
        Ok(busy.count() < self.plugin.parallelism)
    }

    fn is_full(&self) -> bool {
        self.inner.is_full(&self.program, &self.plugin)
    }

    async fn claim(
        &self,
        replaced: &mut watch::Receiver<bool>,
        started: &mut watch::Receiver<u64>,
    ) -> Result<(), Error> {
        let claim = Claim {
            face: Face::Intent,
            namespace: self.served.namespace.clone(),
            goal: Some(self.served.goal.clone()),
            holder: MAIN_KEY_ID.to_owned(),
            audience: Audience::Caller,
            worker_id: Some(WORKER.to_owned()),
            capabilities: self.served.capability.iter().cloned().collect(),
            max: 1,
            lease_us: FIRST_LEASE_US,
            grant: None,
        };
        let filled = async { while started.changed().await.is_ok() && !self.is_full() {} };
        let leave = async {
            tokio::select! {
                () = filled => {}
                () = self.inner.engine.until_claims_paused() => {}
                _ = replaced.changed() => {}
            }
        };
        let engine = &self.inner.engine;
        for intent in engine
            .claim_unless(None, claim, POLL_INTERVAL, leave)
            .await?
        {
            self.enqueue_job(&intent).await?;
        }
        Ok(())
    }

    /// After an error here, the intent becomes claimable again when its lease ends.
    async fn enqueue_job(&self, intent: &Intent) -> Result<(), Error> {
        let command = &self.served.command;
        let id = intent.id.to_string();
        let payload = serde_json::from_str(&intent.payload).ok();
        let payload: Option<Value> = payload.filter(|payload| !is_too_deep(payload));
        let mut payload = payload.unwrap_or_else(|| Value::from(intent.payload.as_str()));
        if !payload.is_object() {
            payload = json!({"body": payload});
        }
        let payload = if command == HANDLE {
            let source = EventSource {
                kind: format!("intent.{}", intent.goal),
                plugin: SubmittedBy::Intent.as_str().to_owned(),
                at: self.inner.wall_time(),
                id: id.clone(),
                dedupe_key: None,
            };
            source.wrap(payload)
        } else {
            payload
        };
        let served = ServedIntent::of(intent);
        let job = Job {
            source_event_id: Some(id),
            serves: Some(served.clone()),
            ..Job::root(&self.plugin.name, command, SubmittedBy::Intent, payload)
        };
        let runtime = Runtime {
            inner: Arc::clone(&self.inner),
        };
        let job = runtime.enqueue(job, None).await?.id;
        let lease = served.lease()?;
        // If the extension is refused, the job detects that when it starts.
        if let Err(error) = self.inner.engine.extend(lease.extend(KEPT_LEASE_US)).await {
            tracing::warn!(component = "dispatcher", %error, "the lease of a served intent could not be extended");
        }
        // If the job is over already, the intent is settled and the next extension drops the entry.
        self.inner.keep_served_lease(job, lease);
        Ok(())
    }
}
