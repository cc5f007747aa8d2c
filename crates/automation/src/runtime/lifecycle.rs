//! The lifecycle of the runtime: start, recovery of an earlier start, reload and stop.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use consign_engine::{Engine, Error, Leases, Operator, Worker};
use consign_kernel::command::Recover;
use consign_kernel::ids::{IntentId, Micros, Seq};
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;

use super::dispatch::{self, CancelSignals};
use super::goal_worker;
use super::health::TaskHealth;
use super::housekeeping;
use super::job::job_id;
use super::live_events::{LiveEventKind, LiveEvents};
use super::message_bus::{MeshWork, MessageBus};
use super::message_worker;
use super::one_shot::{self, OneShotJobs};
use super::reads::response_budget::LARGE_READS_MAX;
use super::removed_plugins::RemovedPlugins;
use super::scheduler;
use super::served_intent::ServedLeases;
use super::setup;
use super::start_backoff::StartBackoff;
use crate::plugin::confine::GuardedPaths;
use crate::plugin::run::Launcher;
use crate::program::Program;

/// More leases than any configured number of workers can hold.
const LEASES_MAX: u32 = 100_000;

#[derive(Debug)]
pub struct Options {
    pub engine: Engine,
    pub program: Arc<Program>,
    /// The name of this node. Jobs that an earlier start with this name held are recovered.
    pub node: String,
    /// Starts this binary as the launcher that confines itself and becomes a plugin.
    pub launcher: Launcher,
    /// Paths that no sandbox opens, in addition to those from the configuration.
    pub guarded: GuardedPaths,
    /// The message bus of the same server, if it has one.
    pub bus: Option<Arc<dyn MessageBus>>,
    /// The meshes of the same server, if it has any.
    pub mesh: Option<Arc<dyn MeshWork>>,
}

/// A handle to the runtime; cheap to clone.
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
    pub(super) bus: Option<Arc<dyn MessageBus>>,
    pub(super) mesh: Option<Arc<dyn MeshWork>>,
    /// Set in one-shot mode: the jobs that this process was started for.
    pub(super) one_shot: Option<OneShotJobs>,
    /// The slots of the jobs that run in this process. It is woken when the set of jobs that may start has changed.
    pub(super) worker: Worker,
    cancel_signals: Mutex<CancelSignals>,
    pub(super) start_backoff: StartBackoff,
    /// Notified when the plan of the schedules must be rebuilt.
    pub(super) replan: Notify,
    /// Schedules whose jobs succeeded, by plugin and id.
    succeeded_schedules: Mutex<Vec<(String, String)>>,
    pub(super) recheck: Notify,
    /// Notified when a job ended that no dispatcher settles.
    pub(super) unreported_ends: Notify,
    /// Counts how often jobs started in this process.
    pub(super) jobs_started: watch::Sender<u64>,
    /// Counts the configurations.
    pub(super) config_generation: watch::Sender<u64>,
    /// The number of the last configuration whose goals are served; those of earlier ones are not served any more.
    pub(super) serving_generation: watch::Sender<u64>,
    pub(super) leases: Leases,
    /// Leases of the intents that jobs of this process serve.
    pub(super) served_leases: Mutex<ServedLeases>,
    pub(super) stopping: watch::Sender<bool>,
    pub(super) health: TaskHealth,
    pub(super) live_events: LiveEvents,
    /// The number of callers that wait for a tree of jobs.
    pub(super) waiting_callers: Arc<AtomicUsize>,
    /// Limits concurrent large reads.
    pub(super) large_reads: Semaphore,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Plugins whose jobs are to be cancelled.
    pub(super) removed: Mutex<RemovedPlugins>,
    /// The setup of plugins after a reload may be incomplete.
    pub(super) setup_pending: AtomicBool,
    pub(super) started_at: Timestamp,
}

impl RuntimeInner {
    pub(super) fn program(&self) -> Arc<Program> {
        let program = self.program.read();
        Arc::clone(&program.unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn cancel_signals(&self) -> MutexGuard<'_, CancelSignals> {
        self.cancel_signals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn succeeded_schedules(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.succeeded_schedules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job to the one-shot set, if this process runs in one-shot mode.
    pub(super) fn track_one_shot_job(&self, id: IntentId) {
        if let Some(one_shot) = &self.one_shot {
            one_shot.add(id);
            self.worker.wake();
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

    pub(super) fn emit(&self, event: LiveEventKind) {
        self.live_events.publish(self.wall_time(), event);
    }
}

impl Runtime {
    /// Recovers the jobs of an earlier start, then starts to claim jobs.
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
        runtime.supervise("messages", message_worker::receive_messages);
        runtime.log_stranded_jobs().await;
        Ok(runtime)
    }

    /// Starts in one-shot mode: runs only the jobs that are enqueued through this handle, and what follows from them. Jobs that
    /// are already queued and scheduled jobs are left to a service. The program must be a [`Program::for_one_shot`], and no other
    /// process may work on the ledger.
    pub async fn start_one_shot(options: Options) -> Result<Self, Error> {
        let runtime = Self::new(options, Some(OneShotJobs::default()));
        runtime.recover().await?;
        runtime.supervise("dispatcher", one_shot::run);
        runtime.extend_leases();
        Ok(runtime)
    }

    fn extend_leases(&self) {
        tokio::spawn(self.inner.leases.extend_forever());
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

    /// Claims no jobs and changes nothing by itself: for reading, and for queueing jobs that a service runs later.
    pub fn idle(options: Options) -> Self {
        Self::new(options, None)
    }

    fn new(options: Options, one_shot: Option<OneShotJobs>) -> Self {
        let started_at = timestamp(options.engine.wall());
        let start = uuid(&options.engine);
        let inner = Arc::new(RuntimeInner {
            worker: dispatch::worker(Recover::holder(&options.node, &start)),
            leases: Leases::new(options.engine.clone()),
            engine: options.engine,
            program: RwLock::new(options.program),
            node: options.node,
            start,
            launcher: options.launcher,
            guarded: options.guarded,
            bus: options.bus,
            mesh: options.mesh,
            one_shot,
            cancel_signals: Mutex::default(),
            start_backoff: StartBackoff::default(),
            replan: Notify::new(),
            succeeded_schedules: Mutex::default(),
            recheck: Notify::new(),
            unreported_ends: Notify::new(),
            jobs_started: watch::Sender::new(0),
            config_generation: watch::Sender::new(0),
            serving_generation: watch::Sender::new(0),
            served_leases: Mutex::default(),
            stopping: watch::Sender::new(false),
            health: TaskHealth::default(),
            live_events: LiveEvents::default(),
            waiting_callers: Arc::default(),
            large_reads: Semaphore::new(LARGE_READS_MAX),
            tasks: Mutex::default(),
            removed: Mutex::default(),
            setup_pending: AtomicBool::default(),
            started_at,
        });
        Self { inner }
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        let tasks = self.inner.tasks.lock();
        tasks.unwrap_or_else(PoisonError::into_inner)
    }

    async fn recover(&self) -> Result<(), Error> {
        let recover = Recover {
            face: Face::Automation,
            node: self.inner.node.clone(),
            start: self.inner.start.clone(),
            limit: LEASES_MAX,
        };
        for row in self.inner.engine.recover(&recover).await? {
            let plugin = row.capability.as_deref().unwrap_or_default();
            let (job_id, attempt) = (job_id(row.id), row.attempts);
            let dead = row.state == State::DeadLetter;
            tracing::warn!(
                component = "recovery",
                plugin,
                job_id,
                attempt,
                dead,
                "a job of an earlier start was recovered"
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

    /// Events of this process that leave no fact. See [`Runtime::job_events`] for the others.
    pub fn live_events(&self) -> &LiveEvents {
        &self.inner.live_events
    }

    pub fn started_at(&self) -> Timestamp {
        self.inner.started_at
    }

    /// The number of jobs that run in this process.
    pub fn running(&self) -> usize {
        self.inner.worker.running()
    }

    /// Makes this configuration the current one; running jobs keep theirs. See [`Runtime::reload`] for the other effects of a
    /// reload.
    pub fn adopt(&self, program: Arc<Program>) {
        let current = self.inner.program.write();
        *current.unwrap_or_else(PoisonError::into_inner) = program;
        self.inner.worker.wake();
        self.inner.replan.notify_one();
        self.inner
            .config_generation
            .send_modify(|count| *count += 1);
    }

    /// Changes with every new configuration.
    pub fn config_changes(&self) -> watch::Receiver<u64> {
        self.inner.config_generation.subscribe()
    }

    /// Cancels a queued or running job. If it runs here, its process is asked to terminate.
    pub async fn cancel(&self, id: IntentId, reason: &str) -> Result<(), Error> {
        let operator = Operator::vouched();
        let engine = &self.inner.engine;
        engine
            .cancel(operator, Face::Automation, id, reason)
            .await?;
        self.inner.cancel_signals().cancel(id);
        self.inner.unreported_ends.notify_one();
        Ok(())
    }

    /// Queues a finished job once more. It keeps the attempts that it has not used.
    pub async fn retry(&self, id: IntentId, reason: &str) -> Result<(), Error> {
        let operator = Operator::vouched();
        let engine = &self.inner.engine;
        engine.requeue(operator, Face::Automation, id, reason).await
    }

    /// Stops claiming and waits at most `patience` for running jobs; the next start recovers the rest.
    pub async fn stop(&self, patience: Duration) {
        self.inner.stopping.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks());
        for task in tasks {
            // A task that panicked has been logged already.
            let _ = task.await;
        }
        // A step that only waits for an intent is recovered at the next start.
        let left = self.inner.worker.until_idle(patience).await;
        if left > 0 {
            tracing::warn!(left, "jobs still run; the next start recovers them");
        }
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

pub(crate) fn timestamp(at: Micros) -> Timestamp {
    Timestamp::from_microsecond(at.0).unwrap_or(Timestamp::MAX)
}

/// A UUID that sorts by time.
pub(super) fn uuid(engine: &Engine) -> String {
    let chance = engine.entropy().draw();
    job_id(IntentId::new(
        engine.wall(),
        Seq((chance >> 64) as u64),
        chance,
    ))
}
