//! Runs one command of a plugin as a process of its own.
//!
//! However it ends (by itself, at its deadline, by cancellation, or because the future is dropped) nothing of its process group
//! is left, and a process that got away from the group holds nobody up. A process that is to have less than the server is
//! started by a launcher; see [`super::confine`].

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{sleep, timeout};

use super::capture::Captured;
use super::environment::PluginVariables;
use super::group::ProcessGroup;
use super::interpreter;
use super::open_files;

/// What to start. The working directory is ours, and there are no arguments.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// Absolute.
    pub entrypoint: PathBuf,
    /// Without one, the entrypoint is started itself.
    pub launcher: Option<Launcher>,
    /// All that the process sees of the environment.
    pub environment: PluginVariables,
    /// For its standard input, which is closed behind it.
    pub request: Vec<u8>,
    pub timeout: Duration,
    pub limits: RunLimits,
}

/// A program that becomes the entrypoint, which is its last argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// For our own program, `/proc/self/exe` is still the one that runs when the file was replaced.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    pub stdout_bytes_max: usize,
    pub stderr_bytes_max: usize,
    /// Between the request to end and the kill.
    pub grace: Duration,
    /// How long we read on after the end, for a pipe that somebody outside of the group holds open.
    pub drain: Duration,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            stdout_bytes_max: 10 << 20,
            stderr_bytes_max: 64 << 10,
            grace: Duration::from_secs(5),
            drain: Duration::from_millis(500),
        }
    }
}

/// How a run ended, and what was printed until then.
#[derive(Debug)]
pub struct ProcessEnd {
    pub how: ExitKind,
    pub stdout: Captured,
    pub stderr: Captured,
    pub elapsed: Duration,
}

#[derive(Debug)]
pub enum ExitKind {
    Exited(ExitStatus),
    TimedOut,
    Cancelled,
    /// The reason, for people.
    NotStarted(String),
    /// The system has no room for another process just now, which is nobody's fault here. The reason, for people.
    NoResources(String),
}

/// `on_start` is told the process id, which is also that of its group. When `cancel` is ready the group gets the grace that it
/// gets at the deadline; when this future is dropped it is killed at once.
pub async fn run(
    job: ProcessSpec,
    on_start: impl FnOnce(u32),
    cancel: impl Future<Output = ()>,
) -> ProcessEnd {
    let started_at = Instant::now();
    let mut stdout = Captured::default();
    let mut stderr = Captured::default();
    let how = match start(&job) {
        Ok(mut child) => {
            let group = ProcessGroup::of(child.id());
            open_files::restore_limit(&job, child.id());
            child.id().map(on_start);
            supervise(&mut child, group, job, cancel, (&mut stdout, &mut stderr)).await
        }
        Err(error) => {
            let launcher = job.launcher.as_ref().map(|launcher| &launcher.program);
            let program = launcher.unwrap_or(&job.entrypoint);
            let why = why_not_started(program, &error);
            if is_out_of_resources(&error) {
                ExitKind::NoResources(why)
            } else {
                ExitKind::NotStarted(why)
            }
        }
    };
    ProcessEnd {
        how,
        stdout,
        stderr,
        elapsed: started_at.elapsed(),
    }
}

fn start(job: &ProcessSpec) -> io::Result<Child> {
    let mut command = match &job.launcher {
        None => Command::new(&job.entrypoint),
        Some(launcher) => {
            let mut command = Command::new(&launcher.program);
            command.args(&launcher.arguments).arg(&job.entrypoint);
            command
        }
    };
    command
        .env_clear()
        .envs(&job.environment)
        .process_group(0)
        // The group is killed on every path, but a leader may have left it for the server's own.
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

async fn supervise(
    child: &mut Child,
    mut group: ProcessGroup,
    job: ProcessSpec,
    cancel: impl Future<Output = ()>,
    (kept_stdout, kept_stderr): (&mut Captured, &mut Captured),
) -> ExitKind {
    let stdin = child.stdin.take().expect("it was asked for as a pipe");
    let stdout = child.stdout.take().expect("it was asked for as a pipe");
    let stderr = child.stderr.take().expect("it was asked for as a pipe");
    let limits = job.limits;
    // All at once: a plugin may write before it reads, and either side would wait for the other.
    let pipes = async {
        tokio::join!(
            write_request(stdin, job.request),
            kept_stdout.read(stdout, limits.stdout_bytes_max),
            kept_stderr.read(stderr, limits.stderr_bytes_max),
        )
    };
    let life = async {
        // Ordering: the end comes first, so that a process which ends at the very deadline has ended.
        let how = tokio::select! {
            biased;
            status = child.wait() => exited(status),
            () = sleep(job.timeout) => ExitKind::TimedOut,
            () = cancel => ExitKind::Cancelled,
        };
        if !matches!(how, ExitKind::Exited(_)) {
            group.terminate();
            let all_ended = async {
                let _ = child.wait().await;
                group.is_empty().await;
            };
            let _ = timeout(limits.grace, all_ended).await;
        }
        // Invariant: no await lies between the last look at the group and this kill, so its number is not that of strangers.
        group.kill();
        if !matches!(how, ExitKind::Exited(_)) {
            // By its own number, for a leader that left its group was not reached; it fails for one that has ended.
            let _ = child.start_kill();
            let _ = child.wait().await;
        }
        how
    };
    tokio::pin!(pipes, life);
    let how = tokio::select! {
        biased;
        how = &mut life => how,
        _ = &mut pipes => return life.await,
    };
    let _ = timeout(limits.drain, pipes).await;
    how
}

/// A plugin may end without reading what it was asked.
async fn write_request(mut stdin: ChildStdin, request: Vec<u8>) {
    let _ = stdin.write_all(&request).await;
}

fn exited(status: io::Result<ExitStatus>) -> ExitKind {
    match status {
        Ok(status) => ExitKind::Exited(status),
        Err(error) => ExitKind::NotStarted(format!("its end could not be learned: {error}")),
    }
}

/// Whether the system lacked what any process takes: descriptors, processes or memory. What is wrong with the program itself is
/// told otherwise (it is missing, may not be executed, or is given too much).
pub(super) fn is_out_of_resources(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM].contains(&errno)
    })
}

pub(super) fn why_not_started(entrypoint: &Path, error: &io::Error) -> String {
    let path = entrypoint.display();
    let unusable = interpreter::why_unusable(entrypoint, None);
    let fix = if error.kind() == io::ErrorKind::PermissionDenied {
        "it may not be executed; run `chmod +x` on it"
    } else if Errno::from_io_error(error) == Some(Errno::NOEXEC) {
        "it is no program of this system; a script needs a first line such as `#!/usr/bin/env bash`"
    } else if error.kind() != io::ErrorKind::NotFound {
        "the system refused"
    } else if let Some(why) = &unusable {
        why.as_str()
    } else if entrypoint.exists() {
        "the interpreter in its first line is missing; install it or correct the `#!` line"
    } else {
        "it is gone; install the plugin again"
    };
    format!("{path} could not be started: {fix} ({error})")
}
