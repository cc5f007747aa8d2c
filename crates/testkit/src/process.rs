//! A real server process for tests: started, waited for, stopped or killed.
//!
//! Invariant: a [`Server`] that goes out of scope leaves no process behind. Variables that would
//! configure the server are not inherited, so a test behaves the same on every machine; only
//! `CONSIGN_PLANT` is inherited, because it enables planted defects.

mod http;
pub mod table;
pub mod websocket;

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use http::{Http, Reply, read_reply};

/// Longer than any healthy start takes on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);
const KILLED: io::ErrorKind = io::ErrorKind::ConnectionAborted;

/// How to start a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `consign` binary.
    pub binary: PathBuf,
    /// Its data directory.
    pub data: PathBuf,
    /// The address that it listens on.
    pub listen: String,
    /// Variables in addition to the cleaned environment.
    pub env: Vec<(String, String)>,
    /// Further arguments of `serve`.
    pub args: Vec<String>,
}

impl Options {
    pub fn new(binary: impl Into<PathBuf>, data: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            data: data.into(),
            listen: "127.0.0.1:0".to_owned(),
            env: Vec::new(),
            args: Vec::new(),
        }
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    #[must_use]
    pub fn listen(mut self, listen: &str) -> Self {
        listen.clone_into(&mut self.listen);
        self
    }

    fn serve(&self) -> Command {
        let mut command = cleaned(&self.binary);
        command.args(["serve", "--listen", &self.listen, "--log-format", "json"]);
        command.arg("--data").arg(&self.data).args(&self.args);
        let variables = self.env.iter().map(|(name, value)| (name, value));
        command.envs(variables).stdin(Stdio::null());
        command
    }

    /// The file that collects the server's log, over all its starts.
    pub fn stderr_file(&self) -> PathBuf {
        let mut path = self.data.clone().into_os_string();
        path.push(".stderr");
        path.into()
    }
}

/// Whether [`Server::start`] failed because a signal ended the server before it was ready, as a failpoint does.
pub fn killed_at_start(error: &io::Error) -> bool {
    error.kind() == KILLED
}

/// A command that inherits no variable that would configure Consign.
pub fn cleaned(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        let configures = shown.starts_with("BUS_")
            || shown.starts_with("ATP_")
            || shown.starts_with("BEAM_")
            || shown.starts_with("RELAY_")
            || shown.starts_with("CONSIGN_")
            || shown.starts_with("MESH_")
            || shown.starts_with("CLAUDEMESH_")
            || matches!(
                shown.as_ref(),
                "DASHBOARD_PASSWORD"
                    | "RUST_LOG"
                    | "JWT_SECRET"
                    | "RATE_LIMIT"
                    | "IDENTITY_PATH"
                    | "DIRECTORY_URL"
                    | "RETRY_INTERVAL_MS"
                    | "RETRY_TIME_SCALE"
                    // What a mesh daemon takes for CI, a container or a rented machine.
                    | "CI"
                    | "GITHUB_ACTIONS"
                    | "GITLAB_CI"
                    | "BUILDKITE"
                    | "CIRCLECI"
                    | "JENKINS_URL"
                    | "RUNPOD_POD_ID"
                    | "KUBERNETES_SERVICE_HOST"
            );
        if configures && shown != "CONSIGN_PLANT" {
            command.env_remove(&name);
        }
    }
    command
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    base_url: String,
    stdout: Arc<Mutex<Vec<String>>>,
    data: PathBuf,
    stderr_file: PathBuf,
}

impl Server {
    /// Starts the server and waits until it is ready. [`killed_at_start`] recognises the error of a server that a signal ended.
    pub fn start(options: &Options) -> io::Result<Self> {
        let stderr_file = options.stderr_file();
        let mut server = Self::spawn(options, &stderr_file)?;
        let deadline = Instant::now() + START_LIMIT;
        while !server.is_ready() {
            if let Some(status) = server.child.try_wait()? {
                let said = std::fs::read_to_string(&stderr_file).unwrap_or_default();
                let message = format!("the server ended with {status}: {}", tail(&said));
                let killed = status.signal().is_some();
                let kind = if killed { KILLED } else { io::ErrorKind::Other };
                return Err(io::Error::new(kind, message));
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the server did not become ready",
                ));
            }
            thread::sleep(POLL);
        }
        Ok(server)
    }

    fn spawn(options: &Options, stderr_file: &Path) -> io::Result<Self> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(stderr_file)?;
        let mut child = options.serve().stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = Arc::new(Mutex::new(Vec::new()));
        if let Some(pipe) = child.stdout.take() {
            collect(pipe, Arc::clone(&stdout));
        }
        Ok(Self {
            child,
            base_url: String::new(),
            stdout,
            data: options.data.clone(),
            stderr_file: stderr_file.to_owned(),
        })
    }

    /// Whether the address was printed and the health check succeeds there. With TLS only a connection is opened.
    fn is_ready(&mut self) -> bool {
        if self.base_url.is_empty() {
            let lines = self.stdout_lines();
            let Some(url) = lines.iter().find_map(|line| printed_url(line)) else {
                return false;
            };
            self.base_url = url;
        }
        let mut http = self.http();
        if self.base_url.starts_with("https://") {
            return http.connect().is_ok();
        }
        http.get("/health").is_ok_and(|reply| reply.status == 200)
    }

    /// Such as `http://127.0.0.1:40123`.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// `address:port`.
    pub fn authority(&self) -> &str {
        self.base_url
            .split_once("://")
            .map_or("", |(_, authority)| authority)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The lines that it printed so far.
    pub fn stdout_lines(&self) -> Vec<String> {
        self.stdout
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The log so far, including earlier starts.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr_file).unwrap_or_default()
    }

    /// One of the secrets that the server generated, such as `bus_secret`.
    pub fn secret(&self, name: &str) -> io::Result<String> {
        let text = std::fs::read_to_string(self.data.join("keys").join(name))?;
        Ok(text.trim().to_owned())
    }

    /// A client without credentials.
    pub fn http(&self) -> Http {
        Http::new(self.authority())
    }

    /// A client with the main key that the server generated.
    pub fn main_client(&self) -> io::Result<Http> {
        Ok(self.http().header("X-API-KEY", &self.secret("bus_secret")?))
    }

    /// A client with the admin token that the server generated.
    pub fn admin_client(&self) -> io::Result<Http> {
        let token = self.secret("admin_secret")?;
        Ok(self.http().header("X-Admin-Token", &token))
    }

    /// Sends a signal by its name, such as `HUP`.
    pub fn signal(&self, name: &str) -> io::Result<()> {
        signal(self.pid(), name)
    }

    /// Kills it with SIGKILL.
    pub fn kill9(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Waits at most `limit` until it ends by itself.
    pub fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        wait(&mut self.child, limit)
    }

    /// Sends SIGTERM and waits at most `limit` until it ends.
    pub fn terminate(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        self.signal("TERM")?;
        wait(&mut self.child, limit)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies the secrets of a server to another data directory; all nodes of a ledger must have the same secrets.
pub fn copy_secrets(from: &Path, to: &Path) -> io::Result<()> {
    let keys = to.join("keys");
    let mut private = DirBuilder::new();
    private.mode(0o700).recursive(true).create(&keys)?;
    for entry in std::fs::read_dir(from.join("keys"))? {
        let entry = entry?;
        std::fs::copy(entry.path(), keys.join(entry.file_name()))?;
    }
    Ok(())
}

/// Sends a signal by its name to a process.
pub fn signal(pid: u32, name: &str) -> io::Result<()> {
    let status = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("kill -{name}: {status}")))
}

/// Runs `serve` with options that it is expected to refuse, and returns its output.
pub fn serve_until_exit(options: &Options, limit: Duration) -> io::Result<Output> {
    run(options.serve(), limit)
}

/// Runs a command to its end within `limit`, collecting its output.
pub fn run(mut command: Command, limit: Duration) -> io::Result<Output> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().map(drain);
    let stderr = child.stderr.take().map(drain);
    let status = wait(&mut child, limit);
    if status.is_err() {
        child.kill()?;
        child.wait()?;
    }
    let bytes = |pipe: Option<thread::JoinHandle<Vec<u8>>>| {
        pipe.and_then(|pipe| pipe.join().ok()).unwrap_or_default()
    };
    Ok(Output {
        status: status?,
        stdout: bytes(stdout),
        stderr: bytes(stderr),
    })
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            let message = format!("still running after {limit:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        thread::sleep(POLL);
    }
}

/// A full pipe would block the server, so it is read to the end.
fn collect(pipe: ChildStdout, lines: Arc<Mutex<Vec<String>>>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
        }
    });
}

fn drain(mut pipe: impl io::Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // After an error there is no more to read.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn printed_url(line: &str) -> Option<String> {
    let start = line.find("http://").or_else(|| line.find("https://"))?;
    let (scheme, rest) = line[start..].split_once("://")?;
    let ends = |letter: char| !(letter.is_ascii_alphanumeric() || ".:[]-".contains(letter));
    let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
    (!authority.is_empty()).then(|| format!("{scheme}://{authority}"))
}

/// The end of a log, enough to see why a start failed.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::printed_url;

    #[test]
    fn the_address_is_found_in_a_line_for_people() {
        let found = |line| printed_url(line).unwrap_or_default();
        assert_eq!(
            found("listening on http://127.0.0.1:7070"),
            "http://127.0.0.1:7070"
        );
        assert_eq!(
            found("at https://[::1]:7/admin/dashboard"),
            "https://[::1]:7"
        );
        assert_eq!(found("nothing here"), "");
    }
}
