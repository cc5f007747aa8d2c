//! The service as a worker of the Intent Protocol: intents of the goals that plugins serve become jobs of these plugins.
//!
//! Invariant: an intent is taken only while its plugin has a free place here; what a busy plugin cannot do is left to others. Each goal
//! has a task of its own, which ends with the configuration that asked for it. How job and intent end is said in `served`.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::Error;
use consign_kernel::command::{Audience, Claim};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::job::{Job, SubmittedBy};
use super::publication::OPERATOR;
use super::served::{FIRST_LEASE_US, Served};
use super::service::{Inner, Runtime};
use super::successors::Source;
use crate::config::model::ServedGoal;
use crate::nesting::is_too_deep;
use crate::plugin::request::HANDLE;
use crate::program::{Plugin, Program};

/// The worker that intents can be meant for, and that their timelines name.
const WORKER: &str = "automation";
/// A look at the ledger that nothing has asked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between two tries when the ledger cannot be reached.
const PAUSE: Duration = Duration::from_secs(1);
/// More jobs of a plugin than this are not looked at; they would be a backlog, and then nothing is taken.
const OPEN_MAX: u32 = 500;

/// Serves the goals of whatever configuration holds, until the service stops.
pub(super) async fn serve(inner: Arc<Inner>) {
    let mut stopping = inner.stopping.subscribe();
    let mut adopted = inner.adopted.subscribe();
    while !*stopping.borrow_and_update() {
        // Before the look: whatever is adopted afterwards is noticed.
        let adoption = *adopted.borrow_and_update();
        let program = inner.program();
        // Whatever served the one before has ended.
        inner.serving.send_replace(adoption);
        let over = watch::Sender::new(false);
        let mut goals = JoinSet::new();
        for plugin in program.plugins() {
            for served in &plugin.serves {
                let goal = Goal {
                    inner: Arc::clone(&inner),
                    program: Arc::clone(&program),
                    plugin: plugin.clone(),
                    served: served.clone(),
                };
                goals.spawn(goal.serve(over.subscribe()));
            }
        }
        tokio::select! {
            _ = adopted.changed() => {}
            _ = stopping.changed() => {}
        }
        over.send_replace(true);
        while goals.join_next().await.is_some() {}
    }
}

impl Inner {
    /// What is published from now on is no more taken for a configuration that was replaced. One that cannot let go because the
    /// ledger does not answer is not waited for any longer than it would look.
    pub(super) async fn until_served(&self) {
        let adoption = *self.adopted.borrow();
        let mut serving = self.serving.subscribe();
        let served = serving.wait_for(|serving| *serving >= adoption);
        let _ = tokio::time::timeout(LOOK_EVERY, served).await;
    }
}

struct Goal {
    inner: Arc<Inner>,
    program: Arc<Program>,
    plugin: Plugin,
    served: ServedGoal,
}

impl Goal {
    async fn serve(self, mut over: watch::Receiver<bool>) {
        let (mut finished, mut begun) = (
            self.inner.finished.subscribe(),
            self.inner.begun.subscribe(),
        );
        while !*over.borrow_and_update() {
            finished.mark_unchanged();
            begun.mark_unchanged();
            let taken = match self.has_room().await {
                Ok(true) => self.take(&mut over, &mut begun).await,
                Ok(false) => {
                    tokio::select! {
                        _ = finished.changed() => {}
                        () = tokio::time::sleep(LOOK_EVERY) => {}
                        _ = over.changed() => {}
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                let goal = &self.served.goal;
                tracing::warn!(component = "intents", goal, %error, "no intent could be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Jobs that wait count as well: they come first.
    async fn has_room(&self) -> Result<bool, Error> {
        let engine = &self.inner.engine;
        let is_short = self.inner.scarcity.left().is_some();
        if engine.claims_paused().is_some() || is_short || self.is_full() {
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
        let running = self.inner.running();
        running.is_full(&self.program, &self.plugin)
    }

    async fn take(
        &self,
        over: &mut watch::Receiver<bool>,
        begun: &mut watch::Receiver<u64>,
    ) -> Result<(), Error> {
        let claim = Claim {
            face: Face::Intent,
            namespace: self.served.namespace.clone(),
            goal: Some(self.served.goal.clone()),
            holder: OPERATOR.to_owned(),
            audience: Audience::Caller,
            worker_id: Some(WORKER.to_owned()),
            capabilities: self.served.capability.iter().cloned().collect(),
            max: 1,
            lease_us: FIRST_LEASE_US,
        };
        let filled = async { while begun.changed().await.is_ok() && !self.is_full() {} };
        let leave = async {
            tokio::select! {
                () = filled => {}
                () = self.inner.engine.until_claims_paused() => {}
                _ = over.changed() => {}
            }
        };
        let engine = &self.inner.engine;
        for intent in engine.claim_unless(None, claim, LOOK_EVERY, leave).await? {
            self.hand_over(&intent).await?;
        }
        Ok(())
    }

    /// If this fails, the intent comes again when its lease ends.
    async fn hand_over(&self, intent: &Intent) -> Result<(), Error> {
        let command = &self.served.command;
        let id = intent.id.to_string();
        let payload = serde_json::from_str(&intent.payload).ok();
        let payload: Option<Value> = payload.filter(|payload| !is_too_deep(payload));
        let mut payload = payload.unwrap_or_else(|| Value::from(intent.payload.as_str()));
        if !payload.is_object() {
            payload = json!({"body": payload});
        }
        let payload = if command == HANDLE {
            let source = Source {
                kind: format!("intent.{}", intent.goal),
                plugin: SubmittedBy::Intent.as_str().to_owned(),
                at: self.inner.instant(),
                id: id.clone(),
                dedupe_key: None,
            };
            source.wrap(payload)
        } else {
            payload
        };
        let served = Served::of(intent);
        let job = Job {
            source_event_id: Some(id),
            serves: Some(served.clone()),
            ..Job::root(&self.plugin.name, command, SubmittedBy::Intent, payload)
        };
        let runtime = Runtime {
            inner: Arc::clone(&self.inner),
        };
        let job = runtime.enqueue(job, None).await?.id;
        // If that is refused, the job finds out when it begins.
        let kept = self.inner.engine.apply(None, served.extend()?).await;
        if let Err(error) = kept {
            tracing::warn!(component = "dispatcher", %error, "the lease of a served intent was not kept");
        }
        // Unless it is over already; then the intent is settled, and the next round finds that out.
        self.inner.held().entry(job).or_insert(served);
        Ok(())
    }
}
