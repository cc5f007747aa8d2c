//! Problems of a configuration: position, severity and fix.
//!
//! No message contains the value of a secret; a substituted value is shown as its placeholder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::node::ConfigNode;

/// A value this short may be an ordinary word of a message, so it is replaced only where it stands alone between backticks.
const WORD_BYTES_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For information; even a strict service starts.
    Notice,
    /// The service starts, unless it is strict.
    Warning,
    /// The service does not start.
    Error,
}

/// A line of a file. Line 0 is the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    pub file: Arc<Path>,
    pub line: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    pub severity: Severity,
    pub file: PathBuf,
    pub line: u32,
    pub message: String,
    /// What to do about it; empty if the message says it.
    pub fix: String,
}

impl fmt::Display for ConfigProblem {
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

/// All problems found so far, so that they can be fixed at once.
#[derive(Default)]
pub struct ConfigProblems {
    found: Vec<ConfigProblem>,
    /// Substituted values with their original text; longest first, because one may contain another.
    concealed: Vec<(String, String)>,
}

impl fmt::Debug for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.found).finish()
    }
}

impl ConfigProblems {
    pub(crate) fn error(
        &mut self,
        at: &SourcePosition,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.push(Severity::Error, &at.file, at.line, message, fix);
    }

    pub(crate) fn warn(
        &mut self,
        at: &SourcePosition,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.push(Severity::Warning, &at.file, at.line, message, fix);
    }

    pub(crate) fn notice(
        &mut self,
        at: &SourcePosition,
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
        let message = self.without_values(message.into());
        let fix = self.without_values(fix.into());
        let problem = ConfigProblem {
            severity,
            file: file.to_owned(),
            line,
            message,
            fix,
        };
        // A value that is used in several places is checked in each of them.
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    pub(crate) fn extend(&mut self, more: Self) {
        for problem in more.found {
            let ConfigProblem {
                severity,
                file,
                line,
                message,
                fix,
            } = problem;
            self.push(severity, &file, line, message, fix);
        }
    }

    /// From now on messages show the original text instead of this substituted value.
    pub(super) fn conceal(&mut self, value: &str, written: &str) {
        let pair = (value.to_owned(), written.to_owned());
        if !value.trim().is_empty() && !self.concealed.contains(&pair) {
            let longer = |(known, _): &(String, String)| known.len() >= value.len();
            let place = self.concealed.partition_point(longer);
            self.concealed.insert(place, pair);
        }
    }

    fn without_values(&self, mut text: String) -> String {
        for (value, written) in &self.concealed {
            let (value, written) = (value.as_str(), written.as_str());
            if value.len() > WORD_BYTES_MAX {
                text = text.replace(value, written);
            } else if text.contains(value) {
                let parts = text.split('`');
                let parts = parts.map(|part| if part == value { written } else { part });
                text = parts.collect::<Vec<&str>>().join("`");
            }
        }
        text
    }

    /// In strict mode every warning is an error.
    pub(crate) fn promote_warnings(&mut self) {
        for problem in &mut self.found {
            if problem.severity == Severity::Warning {
                problem.severity = Severity::Error;
            }
        }
    }

    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    pub(crate) fn errors(&self) -> usize {
        let found = self.found.iter();
        found
            .filter(|found| found.severity == Severity::Error)
            .count()
    }

    pub fn into_vec(self) -> Vec<ConfigProblem> {
        self.found
    }
}

/// Reports a value of the wrong kind without showing the value.
pub(super) fn wrong_kind(
    problems: &mut ConfigProblems,
    node: &ConfigNode,
    path: &str,
    expected: &str,
) {
    let found = node.kind_name();
    problems.error(
        &node.at,
        format!("`{path}` must be {expected}, not {found}"),
        "",
    );
}
