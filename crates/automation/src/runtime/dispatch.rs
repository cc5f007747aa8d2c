//! What runs when: jobs are claimed as long as there is a free worker, of plugins that are below their own cap.
//!
//! A plugin at its cap is not asked for, so its backlog stands in nobody's way. A lease is short and is extended while the process
//! runs: whoever finds it gone knows that the job was cancelled or taken over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use consign_kernel::command::{Audience, Claim, Command, Extend};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use serde_json::json;
use tokio::sync::Notify;

use super::attempt::{Attempt, End, Ended};
use super::finish::{self, Finished};
use super::job::{Job, NAMESPACE, OWNER, job_id};
use super::service::Inner;
use crate::pipeline::{PUBLISH_PLUGIN, SWITCH_PLUGIN};
use crate::program::{Plugin, Program};

const LEASE_US: i64 = 60 * SECOND_US;
const EXTEND_EVERY: Duration = Duration::from_secs(20);
/// A look at the ledger that nothing has asked for.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// Steps that wait for an intent.
const WAITS_MAX: usize = 1_000;
/// Between two tries when the ledger cannot be reached.
const PAUSE: Duration = Duration::from_secs(1);

/// What runs at this moment, in this process.
#[derive(Default)]
pub(super) struct Running {
    /// How each is asked to end. A job that was taken again while its last attempt still ends has two places and one bell here.
    bells: HashMap<IntentId, Arc<Notify>>,
    places: usize,
    by_plugin: HashMap<String, usize>,
    /// Jobs that claims under way may bring: in all, and of each plugin.
    claiming: usize,
    claiming_by_plugin: HashMap<String, usize>,
}

/// Whose jobs may be taken, and how many at once. They count as taken until [`Running::looked`].
#[derive(Default)]
struct Wish {
    plugins: Vec<String>,
    at_once: usize,
    /// Of the workers' places.
    places: usize,
}

impl Running {
    pub(super) fn count(&self) -> usize {
        self.places
    }

    /// How many of the workers' places are taken. Who only waits needs none.
    pub(super) fn working(&self) -> usize {
        self.places - self.by_plugin.get(PUBLISH_PLUGIN).copied().unwrap_or(0)
    }

    /// Asks the process of a job to end, if it runs here.
    pub(super) fn cancel(&self, id: IntentId) -> bool {
        let found = self.bells.get(&id);
        found.inspect(|bell| bell.notify_one()).is_some()
    }

    fn add(&mut self, id: IntentId, plugin: &str) -> Arc<Notify> {
        let cancel = Arc::new(Notify::new());
        self.bells.insert(id, Arc::clone(&cancel));
        self.places += 1;
        *self.by_plugin.entry(plugin.to_owned()).or_default() += 1;
        cancel
    }

    /// Once for each [`Running::add`].
    fn remove(&mut self, id: IntentId, plugin: &str, cancel: &Arc<Notify>) {
        self.places -= 1;
        if let Some(count) = self.by_plugin.get_mut(plugin) {
            *count -= 1;
        }
        if self
            .bells
            .get(&id)
            .is_some_and(|bell| Arc::ptr_eq(bell, cancel))
        {
            self.bells.remove(&id);
        }
    }

    /// Whether no other job of this plugin could begin.
    pub(super) fn is_full(&self, program: &Program, plugin: &Plugin) -> bool {
        let own = self.by_plugin.get(&plugin.name).copied().unwrap_or(0);
        self.working() >= program.config().service.max_workers || own >= plugin.parallelism
    }

    /// What may be taken without passing anybody's cap. `leaving` is a job that makes room for another.
    fn wish(&mut self, program: &Program, leaving: Option<&str>) -> Option<Wish> {
        let leaves_place = leaving.is_some_and(|plugin| plugin != PUBLISH_PLUGIN);
        let taken = self.working() + self.claiming - usize::from(leaves_place);
        let free = program.config().service.max_workers.saturating_sub(taken);
        let own = |plugin| {
            let of = |counts: &HashMap<String, usize>| counts.get(plugin).copied().unwrap_or(0);
            of(&self.by_plugin) + of(&self.claiming_by_plugin)
                - usize::from(leaving == Some(plugin))
        };
        let waits = WAITS_MAX.saturating_sub(own(PUBLISH_PLUGIN));
        let mut wish = Wish {
            plugins: Vec::new(),
            at_once: if free > 0 { free } else { waits },
            places: 0,
        };
        if waits > 0 {
            wish.plugins.push(PUBLISH_PLUGIN.to_owned());
            wish.at_once = wish.at_once.min(waits);
        }
        if free > 0 {
            wish.plugins.push(SWITCH_PLUGIN.to_owned());
            for plugin in program.plugins() {
                let room = plugin.parallelism.saturating_sub(own(plugin.name.as_str()));
                if room > 0 {
                    wish.at_once = wish.at_once.min(room);
                    wish.plugins.push(plugin.name.clone());
                }
            }
        }
        if leaving.is_some() {
            wish.at_once = wish.at_once.min(1);
        }
        if wish.plugins.is_empty() || wish.at_once == 0 {
            return None;
        }
        wish.places = if free > 0 { wish.at_once } else { 0 };
        self.claiming += wish.places;
        for plugin in &wish.plugins {
            *self.claiming_by_plugin.entry(plugin.clone()).or_default() += wish.at_once;
        }
        Some(wish)
    }

    /// The claim for a wish is over, whatever it brought. Nothing is left to wish for.
    fn looked(&mut self, wish: &mut Wish) {
        let wish = std::mem::take(wish);
        self.claiming -= wish.places;
        for plugin in &wish.plugins {
            if let Some(count) = self.claiming_by_plugin.get_mut(plugin) {
                *count -= wish.at_once;
            }
        }
    }
}

impl Inner {
    fn claiming(
        self: &Arc<Self>,
        program: &Program,
        leaving: Option<&str>,
    ) -> Option<Claiming<'_>> {
        let wish = self.running().wish(program, leaving)?;
        Some(Claiming { inner: self, wish })
    }

    /// What may be taken in the place of a job that ends; nothing while the service stops, or on an errand.
    fn claiming_next(self: &Arc<Self>, program: &Program, leaving: &str) -> Option<Claiming<'_>> {
        let takes_more =
            !*self.stopping.borrow() && self.errand.is_none() && self.scarcity.left().is_none();
        let claiming = || self.claiming(program, Some(leaving));
        takes_more.then(claiming).flatten()
    }

    fn claim(&self, plugins: Vec<String>, at_once: usize) -> Claim {
        Claim {
            face: Face::Automation,
            namespace: NAMESPACE.to_owned(),
            goal: None,
            holder: self.holder(),
            audience: Audience::Publisher(OWNER.to_owned()),
            worker_id: None,
            capabilities: plugins,
            max: u32::try_from(at_once).unwrap_or(u32::MAX),
            lease_us: LEASE_US,
        }
    }
}

/// Takes jobs until the service stops.
pub(super) async fn dispatch(inner: Arc<Inner>) {
    let mut stopping = inner.stopping.subscribe();
    while !*stopping.borrow_and_update() {
        if let Some(pause) = inner.scarcity.left() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stopping.changed() => {}
            }
            continue;
        }
        let program = inner.program();
        // Before the look: whatever changes afterwards is noticed.
        let changed = inner.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let Some(claiming) = inner.claiming(&program, None) else {
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
        let claim = claiming.claim();
        let claimed = inner.engine.claim_unless(None, claim, LOOK_EVERY, leave);
        let claimed = claimed.await;
        // It may have been exchanged while nothing was there to take.
        let program = inner.program();
        claiming.begin(&program, claimed.as_deref().unwrap_or_default());
        if let Err(error) = claimed {
            tracing::warn!(component = "dispatcher", %error, "no jobs could be taken");
            inner.vitals.refused();
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Takes a job that stands before all others of its kind.
pub(super) async fn take(inner: &Arc<Inner>, job: &Intent) -> Result<(), consign_engine::Error> {
    let program = inner.program();
    let claim = Claim {
        goal: Some(job.goal.clone()),
        ..inner.claim(job.capability.iter().cloned().collect(), 1)
    };
    let claimed = inner.engine.claim(None, claim, Duration::ZERO).await?;
    begin_claimed(inner, inner.running(), &program, &claimed);
    Ok(())
}

/// A claim under way. However it ends, by a panic too, the places that are kept for it are free again: a dispatcher that begins
/// anew would find none.
struct Claiming<'i> {
    inner: &'i Arc<Inner>,
    wish: Wish,
}

impl Claiming<'_> {
    fn claim(&self) -> Claim {
        self.inner
            .claim(self.wish.plugins.clone(), self.wish.at_once)
    }

    /// What the claim brought takes the places that were kept for it.
    fn begin(mut self, program: &Arc<Program>, claimed: &[Intent]) {
        let mut running = self.inner.running();
        running.looked(&mut self.wish);
        begin_claimed(self.inner, running, program, claimed);
    }
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        self.inner.running().looked(&mut self.wish);
    }
}

fn begin_claimed(
    inner: &Arc<Inner>,
    mut running: MutexGuard<'_, Running>,
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
        inner.begun.send_modify(|count| *count += 1);
    }
    for (intent, cancel) in claimed.iter().zip(begun) {
        begin(inner, Arc::clone(program), intent.clone(), cancel);
    }
}

fn begin(inner: &Arc<Inner>, program: Arc<Program>, intent: Intent, cancel: Arc<Notify>) {
    let id = intent.id;
    let inner = Arc::clone(inner);
    tokio::spawn(async move {
        // However the task ends, the place is free again.
        let place = Place {
            inner: &inner,
            id,
            plugin: intent.capability.clone().unwrap_or_default(),
            cancel,
            left: AtomicBool::new(false),
            given_back: AtomicBool::new(false),
        };
        Box::pin(work(&place, program, intent)).await;
    });
}

/// One of the places that the workers have, taken by a job.
struct Place<'i> {
    inner: &'i Arc<Inner>,
    id: IntentId,
    plugin: String,
    cancel: Arc<Notify>,
    left: AtomicBool,
    /// Its job waits again, and keeps what it holds.
    given_back: AtomicBool,
}

impl Place<'_> {
    fn leave(&self) {
        if !self.left.swap(true, Ordering::Relaxed) {
            let mut running = self.inner.running();
            running.remove(self.id, &self.plugin, &self.cancel);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
        if !self.given_back.load(Ordering::Relaxed) {
            self.inner.held().remove(&self.id);
        }
        self.inner.changed.notify_one();
        self.inner.finished.send_modify(|count| *count += 1);
    }
}

async fn work(place: &Place<'_>, program: Arc<Program>, intent: Intent) {
    let inner = place.inner;
    let started_at = inner.instant();
    let begun = Attempt::begin(&inner.engine, program, intent, started_at).await;
    let mut attempt = match begun {
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
        inner.scarcity.is_over();
        let told = json!({"job_id": id, "plugin": plugin, "command": command, "pid": pid});
        inner.tell("plugin.spawned", told);
    };
    let ended = match inner.takes_up(&attempt).await {
        Ok(()) => {
            let extension = extension(&attempt.intent);
            let cancelled = async {
                tokio::select! {
                    () = place.cancel.notified() => {}
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
        Err(failure) => Attempt::over(End::Failed(failure), &inner.engine),
    };
    if let End::NoRoom(why) = &ended.end {
        give_back(place, &attempt, why).await;
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
    if let Some(finished) = settle(place, &mut attempt, &ended).await {
        report(inner, &attempt, &ended, &finished);
    }
}

/// The job waits again as if it had not been taken, and the dispatcher with it.
async fn give_back(place: &Place<'_>, attempt: &Attempt, why: &str) {
    let inner = place.inner;
    let Job {
        plugin, command, ..
    } = &attempt.job;
    let job_id = attempt.job_id();
    // Of all that fail for this reason at the same time, one is told.
    if let Some(pause) = inner.scarcity.found() {
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            component = "dispatcher",
            plugin,
            job_id,
            pause_ms,
            error = why,
            "the system has no room for another process; jobs wait, and no attempt is counted"
        );
    }
    let extension = extension(&attempt.intent);
    let giving_back = async {
        loop {
            match finish::give_back(&inner.engine, &attempt.intent).await {
                Ok(()) => {
                    place.given_back.store(true, Ordering::Relaxed);
                    return;
                }
                Err(consign_engine::Error::Refused(refusal)) => {
                    tracing::warn!(plugin, job_id, %refusal, "the job is not ours any more");
                    return;
                }
                Err(error) if *inner.stopping.borrow() => {
                    tracing::error!(plugin, job_id, %error, "a job was not given back; it will run again");
                    return;
                }
                Err(error) => {
                    tracing::error!(plugin, job_id, %error, "a job could not be given back yet");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = giving_back => {}
        () = lease_is_lost(inner, &extension) => {}
    }
    inner.tell(
        "job.postponed",
        json!({"job_id": job_id, "plugin": plugin, "command": command, "reason": "no_room"}),
    );
}

/// Asks for a lease as long as the first one.
fn extension(intent: &Intent) -> Extend {
    Extend {
        id: intent.id,
        holder: intent.holder.clone().unwrap_or_default(),
        token: intent.token.unwrap_or(consign_kernel::ids::Token([0; 16])),
        lease_us: LEASE_US,
    }
}

/// Keeps the lease, and returns when it cannot be kept any longer.
async fn lease_is_lost(inner: &Inner, extension: &Extend) {
    let mut pause = EXTEND_EVERY;
    loop {
        tokio::time::sleep(pause).await;
        let extend = Command::Extend(extension.clone());
        pause = match inner.engine.apply(None, extend).await {
            Err(consign_engine::Error::Refused(Refusal::LeaseLost | Refusal::NotFound)) => return,
            Ok(_) => EXTEND_EVERY,
            Err(error) => {
                let job_id = job_id(extension.id);
                tracing::warn!(job_id, %error, "a lease was not extended; it is tried again");
                PAUSE
            }
        };
    }
}

/// The result of work that was done is not given up while the ledger is away, nor is the lease that gives the right to it: without
/// one, others take the job for lost and run it again.
async fn settle(place: &Place<'_>, attempt: &mut Attempt, ended: &Ended) -> Option<Finished> {
    let extension = extension(&attempt.intent);
    let keeping = async {
        lease_is_lost(place.inner, &extension).await;
        // Perhaps only because the job was settled just now. If not, that is refused as well.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        finished = settle_in_the_end(place, attempt, ended) => finished,
        () = keeping => None,
    }
}

async fn settle_in_the_end(
    place: &Place<'_>,
    attempt: &mut Attempt,
    ended: &Ended,
) -> Option<Finished> {
    let inner = place.inner;
    let (plugin, job_id) = (attempt.job.plugin.clone(), attempt.job_id());
    loop {
        // Whoever ends makes room, and the next one is taken in the same commit.
        let program = inner.program();
        let claiming = inner.claiming_next(&program, &plugin);
        let next = claiming.as_ref().map(Claiming::claim);
        let finished = finish::finish(&inner.engine, attempt, ended, next.as_ref()).await;
        if let (Some(claiming), Ok(finished)) = (claiming, &finished) {
            place.leave();
            claiming.begin(&program, &finished.next);
        }
        match finished {
            Ok(finished) => return Some(finished),
            // Perhaps only the intent is not ours any more; the job has an end of its own.
            Err(consign_engine::Error::Refused(refusal))
                if refusal != Refusal::VersionMismatch && attempt.job.serves.take().is_some() =>
            {
                tracing::warn!(plugin, job_id, %refusal, "its intent could not be settled");
            }
            // Others write what it writes all the time: that is no reason to run it again.
            Err(consign_engine::Error::Refused(refusal)) if refusal != Refusal::VersionMismatch => {
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
            if let Some(schedule_id) = &attempt.job.schedule_id {
                let entry = (plugin.clone(), schedule_id.clone());
                inner.succeeded().push(entry);
                inner.look_again.notify_one();
            }
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
        inner.entrust(admitted.id);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_was_taken_again_frees_both_its_places() {
        let mut running = Running::default();
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
