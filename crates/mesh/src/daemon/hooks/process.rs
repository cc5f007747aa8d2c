//! Runs one script: input, output within its limit, and the end of its process group after the timeout.
//!
//! Invariant: however the run ends, the leader is gone when the future completes; after a timeout no member of its group is
//! left. If the future is dropped, the group is killed. What a script leaves in the background after a normal end goes on.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use consign_kernel::plant::{self, Plant};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::limits::HOOK_KILL_AFTER_MS;

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long output is read after the end, in case a process in the background holds the pipe.
const DRAIN: Duration = Duration::from_millis(500);
/// Another thread may hold a descriptor of a script that was just written, and then it cannot be executed yet.
const BUSY_TRIES: u32 = 50;

/// What to start.
#[derive(Debug)]
pub(super) struct HookCommand {
    /// The script, or a program that starts it.
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) directory: PathBuf,
    /// The complete environment.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) input: String,
    pub(super) output_bytes_max: usize,
    pub(super) timeout: Duration,
    /// Whether signals reach the whole group or its leader alone.
    pub(super) signals_group: bool,
}

/// How the run ended.
#[derive(Debug)]
pub(super) struct HookEnd {
    /// The exit code; 128 and the number of the signal that ended it; 126 if it was not started.
    pub(super) exit: i32,
    pub(super) timed_out: bool,
    pub(super) stdout: HookStream,
    pub(super) stderr: HookStream,
    pub(super) elapsed: Duration,
    /// Why it was not started.
    pub(super) start_error: Option<String>,
}

/// The beginning of an output, and how long it was.
#[derive(Debug, Default)]
pub(super) struct HookStream {
    pub(super) kept: Vec<u8>,
    pub(super) bytes: u64,
}

impl HookStream {
    pub(super) fn is_cut(&self) -> bool {
        u64::try_from(self.kept.len()).unwrap_or(u64::MAX) < self.bytes
    }

    /// Reads until the pipe is closed; what is above the limit is counted and dropped.
    async fn read(&mut self, mut pipe: impl AsyncRead + Unpin, bytes_max: usize) {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
            let room = bytes_max.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&chunk[..length.min(room)]);
            self.bytes += u64::try_from(length).unwrap_or(u64::MAX);
        }
    }
}

const EXIT_NOT_STARTED: i32 = 126;

pub(super) async fn run(command: HookCommand) -> HookEnd {
    let started_at = Instant::now();
    let mut end = HookEnd {
        exit: EXIT_NOT_STARTED,
        timed_out: false,
        stdout: HookStream::default(),
        stderr: HookStream::default(),
        elapsed: Duration::ZERO,
        start_error: None,
    };
    match start(&command).await {
        Ok(child) => supervise(child, command, &mut end).await,
        Err(error) => end.start_error = Some(error.to_string()),
    }
    end.elapsed = started_at.elapsed();
    end
}

async fn start(command: &HookCommand) -> io::Result<Child> {
    let mut tries = 0;
    loop {
        let mut process = Command::new(&command.program);
        if !plant::on(Plant::HookVariablesLeak) {
            process.env_clear();
        }
        let started = process
            .args(&command.arguments)
            .envs(command.variables.iter().cloned())
            .current_dir(&command.directory)
            .process_group(0)
            .kill_on_drop(true)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        match started {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES =>
            {
                tries += 1;
                sleep(LOOK_EVERY).await;
            }
            other => return other,
        }
    }
}

async fn supervise(mut child: Child, command: HookCommand, end: &mut HookEnd) {
    let mut group = HookGroup::of(child.id(), command.signals_group);
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let most = command.output_bytes_max;
    let HookEnd {
        stdout: kept_stdout,
        stderr: kept_stderr,
        ..
    } = end;
    // Concurrently: a script may write before it reads, and pipes one after the other would wait for each other.
    let pipes = async {
        tokio::join!(
            async {
                if let Some(mut stdin) = stdin {
                    // A script may end without reading its input.
                    let _ = stdin.write_all(command.input.as_bytes()).await;
                }
            },
            async {
                if let Some(pipe) = stdout {
                    kept_stdout.read(pipe, most).await;
                }
            },
            async {
                if let Some(pipe) = stderr {
                    kept_stderr.read(pipe, most).await;
                }
            },
        );
    };
    let life = async {
        let in_time = timeout(command.timeout, child.wait()).await;
        if let Ok(status) = in_time {
            group.forget();
            return (exit_code(&status), false);
        }
        group.signal(Signal::TERM);
        let all_ended = async {
            let status = child.wait().await;
            group.is_empty().await;
            status
        };
        let grace = Duration::from_millis(HOOK_KILL_AFTER_MS);
        let ended = timeout(grace, all_ended).await;
        // Invariant: there is no await between the last look at the group and this kill, so its id was not used again.
        group.kill();
        if let Ok(status) = ended {
            return (exit_code(&status), true);
        }
        // By its own id, because a leader that left its group was not reached.
        let _ = child.start_kill();
        (exit_code(&child.wait().await), true)
    };
    tokio::pin!(pipes, life);
    let (exit, timed_out) = tokio::select! {
        biased;
        ended = &mut life => {
            let _ = timeout(DRAIN, pipes).await;
            ended
        }
        () = &mut pipes => life.await,
    };
    end.exit = exit;
    end.timed_out = timed_out;
}

fn exit_code(status: &io::Result<ExitStatus>) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    let Ok(status) = status else {
        return EXIT_NOT_STARTED;
    };
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).unwrap_or(EXIT_NOT_STARTED)
}

/// The process group of a script. Dropping it kills its members.
#[derive(Debug)]
struct HookGroup {
    leader: Option<Pid>,
    signals_group: bool,
}

impl HookGroup {
    fn of(leader: Option<u32>, signals_group: bool) -> Self {
        let leader = leader.and_then(|id| i32::try_from(id).ok());
        Self {
            leader: leader.and_then(Pid::from_raw),
            signals_group: signals_group && !plant::on(Plant::HookLeaderOnly),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // It fails if no process is left, which is the goal.
            let _ = if self.signals_group {
                kill_process_group(leader, signal)
            } else {
                kill_process(leader, signal)
            };
        }
    }

    /// Completes when no member is left.
    async fn is_empty(&self) {
        while let Some(leader) = self.leader
            && self.signals_group
            && test_kill_process_group(leader) != Err(Errno::SRCH)
        {
            sleep(LOOK_EVERY).await;
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.leader = None;
    }

    fn forget(&mut self) {
        self.leader = None;
    }
}

impl Drop for HookGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
