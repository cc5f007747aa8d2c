//! The service as a whole: it starts, takes back what an earlier start left behind, runs jobs, takes a new configuration, and stops.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use consign_engine::{Engine, Error, Operator};
use consign_kernel::command::{Answer, Command, Recover};
use consign_kernel::ids::{IntentId, Micros, Seq};
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;

use super::dispatch::{self, RunningJobs};
use super::event_hub::EventHub;
use super::goal_worker;
use super::health::TaskHealth;
use super::housekeeping;
use super::job::job_id;
use super::one_shot::{self, OneShotJobs};
use super::reads::response_budget::LARGE_READS_MAX;
use super::removed_plugins::RemovedPlugins;
use super::scheduler;
use super::served_intent::{self, ServedLeases};
use super::setup;
use super::start_backoff::StartBackoff;
use crate::plugin::confine::GuardedPaths;
use crate::plugin::run::Launcher;
use crate::program::Program;

/// More leases than any number of workers holds.
const LEASES_MAX: u32 = 100_000;

#[derive(Debug)]
pub struct Options {
    pub engine: Engine,
    pub program: Arc<Program>,
    /// Which node this is; what an earlier start of the same name held is taken back.
    pub node: String,
    /// Starts our own program as the one that confines itself and becomes a plugin.
    pub launcher: Launcher,
    /// What no sandbox opens, beyond what the configuration itself says.
    pub guarded: GuardedPaths,
}

/// A handle on the running service; a cheap clone.
#[derive(Clone)]
pub struct Runtime {
    pub(super) inner: Arc<RuntimeInner>,
}

pub(super) struct RuntimeInner {
    pub(super) engine: Engine,
    program: RwLock<Arc<Program>>,
    node: String,
    start: String,
    pub(super) launcher: Launcher,
    pub(super) guarded: GuardedPaths,
    /// What this process was started for, if not for whatever comes.
    pub(super) one_shot: Option<OneShotJobs>,
    running: Mutex<RunningJobs>,
    pub(super) start_backoff: StartBackoff,
    /// Something that decides what may run has changed.
    pub(super) changed: Notify,
    /// Something that decides when schedules are looked at has changed.
    pub(super) replan: Notify,
    /// Schedules whose jobs succeeded, by plugin and id.
    succeeded: Mutex<Vec<(String, String)>>,
    pub(super) recheck: Notify,
    /// A job was ended that nobody settles.
    pub(super) unreported_ends: Notify,
    /// Counts the jobs that ended here.
    pub(super) finished: watch::Sender<u64>,
    /// Counts the times at which jobs began here.
    pub(super) begun: watch::Sender<u64>,
    /// Counts the configurations.
    pub(super) adopted: watch::Sender<u64>,
    /// The last of them whose goals are served, those of the ones before no more.
    pub(super) serving: watch::Sender<u64>,
    /// Leases of intents that jobs of this process are to fulfil.
    pub(super) served_leases: Mutex<ServedLeases>,
    pub(super) stopping: watch::Sender<bool>,
    pub(super) health: TaskHealth,
    pub(super) hub: EventHub,
    /// Callers that wait for the end of a tree of jobs.
    pub(super) waiting: Arc<AtomicUsize>,
    /// Turns of those who read many megabytes.
    pub(super) large_reads: Semaphore,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Plugins whose jobs end.
    pub(super) removed: Mutex<RemovedPlugins>,
    /// A plugin that a reload brought is perhaps not set up yet.
    pub(super) setup_owed: AtomicBool,
    pub(super) started_at: Timestamp,
}

impl RuntimeInner {
    pub(super) fn program(&self) -> Arc<Program> {
        let program = self.program.read();
        Arc::clone(&program.unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn running(&self) -> MutexGuard<'_, RunningJobs> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn succeeded(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.succeeded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who run what they are asked for learn what that is.
    pub(super) fn track_one_shot_job(&self, id: IntentId) {
        if let Some(one_shot) = &self.one_shot {
            one_shot.add(id);
            self.changed.notify_one();
        }
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    pub(super) fn holder(&self) -> String {
        Recover::holder(&self.node, &self.start)
    }

    pub(super) fn wall_time(&self) -> Timestamp {
        timestamp(self.engine.wall())
    }

    pub(super) fn emit(&self, kind: &'static str, data: Value) {
        self.hub.publish(kind, self.wall_time(), data);
    }
}

impl Runtime {
    /// Takes back what was left behind, then begins to take jobs.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let runtime = Self::idle(options);
        runtime.recover().await?;
        let program = runtime.program();
        runtime.inner.load_removed(&program).await?;
        setup::queue_setups(&runtime.inner, &program).await?;
        runtime.supervise("dispatcher", dispatch::dispatch);
        runtime.extend_leases();
        runtime.supervise("scheduler", scheduler::schedule);
        runtime.supervise("housekeeping", housekeeping::run);
        runtime.supervise("intents", goal_worker::serve_goals);
        runtime.log_stranded_jobs().await;
        Ok(runtime)
    }

    /// For a process that ends with the jobs that are asked of it: it runs these and what follows from them. What waits by then, and
    /// what the clock asks for, is left to a service. The program is one [`Program::for_one_shot`], and nobody else works on the ledger.
    pub async fn start_one_shot(options: Options) -> Result<Self, Error> {
        let runtime = Self::new(options, Some(OneShotJobs::default()));
        runtime.recover().await?;
        runtime.supervise("dispatcher", one_shot::run);
        runtime.extend_leases();
        Ok(runtime)
    }

    fn extend_leases(&self) {
        tokio::spawn(served_intent::extend_leases(Arc::downgrade(&self.inner)));
    }

    fn supervise<F>(&self, name: &'static str, task: fn(Arc<RuntimeInner>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        self.tasks().push(tokio::spawn(async move {
            let task = || task(Arc::clone(&inner));
            inner.health.supervise(name, &inner.stopping, task).await;
        }));
    }

    /// Takes no jobs and changes nothing by itself: for those who look, or leave work for later.
    pub fn idle(options: Options) -> Self {
        Self::new(options, None)
    }

    fn new(options: Options, one_shot: Option<OneShotJobs>) -> Self {
        let started_at = timestamp(options.engine.wall());
        let start = uuid(&options.engine);
        let inner = Arc::new(RuntimeInner {
            engine: options.engine,
            program: RwLock::new(options.program),
            node: options.node,
            start,
            launcher: options.launcher,
            guarded: options.guarded,
            one_shot,
            running: Mutex::default(),
            start_backoff: StartBackoff::default(),
            changed: Notify::new(),
            replan: Notify::new(),
            succeeded: Mutex::default(),
            recheck: Notify::new(),
            unreported_ends: Notify::new(),
            finished: watch::Sender::new(0),
            begun: watch::Sender::new(0),
            adopted: watch::Sender::new(0),
            serving: watch::Sender::new(0),
            served_leases: Mutex::default(),
            stopping: watch::Sender::new(false),
            health: TaskHealth::default(),
            hub: EventHub::new(started_at),
            waiting: Arc::default(),
            large_reads: Semaphore::new(LARGE_READS_MAX),
            tasks: Mutex::default(),
            removed: Mutex::default(),
            setup_owed: AtomicBool::default(),
            started_at,
        });
        Self { inner }
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        let tasks = self.inner.tasks.lock();
        tasks.unwrap_or_else(PoisonError::into_inner)
    }

    async fn recover(&self) -> Result<(), Error> {
        let recover = Command::Recover(Recover {
            face: Face::Automation,
            node: self.inner.node.clone(),
            start: self.inner.start.clone(),
            limit: LEASES_MAX,
        });
        let Answer::Recovered(rows) = self.inner.engine.apply(None, recover).await? else {
            return Err(Error::Internal(
                "a recovery answered something else".to_owned(),
            ));
        };
        for row in rows {
            let plugin = row.capability.as_deref().unwrap_or_default();
            let (job_id, attempt) = (job_id(row.id), row.attempts);
            let dead = row.state == State::DeadLetter;
            tracing::warn!(
                component = "recovery",
                plugin,
                job_id,
                attempt,
                dead,
                "a job was left behind by a start before this one"
            );
        }
        Ok(())
    }

    pub fn program(&self) -> Arc<Program> {
        self.inner.program()
    }

    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub fn hub(&self) -> &EventHub {
        &self.inner.hub
    }

    pub fn started_at(&self) -> Timestamp {
        self.inner.started_at
    }

    /// How many jobs run in this process.
    pub fn running(&self) -> usize {
        self.inner.running().count()
    }

    /// From now on this configuration holds; jobs under way keep theirs. See [`Runtime::reload`] for what else a change means.
    pub fn adopt(&self, program: Arc<Program>) {
        let current = self.inner.program.write();
        *current.unwrap_or_else(PoisonError::into_inner) = program;
        self.inner.changed.notify_one();
        self.inner.replan.notify_one();
        self.inner.adopted.send_modify(|count| *count += 1);
    }

    /// Tells whenever another configuration holds.
    pub fn config_changes(&self) -> watch::Receiver<u64> {
        self.inner.adopted.subscribe()
    }

    /// Ends a job, whether it waits or runs. Where it runs, its process is asked to end.
    pub async fn cancel(&self, id: IntentId, reason: &str) -> Result<(), Error> {
        let operator = Operator::vouched();
        let engine = &self.inner.engine;
        engine
            .cancel(operator, Face::Automation, id, reason)
            .await?;
        self.inner.running().cancel(id);
        self.inner.unreported_ends.notify_one();
        Ok(())
    }

    /// Tries a job once more that is over. It keeps the attempts that it had not used.
    pub async fn retry(&self, id: IntentId, reason: &str) -> Result<(), Error> {
        let operator = Operator::vouched();
        let engine = &self.inner.engine;
        engine.requeue(operator, Face::Automation, id, reason).await
    }

    /// Takes no more jobs and waits for those that run, but no longer than `patience`: what is left is taken back at the next start.
    pub async fn stop(&self, patience: Duration) {
        self.inner.stopping.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks());
        for task in tasks {
            // A task that panicked has said so already.
            let _ = task.await;
        }
        let mut finished = self.inner.finished.subscribe();
        let all_done = async {
            // Who only waits for an intent is taken up again at the next start.
            while self.inner.running().working() > 0 {
                if finished.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(patience, all_done).await.is_err() {
            let left = self.inner.running().working();
            tracing::warn!(
                left,
                "jobs still run; they will be taken back at the next start"
            );
        }
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

pub(super) fn timestamp(at: Micros) -> Timestamp {
    Timestamp::from_microsecond(at.0).unwrap_or(Timestamp::MAX)
}

/// An id that sorts by time.
pub(super) fn uuid(engine: &Engine) -> String {
    let chance = engine.entropy().draw();
    job_id(IntentId::new(
        engine.wall(),
        Seq((chance >> 64) as u64),
        chance,
    ))
}
