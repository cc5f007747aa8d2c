//! A directory with plugins and a configuration, and the runtime.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_automation::config::{Environment, SealCheck};
use consign_automation::http::views::events::{self as views, NamedEvent};
use consign_automation::plugin::confine::GuardedPaths;
use consign_automation::plugin::run::Launcher;
use consign_automation::program::{self, Program};
use consign_automation::runtime::{
    Job, MeshWork, MessageBus, Options, Runtime, SubmittedBy, parse_job_id, records,
};
use consign_engine::{
    Engine, EngineClock, IntentFilter, Options as EngineOptions, SealKey, Timekeeper,
};
use consign_kernel::command::Command;
use consign_kernel::ids::{FactSeq, IntentId};
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::receipt::Signer;
use consign_kernel::record::{Put, Record};
use consign_testkit::ledger::{self, Ledger, Obstacles};
use consign_testkit::plants;
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;

/// Far more than any operation here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The body of a plugin that ends at once.
pub(crate) const OK: &str = r#"echo '{"status":"ok","result":"done"}'"#;
/// A plugin that starts, writes `$here/began`, and waits for `$here/go`.
pub(crate) const WAITS: &str = "touch $here/began; while [ ! -e $here/go ]; do sleep 0.02; done; ";

pub(crate) struct World {
    folder: TempDir,
    pub(crate) engine: Engine,
    pub(crate) ledger: Ledger,
    /// Faults that a test can inject into settlements.
    pub(crate) obstacles: Arc<Obstacles>,
}

impl World {
    pub(crate) fn new() -> Self {
        plants::from_environment();
        let clock = Arc::new(EngineClock::start(None));
        let ledger = Ledger::new(crate::backend(), clock.clone());
        let obstacles = Arc::new(Obstacles::default());
        let engine = Engine::new(EngineOptions {
            store: obstacles.before(&ledger.store),
            clock: clock.clone(),
            wall: clock,
            entropy: [7; 32],
            seal: SealKey::new([7; 32]),
            signer: Signer::from_seed(&[7; 32]),
            main_key: "ck_main".to_owned(),
            cleanup_interval: Duration::from_hours(1),
        });
        tokio::spawn(Timekeeper::new(engine.clone()).run(std::future::pending(), || {}));
        Self {
            folder: tempfile::tempdir().unwrap(),
            engine,
            ledger,
            obstacles,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A plugin in bash with poll, handle and work. `$here` is the directory of the world, `$request` the request.
    pub(crate) fn plugin(&self, name: &str, body: &str) {
        let head = format!(
            "#!/usr/bin/env bash\nhere='{}'\nrequest=$(cat)\n",
            self.path("").display()
        );
        self.script(name, "", &format!("{head}{body}\n"));
    }

    /// The same in Python; `request` is the request, `ok(**more)` responds.
    pub(crate) fn python(&self, name: &str, more: &str, body: &str) {
        let head = format!(
            "#!/usr/bin/env python3\nimport json, os, sys, time\nhere = {:?}\nrequest = json.load(sys.stdin)\n\
             def ok(**more):\n    print(json.dumps({{'status': 'ok', 'result': 'done', **more}}))\n",
            self.path("").display().to_string()
        );
        self.script(name, more, &format!("{head}{body}\n"));
    }

    fn script(&self, name: &str, more: &str, script: &str) {
        let folder = self.path(&format!("plugins/{name}"));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let manifest = format!(
            "manifest_spec: ductile.plugin\nmanifest_version: 1\nname: {name}\nversion: 1.0.0\nprotocol: 2\nentrypoint: run\n\
             commands:\n  poll: {{type: read}}\n  handle: {{type: write}}\n  work: {{type: write}}\n{more}"
        );
        fs::write(folder.join("manifest.yaml"), manifest).unwrap();
        fs::write(folder.join("run"), script).unwrap();
        fs::set_permissions(folder.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The program of a configuration, with the plugin roots added.
    pub(crate) fn program(&self, config: &str) -> Arc<Program> {
        Arc::new(self.loaded(config))
    }

    fn loaded(&self, config: &str) -> Program {
        let path = self.path("config.yaml");
        let text = format!("plugin_roots: [plugins]\n{config}");
        fs::write(&path, text).unwrap();
        let environment = Environment {
            variables: std::env::vars().collect(),
            home: None,
            system_dir: self.path("etc"),
            processors: 4,
        };
        let loaded = program::load(&path, &environment, SealCheck::AsConfigured);
        loaded
            .program
            .unwrap_or_else(|| panic!("{:#?}", loaded.problems))
    }

    pub(crate) async fn start(&self, config: &str) -> Runtime {
        self.start_as("here", config).await
    }

    pub(crate) async fn start_as(&self, node: &str, config: &str) -> Runtime {
        let options = self.options(node, self.program(config));
        Runtime::start(options).await.unwrap()
    }

    /// Starts with a message bus.
    pub(crate) async fn start_with_bus(&self, config: &str, bus: Arc<dyn MessageBus>) -> Runtime {
        let options = Options {
            bus: Some(bus),
            ..self.options("here", self.program(config))
        };
        Runtime::start(options).await.unwrap()
    }

    /// Starts with the topics and queues of a mesh.
    pub(crate) async fn start_with_mesh(&self, config: &str, mesh: Arc<dyn MeshWork>) -> Runtime {
        let options = Options {
            mesh: Some(mesh),
            ..self.options("here", self.program(config))
        };
        Runtime::start(options).await.unwrap()
    }

    /// Starts in one-shot mode.
    pub(crate) async fn start_one_shot(&self, config: &str) -> Runtime {
        let program = self.loaded(config).for_one_shot();
        let options = self.options("here", Arc::new(program));
        Runtime::start_one_shot(options).await.unwrap()
    }

    /// A runtime that claims no jobs.
    pub(crate) fn idle(&self, config: &str) -> Runtime {
        Runtime::idle(self.options("here", self.program(config)))
    }

    fn options(&self, node: &str, program: Arc<Program>) -> Options {
        Options {
            engine: self.engine.clone(),
            program,
            node: node.to_owned(),
            guarded: GuardedPaths::default(),
            bus: None,
            mesh: None,
            launcher: Launcher {
                program: env!("CARGO_BIN_EXE_plugin-launch").into(),
                arguments: Vec::new(),
            },
        }
    }

    /// A runtime that can be killed.
    pub(crate) fn start_mortal(&self, config: &str) -> Mortal {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let runtime = tokio::task::block_in_place(|| threads.block_on(self.start(config)));
        Mortal { runtime, threads }
    }

    pub(crate) async fn intent(&self, id: IntentId) -> Intent {
        self.engine.observe(id).await.unwrap().unwrap()
    }

    /// Waits until the job is over.
    pub(crate) async fn ended(&self, id: IntentId) -> Intent {
        self.until(id, |intent| intent.settled_at.is_some()).await
    }

    pub(crate) async fn until(&self, id: IntentId, wanted: impl Fn(&Intent) -> bool) -> Intent {
        let began = Instant::now();
        loop {
            let intent = self.intent(id).await;
            if wanted(&intent) {
                return intent;
            }
            assert!(began.elapsed() < PATIENCE, "still {intent:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until this job and all its descendants are over.
    pub(crate) async fn tree(&self, root: IntentId) -> Vec<(Job, Intent)> {
        let mut found = vec![self.ended(root).await];
        let mut next = 0;
        while next < found.len() {
            for child in self.engine.children(found[next].id, 100).await.unwrap() {
                found.push(self.ended(child.id).await);
            }
            next += 1;
        }
        let read = |intent: Intent| (Job::read(&intent).unwrap(), intent);
        found.into_iter().map(read).collect()
    }

    /// All jobs of a plugin in the ledger, oldest first.
    pub(crate) async fn jobs(&self, plugin: &str) -> Vec<(Job, Intent)> {
        let page = self.engine.intents(IntentFilter {
            face: Face::Automation,
            owner: None,
            namespace: None,
            goal: None,
            state: None,
            before: None,
            limit: 1_000,
        });
        let found = page.await.unwrap().intents.into_iter().rev();
        let read = found.map(|intent| (Job::read(&intent).unwrap(), intent));
        read.filter(|(job, _)| job.plugin == plugin).collect()
    }

    /// Waits until a plugin has this many jobs.
    pub(crate) async fn jobs_are(&self, plugin: &str, count: usize) -> Vec<(Job, Intent)> {
        let began = Instant::now();
        loop {
            let jobs = self.jobs(plugin).await;
            if jobs.len() >= count {
                return jobs;
            }
            assert!(began.elapsed() < PATIENCE, "still {} jobs", jobs.len());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn schedule(&self, plugin: &str, id: &str) -> records::ScheduleRecord {
        let record = self
            .record(records::schedule_key(plugin, id))
            .await
            .unwrap();
        serde_json::from_str(&record.value).unwrap()
    }

    /// Waits until a schedule is in the wanted state.
    pub(crate) async fn schedule_is(
        &self,
        plugin: &str,
        id: &str,
        wanted: impl Fn(&records::ScheduleRecord) -> bool,
    ) -> records::ScheduleRecord {
        let began = Instant::now();
        loop {
            if self
                .record(records::schedule_key(plugin, id))
                .await
                .is_some()
            {
                let found = self.schedule(plugin, id).await;
                if wanted(&found) {
                    return found;
                }
                assert!(began.elapsed() < PATIENCE, "still {found:?}");
            }
            assert!(began.elapsed() < PATIENCE, "no record");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn put(&self, key: consign_kernel::record::Key, value: &impl Serialize) {
        let put = Put {
            key,
            value: serde_json::to_string(value).unwrap(),
            expires_at: None,
            expect: None,
        };
        let put = self.engine.apply(None, Command::Put(put)).await;
        put.unwrap();
    }

    pub(crate) async fn log(&self, id: IntentId, attempt: u32) -> records::JobLog {
        let key = records::log_key(&consign_automation::runtime::job_id(id), attempt);
        let record = self.engine.record(key).await.unwrap().unwrap();
        serde_json::from_str(&record.value).unwrap()
    }

    /// Waits until the attempt is logged.
    pub(crate) async fn logged(&self, id: IntentId, attempt: u32) -> records::JobLog {
        let key = records::log_key(&consign_automation::runtime::job_id(id), attempt);
        let began = Instant::now();
        while self.record(key.clone()).await.is_none() {
            assert!(began.elapsed() < PATIENCE, "no log of {key:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.log(id, attempt).await
    }

    pub(crate) async fn record(&self, key: consign_kernel::record::Key) -> Option<Record> {
        self.engine.record(key).await.unwrap()
    }
}

/// A runtime with its own threads.
pub(crate) struct Mortal {
    pub(crate) runtime: Runtime,
    threads: tokio::runtime::Runtime,
}

impl Mortal {
    /// Drops everything at once, as if the process was killed.
    pub(crate) fn die(self) {
        tokio::task::block_in_place(|| self.threads.shutdown_timeout(PATIENCE));
    }
}

/// Waits for a live event of this kind, and returns its data.
pub(crate) async fn told(runtime: &Runtime, kind: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let mut told = live_events(runtime).into_iter();
        if let Some((_, data)) = told.find(|(found, data)| *found == kind && wanted(data)) {
            return data;
        }
        assert!(began.elapsed() < PATIENCE, "{kind} was not told");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The live events that are kept.
pub(crate) fn live_events(runtime: &Runtime) -> Vec<NamedEvent> {
    let (events, _) = runtime.live_events().between(0, u64::MAX, usize::MAX);
    events.iter().flat_map(views::live_events).collect()
}

/// Reads the events of all jobs from the ledger, in pages.
pub(crate) async fn job_events(runtime: &Runtime) -> Vec<NamedEvent> {
    let (mut reader, mut events) = (runtime.job_events(FactSeq(0)), Vec::new());
    loop {
        let page = reader.next_page().await.unwrap();
        events.extend(page.events.iter().map(views::job_event));
        if !page.more {
            return events;
        }
    }
}

/// Enqueues one job of a plugin's command.
pub(crate) async fn run(
    runtime: &Runtime,
    plugin: &str,
    command: &str,
    payload: Value,
) -> IntentId {
    let enqueued = runtime
        .run_plugin(plugin, command, payload, "api.trigger", SubmittedBy::Api)
        .await
        .unwrap();
    let text = consign_automation::runtime::job_id(enqueued.id);
    assert_eq!(parse_job_id(&text), Some(enqueued.id));
    enqueued.id
}

pub(crate) fn keyed(plugin: &str, command: &str, key: &str) -> Job {
    Job {
        dedupe_key: Some(key.to_owned()),
        ..Job::root(plugin, command, SubmittedBy::Cli, Value::Null)
    }
}

#[test]
fn every_file_of_tests_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runtime");
    ledger::assert_all_listed(folder);
}
