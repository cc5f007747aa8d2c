//! What came of a run: the answer and the way the process ended, taken together.
//!
//! Every failure has one [`Reason`], and the reason alone says whether a retry makes sense. How often and when is not decided here.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use consign_kernel::plant::{self, Plant};

use super::response::{self, Answer, LogLine, Response};
use super::run::{Ended, How};

/// The exit code that says: without another configuration I shall never work.
const EXIT_CONFIG: i32 = 78;
const EXIT_NOT_FOUND: i32 = 127;
/// The ends that only resource limits bring about.
const SIGNAL_CPU: i32 = 24;
const SIGNAL_FILE_SIZE: i32 = 25;
/// Of what was printed to standard error, this much goes into an error text.
const STDERR_CHARS_MAX: usize = 500;

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Succeeded(Response),
    Failed(Failure),
    TimedOut,
    Cancelled,
    /// Nothing of it ran, for want of the system's resources: no attempt was made. The reason, for people.
    NoRoom(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub reason: Reason,
    pub error: String,
    pub logs: Vec<LogLine>,
}

impl Failure {
    pub fn is_retryable(&self) -> bool {
        self.reason.is_retryable()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    PluginError,
    PluginRetryFalse,
    ExitCode78,
    Timeout,
    SpawnError,
    NilResponse,
    Protocol,
    OutputTooLong,
}

impl Reason {
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

impl Outcome {
    /// None for what is no failure.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Failed(failure) => Some(failure.reason),
            Self::TimedOut => Some(Reason::Timeout),
            Self::Succeeded(_) | Self::Cancelled | Self::NoRoom(_) => None,
        }
    }
}

pub fn classify(ended: &Ended) -> Outcome {
    match &ended.how {
        How::Exited(status) => classify_exit(*status, ended),
        How::TimedOut => Outcome::TimedOut,
        How::Cancelled => Outcome::Cancelled,
        How::NotStarted(why) => failed(Reason::SpawnError, why.clone(), Vec::new()),
        How::NoRoom(why) => Outcome::NoRoom(why.clone()),
    }
}

/// What deserves a warning although it fails nothing.
pub fn warnings(ended: &Ended) -> Vec<String> {
    let mut warnings = Vec::new();
    if let How::Exited(status) = ended.how
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

fn classify_exit(status: ExitStatus, ended: &Ended) -> Outcome {
    // A longer output may hold a whole answer in its beginning, but what followed cannot be known.
    let answer = (!ended.stdout.is_truncated).then(|| response::parse(&ended.stdout.bytes));
    if status.code() == Some(EXIT_CONFIG) {
        let (said, logs) = match answer {
            Some(Ok(Answer::Error(refusal))) => (refusal.error, refusal.logs),
            Some(Ok(Answer::Ok(response))) => (told(ended), response.logs),
            Some(Err(_)) | None => (told(ended), Vec::new()),
        };
        let error = format!("the plugin {}: {said}", describe(status));
        return failed(Reason::ExitCode78, error, logs);
    }
    match answer {
        None => {
            let kept = ended.stdout.bytes.len();
            let error = format!("the plugin printed more than {kept} bytes on its standard output");
            failed(Reason::OutputTooLong, error, Vec::new())
        }
        Some(Ok(Answer::Ok(response))) => Outcome::Succeeded(response),
        Some(Ok(Answer::Error(refusal))) => {
            let reason = if refusal.retry {
                Reason::PluginError
            } else {
                Reason::PluginRetryFalse
            };
            failed(reason, refusal.error, refusal.logs)
        }
        Some(Err(unfit)) => {
            let reason = match unfit {
                response::Error::Empty => Reason::NilResponse,
                response::Error::Json(_) | response::Error::Member { .. } => Reason::Protocol,
            };
            let error = format!("{unfit}; it {}; {}", describe(status), told(ended));
            failed(reason, error, Vec::new())
        }
    }
}

fn failed(reason: Reason, error: String, logs: Vec<LogLine>) -> Outcome {
    Outcome::Failed(Failure {
        reason,
        error,
        logs,
    })
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(EXIT_NOT_FOUND), _) => {
            "exited with code 127, which mostly means that its interpreter or a command is missing, or that its first line \
             ends with a carriage return"
                .to_owned()
        }
        (Some(EXIT_CONFIG), _) => "exited with code 78, a configuration error".to_owned(),
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(SIGNAL_CPU)) => {
            "was ended by signal 24: it used up the processor time that `limits.cpu` gives it"
                .to_owned()
        }
        (None, Some(SIGNAL_FILE_SIZE)) => {
            "was ended by signal 25: it wrote a file longer than `limits.file_size`".to_owned()
        }
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// The end of what was printed to standard error, where the cause mostly stands.
fn told(ended: &Ended) -> String {
    let text = ended.stderr.text();
    let text = text.trim();
    if text.is_empty() {
        return "its standard error is empty".to_owned();
    }
    let skipped = text.chars().count().saturating_sub(STDERR_CHARS_MAX);
    let tail: String = text.chars().skip(skipped).collect();
    format!("its standard error ends with: {tail}")
}
