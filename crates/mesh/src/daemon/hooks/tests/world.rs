//! A folder with scripts, and the hooks of one daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::super::*;
use crate::daemon::log::{MeshLogLevel, MeshLogOptions};
use crate::daemon::test_keys::key;
use crate::id::TopicName;

/// Long enough for a machine with other work.
const DEADLINE: Duration = Duration::from_secs(30);

pub(super) struct World {
    pub(super) folder: tempfile::TempDir,
    pub(super) log: DaemonLog,
    pub(super) metrics: DaemonMetrics,
}

/// Loaded hooks, and the channel of their ends.
pub(super) struct Loaded {
    pub(super) hooks: Hooks,
    runs: mpsc::UnboundedReceiver<HookRun>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    pub(super) fn at(folder: tempfile::TempDir) -> Self {
        consign_testkit::plants::from_environment();
        fs::create_dir(folder.path().join(HOOKS_FOLDER)).unwrap();
        let log = DaemonLog::open(MeshLogOptions {
            mesh: "team".to_owned(),
            level: MeshLogLevel::Debug,
            file: Some(folder.path().join("daemon.log")),
            on_stderr: false,
        });
        Self {
            log: log.unwrap(),
            metrics: DaemonMetrics::new("team"),
            folder,
        }
    }

    /// A file that scripts write to.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Writes a script; `$OUT` in it is the folder of [`World::path`].
    pub(super) fn script(&self, name: &str, body: &str) {
        let path = self.path(&format!("{HOOKS_FOLDER}/{name}.sh"));
        let out = self.folder.path().display();
        fs::write(&path, format!("#!/bin/sh\nOUT={out}\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    }

    pub(super) fn options(&self) -> HookOptions {
        HookOptions {
            directory: self.folder.path().to_owned(),
            mesh: "team".to_owned(),
            socket: self.path("sock"),
            secret_folder: self.path("secrets"),
            enabled: true,
            concurrency: 8,
            default_timeout_s: 30,
            stdin_limit_bytes: 262_144,
            programs: IsolationPrograms::default(),
        }
    }

    pub(super) fn load(&self, settings: &str) -> Loaded {
        self.load_with(self.options(), settings)
    }

    pub(super) fn load_with(&self, options: HookOptions, settings: &str) -> Loaded {
        let path = self.path(HOOKS_FOLDER).join(HOOKS_FILE);
        fs::write(path, settings).unwrap();
        self.load_files(options)
    }

    pub(super) fn load_files(&self, options: HookOptions) -> Loaded {
        let (hooks, runs) = Hooks::load(options, &self.log, &self.metrics).unwrap();
        Loaded { hooks, runs }
    }

    pub(super) fn logged(&self, event: &str) -> Vec<Value> {
        let lines = self.read("daemon.log");
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines.filter(|line: &Value| line["msg"] == event).collect()
    }
}

impl Loaded {
    /// The next end of a run.
    pub(super) async fn end(&mut self) -> HookRun {
        let run = timeout(DEADLINE, self.runs.recv()).await;
        run.expect("a run ends in time").unwrap()
    }

    /// The ends so far, once everything that was started has ended.
    pub(super) async fn ends(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            names.push(self.end().await.audit.hook);
        }
        assert!(self.runs.try_recv().is_err(), "one run too many");
        names.sort();
        names
    }
}

pub(super) fn event(value: Value) -> Map<String, Value> {
    let Value::Object(members) = value else {
        panic!("an event is an object");
    };
    members
}

/// A message of key 2.
pub(super) fn message(event_value: Value) -> HookMessage {
    HookMessage {
        event: event(event_value),
        origin: HookOrigin {
            sender: Some(key(2).public_key()),
            topic: None,
        },
        is_direct: true,
        is_mention: false,
    }
}

pub(super) fn post(topic: &str) -> HookMessage {
    let mut message = message(json!({"id": "e1"}));
    message.is_direct = false;
    message.origin.topic = Some(TopicName::parse(topic).unwrap());
    message
}

/// Waits until the condition holds.
pub(super) async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
