//! What is wrong with a configuration: where, how badly, and what mends it. No message ever holds the value of a secret.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::node::Node;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; even a strict service starts.
    Notice,
    /// The service starts, unless it is strict.
    Warning,
    /// The service does not start.
    Error,
}

/// A line of a file. Line 0 is the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: Arc<Path>,
    pub line: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    pub file: PathBuf,
    pub line: u32,
    pub message: String,
    /// What to do about it; empty where the message says it.
    pub fix: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)?;
        if !self.fix.is_empty() {
            write!(f, "; {}", self.fix)?;
        }
        Ok(())
    }
}

/// Everything found so far: a person mends all of it at once instead of one thing per start.
#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn error(&mut self, at: &Place, message: impl Into<String>, fix: impl Into<String>) {
        self.push(Severity::Error, &at.file, at.line, message, fix);
    }

    pub(crate) fn warn(&mut self, at: &Place, message: impl Into<String>, fix: impl Into<String>) {
        self.push(Severity::Warning, &at.file, at.line, message, fix);
    }

    pub(crate) fn notice(
        &mut self,
        at: &Place,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.push(Severity::Notice, &at.file, at.line, message, fix);
    }

    pub(crate) fn push(
        &mut self,
        severity: Severity,
        file: &Path,
        line: u32,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.0.push(Problem {
            severity,
            file: file.to_owned(),
            line,
            message: message.into(),
            fix: fix.into(),
        });
    }

    pub(crate) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// A strict service does not start with what others only hear of.
    pub(crate) fn promote_warnings(&mut self) {
        for problem in &mut self.0 {
            if problem.severity == Severity::Warning {
                problem.severity = Severity::Error;
            }
        }
    }

    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    pub(crate) fn errors(&self) -> usize {
        let found = self.0.iter();
        found
            .filter(|found| found.severity == Severity::Error)
            .count()
    }

    pub fn into_vec(self) -> Vec<Problem> {
        self.0
    }
}

/// A value of the wrong kind: says what was expected, and of the value only its kind.
pub(super) fn wrong_kind(problems: &mut Problems, node: &Node, path: &str, expected: &str) {
    let found = node.kind_name();
    problems.error(
        &node.at,
        format!("`{path}` must be {expected}, not {found}"),
        "",
    );
}
