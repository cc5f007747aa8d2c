//! Runs one command of a plugin as a process.
//!
//! However the run ends (exit, deadline, cancellation or drop of the future), no member of its process group survives, and a
//! process that left the group delays nothing. A confined process is started by a launcher; see [`super::confine`].

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

/// What to start. The working directory is inherited, and there are no arguments.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// Absolute.
    pub entrypoint: PathBuf,
    /// Without a launcher, the entrypoint is started directly.
    pub launcher: Option<Launcher>,
    /// The complete environment of the process.
    pub environment: PluginVariables,
    /// The bytes for standard input, which is then closed.
    pub request: Vec<u8>,
    pub timeout: Duration,
    pub limits: RunLimits,
}

/// A program that executes the entrypoint, which is its last argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// For this binary, `/proc/self/exe` is the running version even if the file was replaced.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    pub stdout_bytes_max: usize,
    pub stderr_bytes_max: usize,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long output is read after the exit, in case a process outside of the group holds a pipe open.
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

/// How a run ended, with the output until then.
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
    /// The reason, as text.
    NotStarted(String),
    /// The system has no resources for another process at the moment. The reason, as text.
    NoResources(String),
}

/// Calls `on_start` with the process id, which is also the group id. When `cancel` completes, the group gets the same grace
/// period as at the deadline; when this future is dropped, it is killed at once.
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
        // The group is killed on every path, but a leader may have moved to the server's group.
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
    let stdin = child
        .stdin
        .take()
        .expect("the stream was configured as a pipe");
    let stdout = child
        .stdout
        .take()
        .expect("the stream was configured as a pipe");
    let stderr = child
        .stderr
        .take()
        .expect("the stream was configured as a pipe");
    let limits = job.limits;
    // Concurrently: a plugin may write before it reads, and sequential pipes would deadlock.
    let pipes = async {
        tokio::join!(
            write_request(stdin, job.request),
            kept_stdout.read(stdout, limits.stdout_bytes_max),
            kept_stderr.read(stderr, limits.stderr_bytes_max),
        )
    };
    let life = async {
        // Ordering: the exit is polled first, so that a process that exits exactly at the deadline has exited.
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
        // Invariant: there is no await between the last check of the group and this kill, so the group id cannot have been
        // reused.
        group.kill();
        if !matches!(how, ExitKind::Exited(_)) {
            // By its own id, because a leader that left its group was not reached. This fails if it has exited.
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

/// A plugin may exit without reading its request.
async fn write_request(mut stdin: ChildStdin, request: Vec<u8>) {
    let _ = stdin.write_all(&request).await;
}

fn exited(status: io::Result<ExitStatus>) -> ExitKind {
    match status {
        Ok(status) => ExitKind::Exited(status),
        Err(error) => ExitKind::NotStarted(format!("its exit status is unknown: {error}")),
    }
}

/// Whether the system lacked descriptors, processes or memory. Errors of the program itself (missing, not executable, too many
/// arguments) are reported differently.
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
        "it is not an executable of this system; a script needs a first line such as `#!/usr/bin/env bash`"
    } else if error.kind() != io::ErrorKind::NotFound {
        "the system refused"
    } else if let Some(why) = &unusable {
        why.as_str()
    } else if entrypoint.exists() {
        "the interpreter in its first line is missing; install it or correct the `#!` line"
    } else {
        "it no longer exists; install the plugin again"
    };
    format!("{path} could not be started: {fix} ({error})")
}
