//! A directory with plugins and a configuration, the real service on it, and its commands.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process;
use serde_json::Value;

use super::binary;

/// Far longer than any operation in these tests takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct World {
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let world = Self { folder };
        symlink(binary(), world.path("ductile")).expect("a link can be made");
        fs::create_dir(world.path("plugins")).expect("a folder can be made");
        fs::set_permissions(world.path("plugins"), fs::Permissions::from_mode(0o755))
            .expect("a mode can be set");
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let folder = fs::canonicalize(self.folder.path()).expect("the folder is there");
        folder.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A plugin in bash with the commands poll, handle and work. `$here` is the directory of the world, `$request` the request.
    pub(crate) fn plugin(&self, name: &str, body: &str) {
        let folder = self.path(&format!("plugins/{name}"));
        fs::create_dir_all(&folder).expect("a folder can be made");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("a mode can be set");
        let manifest = format!(
            "manifest_spec: ductile.plugin\nmanifest_version: 1\nname: {name}\nversion: 1.0.0\nprotocol: 2\nentrypoint: run\n\
             commands:\n  poll: {{type: read}}\n  handle: {{type: write}}\n  work: {{type: write}}\n"
        );
        fs::write(folder.join("manifest.yaml"), manifest).expect("a file can be written");
        let script = format!(
            "#!/usr/bin/env bash\nhere='{}'\nrequest=$(cat)\n{body}\n",
            self.path("").display()
        );
        fs::write(folder.join("run"), script).expect("a file can be written");
        fs::set_permissions(folder.join("run"), fs::Permissions::from_mode(0o755))
            .expect("a mode can be set");
    }

    /// Adds the plugin roots and the path of the ledger.
    pub(crate) fn config(&self, text: &str) {
        let head = "plugin_roots: [plugins]\nstate: {path: state/ductile.db}\n";
        fs::write(self.path("config.yaml"), format!("{head}{text}"))
            .expect("a file can be written");
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = process::cleaned(program);
        command
            .args(args)
            .args([
                "--config",
                self.path("config.yaml").to_str().expect("plain"),
            ])
            .env("HOME", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// `ductile …` with the configuration of this world.
    pub(crate) fn ductile(&self, args: &[&str]) -> Output {
        self.ductile_with(args, &[])
    }

    /// The same with these variables.
    pub(crate) fn ductile_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = self.command(&self.path("ductile"), args);
        command.envs(variables.iter().copied());
        process::run(command, LONG).expect("the command ends in time")
    }

    /// The same through the `consign` binary.
    pub(crate) fn consign(&self, args: &[&str]) -> Output {
        let command = self.command(&binary(), args);
        process::run(command, LONG).expect("the command ends in time")
    }

    /// The output of `ductile … --json`, whatever its exit code.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.ductile(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    pub(crate) fn start(&self) -> Service {
        self.start_with(&[])
    }

    /// Starts the service and waits until it runs.
    pub(crate) fn start_with(&self, variables: &[(&str, &str)]) -> Service {
        let mut command = self.command(&self.path("ductile"), &["system", "start"]);
        command.envs(variables.iter().copied());
        let service = Service::spawn(command);
        service.until_logged("the automation is running");
        service
    }

    /// Starts a service that does not log its start, and waits until it accepts connections.
    pub(crate) fn start_quietly(&self) -> Service {
        let command = self.command(&self.path("ductile"), &["system", "start"]);
        let service = Service::spawn(command);
        until("it answers", || {
            UnixStream::connect(self.path("state/ductile.sock")).is_ok()
        });
        service
    }

    /// Starts a service that must refuse to start.
    pub(crate) fn refused(&self) -> Output {
        self.ductile(&["system", "start"])
    }
}

/// The number of rounds in crash tests, larger for a long run.
pub(crate) fn rounds() -> u32 {
    let asked = std::env::var("CONSIGN_CRASH_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(6)
}

pub(crate) fn until(what: &str, met: impl Fn() -> bool) {
    let began = Instant::now();
    while !met() {
        assert!(began.elapsed() < LONG, "not in time: {what}");
        thread::sleep(LOOK);
    }
}

/// A running service. Dropping it kills it.
pub(crate) struct Service {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Service {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let pipe = child.stdout.take().expect("it was asked for");
        let kept = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                kept.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
            }
        });
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock();
        lines.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every line of the log so far.
    pub(crate) fn log(&self) -> Vec<Value> {
        let lines = self.lines().into_iter();
        lines
            .map(|line| serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}")))
            .collect()
    }

    pub(crate) fn until_logged(&self, text: &str) {
        until(text, || self.lines().iter().any(|line| line.contains(text)));
    }

    pub(crate) fn signal(&self, name: &str) {
        process::signal(self.pid(), name).expect("the signal is sent");
    }

    pub(crate) fn kill9(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is gone");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(began.elapsed() < LONG, "it does not end");
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) const OK: &str = r#"echo '{"status": "ok", "result": "done"}'"#;
