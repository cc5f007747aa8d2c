//! Why something could not be measured, as text for the report.

use std::fmt::Display;
use std::io;

/// One error type for everything: it is only printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// A client library failed, or the server refused the request.
    #[error("{what}: {reason}")]
    Client { what: &'static str, reason: String },
    /// The server sent an answer that the step does not expect.
    #[error("{0}")]
    Answer(String),
    /// A program could not be started, or ended too early.
    #[error("{0}")]
    Program(String),
    #[error("sqlite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("not the JSON that was expected: {0}")]
    Json(#[from] serde_json::Error),
}

impl Error {
    /// For `map_err`: names the operation that failed.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// For `map_err` on the results of client libraries: names the step.
    pub(crate) fn client<E: Display>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Client {
            what,
            reason: error.to_string(),
        }
    }

    /// An answer that the protocol does not allow here, shown as far as it is readable.
    pub(crate) fn unexpected(wanted: &str, got: &[u8]) -> Self {
        let shown: String = String::from_utf8_lossy(got).chars().take(200).collect();
        Self::Answer(format!("expected {wanted}, got {shown:?}"))
    }
}
