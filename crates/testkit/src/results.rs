//! The results file of a campaign: JSON lines, appended and synced.
//!
//! Invariant: every line contains the revision of the code, and a campaign resumes only from lines of its own
//! revision.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Value, json};

/// The suffix that `cargo xtask` appends to a commit if files differ from it.
const DIRTY: &str = "+dirty";
/// Without git, or if it was not given.
const UNKNOWN: &str = "unknown";

/// The code a campaign runs: a commit, a commit with `+dirty`, or `unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision(String);

impl Default for Revision {
    fn default() -> Self {
        Self(UNKNOWN.to_owned())
    }
}

impl From<String> for Revision {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Revision {
    /// Whether it identifies the code exactly.
    fn is_exact(&self) -> bool {
        self.0 != UNKNOWN && !self.0.ends_with(DIRTY)
    }

    /// Refuses to resume with code that may have changed; `anyway` overrides this.
    pub fn demand_resumable(&self, anyway: bool) -> Result<(), String> {
        if anyway || self.is_exact() {
            return Ok(());
        }
        Err(format!(
            "the revision is {self}, so earlier results may be of other code; commit first, or say --resume-dirty"
        ))
    }
}

/// The lines of one revision.
#[derive(Debug, Default)]
pub struct Lines {
    pub own: Vec<Value>,
    /// The number of lines of other or unknown revisions.
    pub aside: usize,
}

impl Lines {
    /// A sentence for the report, if lines were skipped.
    pub fn left_aside(&self) -> Option<String> {
        (self.aside > 0).then(|| format!("{} results of other revisions left aside", self.aside))
    }
}

/// Reads a results file; a missing file is empty. An incomplete line is ignored.
pub fn read(path: &Path, revision: &Revision) -> io::Result<Lines> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let lines = text.lines().flat_map(serde_json::from_str::<Value>);
    let (own, others): (Vec<Value>, Vec<Value>) =
        lines.partition(|line| line["revision"] == revision.0.as_str());
    Ok(Lines {
        own,
        aside: others.len(),
    })
}

/// Appends one line with the revision, and syncs it.
pub fn append(path: &Path, revision: &Revision, mut line: Value) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    line["revision"] = json!(revision.0);
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(text: &str) -> Revision {
        Revision::from(text.to_owned())
    }

    #[test]
    fn only_lines_of_the_own_revision_count_and_the_others_are_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/results.jsonl");
        let (mine, other) = (revision("aaaa"), revision("bbbb"));
        assert!(read(&path, &mine).unwrap().left_aside().is_none());
        append(&path, &other, json!({"seed": 1})).unwrap();
        append(&path, &mine, json!({"seed": 2})).unwrap();
        append(&path, &revision("aaaa+dirty"), json!({"seed": 3})).unwrap();
        let old = fs::read_to_string(&path).unwrap() + "{\"seed\":4}\n{\"seed\":5,\"rev";
        fs::write(&path, old).unwrap();
        let lines = read(&path, &mine).unwrap();
        assert_eq!(lines.own, [json!({"seed": 2, "revision": "aaaa"})]);
        let told = lines.left_aside().unwrap();
        assert!(told.starts_with("3 results"), "{told}");
    }

    #[test]
    fn only_an_exact_revision_is_resumed_unless_it_is_asked_for() {
        assert!(revision("aaaa").demand_resumable(false).is_ok());
        for unsure in [revision("aaaa+dirty"), Revision::default()] {
            assert!(unsure.demand_resumable(false).is_err(), "{unsure}");
            assert!(unsure.demand_resumable(true).is_ok(), "{unsure}");
        }
    }
}
