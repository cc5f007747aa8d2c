//! Classifies a run from the response and the exit of the process.
//!
//! Every failure has one [`FailureReason`], which alone decides whether a retry makes sense. How often and when to retry is
//! decided elsewhere.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use consign_kernel::plant::{self, Plant};

use super::response::{self, LogLine, PluginReply, PluginResponse};
use super::run::{ExitKind, ProcessEnd};

/// The exit code of a plugin that cannot work without another configuration.
const EXIT_CONFIG: i32 = 78;
const EXIT_NOT_FOUND: i32 = 127;
/// Signals that only resource limits cause.
const SIGNAL_CPU: i32 = 24;
const SIGNAL_FILE_SIZE: i32 = 25;
/// How much of standard error goes into an error text.
const STDERR_CHARS_MAX: usize = 500;

#[derive(Clone, Debug, PartialEq)]
pub enum PluginOutcome {
    Succeeded(PluginResponse),
    Failed(PluginFailure),
    TimedOut,
    Cancelled,
    /// The process was not started for lack of system resources, so this is not an attempt. Carries the reason as text.
    NoResources(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct PluginFailure {
    pub reason: FailureReason,
    pub error: String,
    pub logs: Vec<LogLine>,
}

impl PluginFailure {
    pub fn is_retryable(&self) -> bool {
        self.reason.is_retryable()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    PluginError,
    PluginRetryFalse,
    ExitCode78,
    Timeout,
    SpawnError,
    NilResponse,
    Protocol,
    OutputTooLong,
}

impl FailureReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PluginError => "plugin_error",
            Self::PluginRetryFalse => "plugin_retry_false",
            Self::ExitCode78 => "exit_code_78",
            Self::Timeout => "timeout",
            Self::SpawnError => "spawn_error",
            Self::NilResponse => "nil_response",
            Self::Protocol => "protocol",
            Self::OutputTooLong => "output_too_long",
        }
    }

    pub fn is_retryable(self) -> bool {
        match self {
            Self::PluginRetryFalse => plant::on(Plant::RetryRefused),
            Self::ExitCode78 => false,
            Self::PluginError
            | Self::Timeout
            | Self::SpawnError
            | Self::NilResponse
            | Self::Protocol
            | Self::OutputTooLong => true,
        }
    }
}

impl PluginOutcome {
    /// `None` unless it is a failure.
    pub fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::Failed(failure) => Some(failure.reason),
            Self::TimedOut => Some(FailureReason::Timeout),
            Self::Succeeded(_) | Self::Cancelled | Self::NoResources(_) => None,
        }
    }
}

pub fn classify(ended: &ProcessEnd) -> PluginOutcome {
    match &ended.how {
        ExitKind::Exited(status) => classify_exit(*status, ended),
        ExitKind::TimedOut => PluginOutcome::TimedOut,
        ExitKind::Cancelled => PluginOutcome::Cancelled,
        ExitKind::NotStarted(why) => failed(FailureReason::SpawnError, why.clone(), Vec::new()),
        ExitKind::NoResources(why) => PluginOutcome::NoResources(why.clone()),
    }
}

/// Conditions that deserve a warning but are no failure.
pub fn warnings(ended: &ProcessEnd) -> Vec<String> {
    let mut warnings = Vec::new();
    if let ExitKind::Exited(status) = ended.how
        && !status.success()
    {
        warnings.push(format!("the plugin {}", describe(status)));
    }
    if ended.stderr.is_truncated {
        let kept = ended.stderr.bytes.len();
        warnings.push(format!(
            "only the first {kept} bytes of its standard error were kept"
        ));
    }
    warnings
}

fn classify_exit(status: ExitStatus, ended: &ProcessEnd) -> PluginOutcome {
    // Truncated output may start with a complete response, but what followed is unknown.
    let answer = (!ended.stdout.is_truncated).then(|| response::parse(&ended.stdout.bytes));
    if status.code() == Some(EXIT_CONFIG) {
        let (said, logs) = match answer {
            Some(Ok(PluginReply::Error(refusal))) => (refusal.error, refusal.logs),
            Some(Ok(PluginReply::Ok(response))) => (stderr_tail(ended), response.logs),
            Some(Err(_)) | None => (stderr_tail(ended), Vec::new()),
        };
        let error = format!("the plugin {}: {said}", describe(status));
        return failed(FailureReason::ExitCode78, error, logs);
    }
    match answer {
        None => {
            let kept = ended.stdout.bytes.len();
            let error = format!("the plugin printed more than {kept} bytes on its standard output");
            failed(FailureReason::OutputTooLong, error, Vec::new())
        }
        Some(Ok(PluginReply::Ok(response))) => PluginOutcome::Succeeded(response),
        Some(Ok(PluginReply::Error(refusal))) => {
            let reason = if refusal.retry {
                FailureReason::PluginError
            } else {
                FailureReason::PluginRetryFalse
            };
            failed(reason, refusal.error, refusal.logs)
        }
        Some(Err(unfit)) => {
            let reason = match unfit {
                response::Error::Empty => FailureReason::NilResponse,
                response::Error::Json(_) | response::Error::Member { .. } => {
                    FailureReason::Protocol
                }
            };
            let error = format!("{unfit}; it {}; {}", describe(status), stderr_tail(ended));
            failed(reason, error, Vec::new())
        }
    }
}

fn failed(reason: FailureReason, error: String, logs: Vec<LogLine>) -> PluginOutcome {
    PluginOutcome::Failed(PluginFailure {
        reason,
        error,
        logs,
    })
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(EXIT_NOT_FOUND), _) => {
            "exited with code 127, which usually means that its interpreter or a command is missing, or that its first line \
             ends with a carriage return"
                .to_owned()
        }
        (Some(EXIT_CONFIG), _) => "exited with code 78, a configuration error".to_owned(),
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(SIGNAL_CPU)) => {
            "was killed by signal 24: it used up the processor time of `limits.cpu`"
                .to_owned()
        }
        (None, Some(SIGNAL_FILE_SIZE)) => {
            "was killed by signal 25: it wrote a file longer than `limits.file_size`".to_owned()
        }
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended with an unknown status".to_owned(),
    }
}

/// The end of standard error, which usually contains the cause.
fn stderr_tail(ended: &ProcessEnd) -> String {
    let text = ended.stderr.text();
    let text = text.trim();
    if text.is_empty() {
        return "its standard error is empty".to_owned();
    }
    let skipped = text.chars().count().saturating_sub(STDERR_CHARS_MAX);
    let tail: String = text.chars().skip(skipped).collect();
    format!("its standard error ends with: {tail}")
}
