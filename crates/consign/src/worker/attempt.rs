//! One attempt: the command of a claimed intent, and the lease that it needs.
//!
//! Invariant: the command does not outlive the lease. Without an answer from the server, the lease counts as over when it would
//! be over if the last request had not arrived.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use consign_automation::plugin::group::ProcessGroup;
use consign_client::{Claimed, Client, Error, NextAttempt, Output, StatusCode};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::streams::{CommandOutput, ErrorTail};
use super::{StopPhase, WorkerSettings, result};

/// A command that ends with it cannot succeed: `EX_CONFIG` of `sysexits`.
const EXIT_FOR_GOOD: i32 = 78;

/// The time between SIGTERM and SIGKILL.
pub(super) const KILL_PAUSE: Duration = Duration::from_secs(5);

/// How long output is read after the exit, in case a process outside of the group holds a pipe open.
const DRAIN: Duration = Duration::from_millis(500);

/// The pause before an extension that failed is sent again.
const EXTEND_PAUSE: Duration = Duration::from_secs(1);

/// The lease is extended when this part of it is over.
const EXTEND_PART: u32 = 3;

/// How an attempt ended, before the server knows.
#[derive(Debug)]
pub(super) enum AttemptVerdict {
    Succeeded(Option<Output>),
    Failed {
        error: String,
        next: NextAttempt,
    },
    /// Nothing may be reported any more. The reason, as text.
    LeaseLost(String),
}

#[derive(Debug)]
pub(super) struct EndedAttempt {
    pub(super) claimed: Claimed,
    pub(super) verdict: AttemptVerdict,
    pub(super) elapsed: Duration,
    /// The command does not exist, so no attempt of this worker can succeed. The reason, as text.
    pub(super) unusable: Option<String>,
}

impl EndedAttempt {
    /// An intent that is handed out again, because the worker stops.
    pub(super) fn not_begun(claimed: Claimed) -> Self {
        Self {
            claimed,
            verdict: AttemptVerdict::Failed {
                error: "the worker was stopped before the command began".to_owned(),
                next: NextAttempt::In(Duration::ZERO),
            },
            elapsed: Duration::ZERO,
            unusable: None,
        }
    }
}

/// Why a command was ended before its time.
enum Interruption {
    LeaseLost(String),
    Stopped,
}

pub(super) async fn run(
    claimed: Claimed,
    settings: Arc<WorkerSettings>,
    client: Arc<Client>,
    mut phase: watch::Receiver<StopPhase>,
) -> EndedAttempt {
    let began = Instant::now();
    let (verdict, unusable) = match start(&claimed, &settings) {
        Ok(child) => {
            let lease = keep_lease(&client, &claimed, settings.lease, began);
            let supervised = Box::pin(supervise(child, &claimed, lease, &mut phase));
            (supervised.await, None)
        }
        Err(error) => not_started(&settings, &error),
    };
    EndedAttempt {
        claimed,
        verdict,
        elapsed: began.elapsed(),
        unusable,
    }
}

fn start(claimed: &Claimed, settings: &WorkerSettings) -> io::Result<Child> {
    let (program, arguments) = settings
        .command
        .split_first()
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("CONSIGN_INTENT_ID", &claimed.id)
        .env("CONSIGN_GOAL", &claimed.goal)
        .env("CONSIGN_NAMESPACE", &claimed.namespace)
        .env("CONSIGN_ATTEMPT", claimed.claim_attempts.to_string())
        .env("CONSIGN_WORKER_ID", &settings.worker_id)
        .env_remove("TRACEPARENT")
        // A group of its own: a signal for the worker from a terminal does not reach the command.
        .process_group(0)
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(traceparent) = &claimed.traceparent {
        command.env("TRACEPARENT", traceparent);
    }
    command.spawn()
}

fn not_started(settings: &WorkerSettings, error: &io::Error) -> (AttemptVerdict, Option<String>) {
    let program = settings.command.first().cloned().unwrap_or_default();
    let error_text = format!("{} could not be started: {error}", program.display());
    let is_no_program = Errno::from_io_error(error) == Some(Errno::NOEXEC);
    let is_unusable = is_no_program
        || matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
        );
    let unusable = is_unusable.then(|| error_text.clone());
    let verdict = AttemptVerdict::Failed {
        error: error_text,
        next: NextAttempt::Scheduled,
    };
    (verdict, unusable)
}

async fn supervise(
    mut child: Child,
    claimed: &Claimed,
    lease: impl Future<Output = String>,
    phase: &mut watch::Receiver<StopPhase>,
) -> AttemptVerdict {
    let mut group = ProcessGroup::of(child.id());
    let (mut output, mut tail) = (CommandOutput::default(), ErrorTail::default());
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let ended = {
        // Concurrently: a command may write before it reads, and sequential pipes would deadlock.
        let pipes = async {
            tokio::join!(
                write_payload(stdin, claimed),
                async {
                    if let Some(pipe) = stdout {
                        output.read(pipe).await;
                    }
                },
                async {
                    if let Some(pipe) = stderr {
                        tail.read(pipe).await;
                    }
                },
            )
        };
        let life = live(&mut child, &mut group, lease, phase);
        tokio::pin!(pipes, life);
        let (ended, open) = tokio::select! {
            biased;
            ended = &mut life => (ended, true),
            _ = &mut pipes => (life.await, false),
        };
        if open {
            let _ = timeout(DRAIN, pipes).await;
        }
        ended
    };
    match ended {
        Ok(status) => verdict(status, &output, &tail),
        Err(Interruption::LeaseLost(why)) => AttemptVerdict::LeaseLost(why),
        Err(Interruption::Stopped) => AttemptVerdict::Failed {
            error: tail.below("the worker was stopped before the command ended"),
            next: NextAttempt::In(Duration::ZERO),
        },
    }
}

/// Waits for the end of the command, and ends it with its group if the lease is lost or the worker stops.
async fn live(
    child: &mut Child,
    group: &mut ProcessGroup,
    lease: impl Future<Output = String>,
    phase: &mut watch::Receiver<StopPhase>,
) -> Result<io::Result<ExitStatus>, Interruption> {
    // Ordering: the exit is polled first, so that a command that has ended is never interrupted.
    let ended = tokio::select! {
        biased;
        status = child.wait() => Ok(status),
        why = lease => Err(Interruption::LeaseLost(why)),
        () = reached(phase, StopPhase::Terminating) => Err(Interruption::Stopped),
    };
    if ended.is_err() {
        group.terminate();
        let all_ended = async {
            let _ = child.wait().await;
            group.is_empty().await;
        };
        tokio::select! {
            _ = timeout(KILL_PAUSE, all_ended) => {}
            () = reached(phase, StopPhase::Killing) => {}
        }
    }
    // Invariant: there is no await between the last check of the group and this kill, so the group id cannot have been reused.
    group.kill();
    if ended.is_err() {
        // By its own id, because a leader that left its group was not reached. This fails if it has exited.
        let _ = child.start_kill();
        let _ = child.wait().await;
    }
    ended
}

/// A worker whose pool is gone is killed.
async fn reached(phase: &mut watch::Receiver<StopPhase>, wanted: StopPhase) {
    let _ = phase.wait_for(|now| *now >= wanted).await;
}

/// A command may exit without reading its payload.
async fn write_payload(stdin: Option<ChildStdin>, claimed: &Claimed) {
    if let Some(mut stdin) = stdin {
        let payload = format!("{}\n", claimed.payload.get());
        let _ = stdin.write_all(payload.as_bytes()).await;
    }
}

fn verdict(
    status: io::Result<ExitStatus>,
    output: &CommandOutput,
    tail: &ErrorTail,
) -> AttemptVerdict {
    let failed = |error, next| AttemptVerdict::Failed { error, next };
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            let error = format!("the exit status of the command is unknown: {error}");
            return failed(error, NextAttempt::Scheduled);
        }
    };
    if let Some(signal) = status.signal() {
        let how = format!("killed by signal {}", signal_text(signal));
        return failed(tail.below(&how), NextAttempt::Scheduled);
    }
    match status.code() {
        Some(0) => match result::of(output) {
            Ok(output) => AttemptVerdict::Succeeded(output),
            // The command has done its work, and would do it again.
            Err(why) => failed(
                format!("the command succeeded, but {why}"),
                NextAttempt::Never,
            ),
        },
        Some(EXIT_FOR_GOOD) => failed(
            tail.below(&format!("exit status {EXIT_FOR_GOOD}")),
            NextAttempt::Never,
        ),
        code => failed(
            tail.below(&format!("exit status {}", code.unwrap_or_default())),
            NextAttempt::Scheduled,
        ),
    }
}

fn signal_text(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return signal.to_string(),
    };
    format!("{signal} ({name})")
}

/// Extends the lease again and again. Completes when it is lost, with the reason.
async fn keep_lease(
    client: &Client,
    claimed: &Claimed,
    lease: Duration,
    claimed_at: Instant,
) -> String {
    let granted = Duration::from_secs(claimed.claim_timeout);
    let mut ends_at = claimed_at + granted;
    // The server chooses the first lease, so another length is set at once.
    let mut extend_at = if granted == lease {
        claimed_at + granted / EXTEND_PART
    } else {
        claimed_at
    };
    loop {
        sleep_until(extend_at.min(ends_at)).await;
        let sent_at = Instant::now();
        if sent_at >= ends_at {
            return "the lease ended while the server could not be reached".to_owned();
        }
        let extension = client.extend(&claimed.id, &claimed.claim_token, lease.as_secs());
        match timeout_at(ends_at, extension).await {
            Ok(Ok(extended)) => {
                let lease = Duration::from_secs(extended.extended_by);
                ends_at = sent_at + lease;
                extend_at = sent_at + lease / EXTEND_PART;
            }
            Ok(Err(error)) if is_lost(&error) => {
                return "the lease was lost: it ended, or an operator cancelled or retried the intent"
                    .to_owned();
            }
            Ok(Err(_)) => extend_at = Instant::now() + EXTEND_PAUSE,
            Err(_) => {}
        }
    }
}

pub(super) fn is_lost(error: &Error) -> bool {
    error.status() == Some(StatusCode::NOT_FOUND)
}
