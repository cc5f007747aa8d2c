//! Exit codes, and errors with an exit code.
//!
//! Invariant: every error is one `error:` line on stderr, followed by a `hint:` line if there is a next step.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::{ductile, out};

/// The exit codes of all commands and what they mean, as `consign --help` and `consign schema` list them.
pub(crate) const EXIT_CODES: [(u8, &str); 7] = [
    (0, "done"),
    (1, "failed"),
    (2, "wrong usage"),
    (3, "nothing to claim, or not found"),
    (4, "refused by the server (key, rights, conflict, limit)"),
    (5, "server not reachable"),
    (78, "the configuration of the automation is invalid"),
];

/// The exit code of a command. The numbers are documented in `consign --help` and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    Usage,
    /// Warnings of a strict check of the automation's configuration.
    Warnings,
    Nothing,
    Refused,
    Unreachable,
    /// The configuration of the automation is invalid (`EX_CONFIG` of `sysexits`).
    Config,
    /// How a mesh daemon ended; `consign daemon up --help` lists the numbers.
    Daemon(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage | Exit::Warnings => 2,
            Exit::Nothing => 3,
            Exit::Refused => 4,
            Exit::Unreachable => 5,
            Exit::Config => 78,
            Exit::Daemon(status) => status,
        })
    }
}

/// An error with an exit code and a next step.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    hint: Option<String>,
    /// Further data for programs.
    context: serde_json::Value,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: None,
            context: serde_json::Value::Null,
        }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn context(mut self, context: serde_json::Value) -> Self {
        self.context = context;
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Prints the error and returns the exit code.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    let (exit, text) = explain(error);
    out::error(&ductile::typed(&text));
    exit
}

/// The same as one JSON document on standard output.
pub(crate) fn report_json(error: &anyhow::Error) -> anyhow::Result<Exit> {
    let failure = error.downcast_ref::<Failure>();
    let exit = failure.map_or(Exit::Failed, |failure| failure.exit);
    let mut context = failure.map_or(serde_json::Value::Null, |failure| failure.context.clone());
    if context.is_null() {
        context = serde_json::json!({});
    }
    if let Some(hint) = failure.and_then(|failure| failure.hint.clone()) {
        context["hint"] = ductile::typed(&hint).into();
    }
    let code = match exit {
        Exit::Config => "config_refused",
        Exit::Usage => "usage",
        Exit::Nothing => "not_found",
        Exit::Done
        | Exit::Failed
        | Exit::Warnings
        | Exit::Refused
        | Exit::Unreachable
        | Exit::Daemon(_) => "failed",
    };
    out::json(&serde_json::json!({
        "error": ductile::typed(&format!("{error:#}")), "code": code, "context": context,
    }))?;
    Ok(exit)
}

fn explain(error: &anyhow::Error) -> (Exit, String) {
    let (exit, hint) = if let Some(failure) = error.downcast_ref::<Failure>() {
        (failure.exit, failure.hint.clone())
    } else if let Some(error) = error.downcast_ref::<consign_client::Error>() {
        (exit_of(error), error.hint())
    } else {
        (
            Exit::Failed,
            is_disk_full(error).then(|| DISK_FULL.to_owned()),
        )
    };
    let mut text = format!("error: {error:#}");
    if let Some(hint) = hint {
        text.push_str("\nhint: ");
        text.push_str(&hint);
    }
    (exit, text)
}

const DISK_FULL: &str = "the disk is full: free space on it, and try again";

fn is_disk_full(error: &anyhow::Error) -> bool {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::StorageFull)
}

fn exit_of(error: &consign_client::Error) -> Exit {
    if error.is_unreachable() {
        return Exit::Unreachable;
    }
    match error.status().map(|status| status.as_u16()) {
        Some(404) => Exit::Nothing,
        Some(400..=499) => Exit::Refused,
        Some(_) => Exit::Failed,
        None if matches!(
            error,
            consign_client::Error::Address { .. } | consign_client::Error::CaFile { .. }
        ) =>
        {
            Exit::Usage
        }
        None => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use consign_client::{Address, Error, StatusCode};

    use super::*;

    fn check(error: impl Into<anyhow::Error>, exit: Exit, text: &str) {
        assert_eq!(explain(&error.into()), (exit, text.to_owned()));
    }

    fn refused(status: StatusCode, code: &str) -> Error {
        Error::Refused {
            status,
            code: code.to_owned(),
            message: "No.".to_owned(),
            retry_after_s: None,
        }
    }

    #[test]
    fn each_kind_of_failure_has_its_exit_code_and_its_hint() {
        check(
            Error::Unreachable {
                server: Address::parse("http://127.0.0.1:7070").unwrap(),
                cause: std::io::Error::from(std::io::ErrorKind::ConnectionRefused),
            },
            Exit::Unreachable,
            "error: cannot reach http://127.0.0.1:7070: connection refused\n\
             hint: start it with: consign serve",
        );
        check(
            refused(StatusCode::NOT_FOUND, "not_found"),
            Exit::Nothing,
            "error: No. (not_found, status 404)\n\
             hint: check the id; a lease that ran out is also reported this way",
        );
        check(
            refused(StatusCode::UNAUTHORIZED, "unauthorized"),
            Exit::Refused,
            "error: No. (unauthorized, status 401)\n\
             hint: check the key or token; a file is named with --key-file or --admin-token-file",
        );
        check(
            refused(StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            Exit::Failed,
            "error: No. (internal, status 500)\nhint: check the server's log",
        );
        check(
            Failure::usage("payload is missing").hint("add it"),
            Exit::Usage,
            "error: payload is missing\nhint: add it",
        );
        check(
            anyhow::anyhow!("disk full"),
            Exit::Failed,
            "error: disk full",
        );
    }

    #[test]
    fn a_full_disk_is_told_apart_from_other_errors_of_files() {
        let full = anyhow::Error::new(io::Error::from(io::ErrorKind::StorageFull));
        let (exit, text) = explain(&full.context("cannot write x/lock"));
        assert_eq!(exit, Exit::Failed);
        assert!(text.starts_with("error: cannot write x/lock: "), "{text}");
        assert!(text.ends_with(DISK_FULL), "{text}");
        let missing = anyhow::Error::new(io::Error::from(io::ErrorKind::NotFound));
        assert!(!explain(&missing).1.contains("hint"));
    }

    #[test]
    fn context_added_on_the_way_keeps_code_and_hint() {
        let error = anyhow::Error::new(Failure::usage("inner").hint("do it")).context("outer");
        assert_eq!(
            explain(&error),
            (Exit::Usage, "error: outer: inner\nhint: do it".to_owned())
        );
    }
}
