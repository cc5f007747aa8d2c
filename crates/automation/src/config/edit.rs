//! Edits a configuration in its text, so that comments and order are kept.
//!
//! Every function here only plans: it returns an [`Edit`] and writes nothing. The caller checks the edit with
//! [`crate::program::consequences`] before applying it. An edit that would need guessing is refused with the line to change by
//! hand.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::find::Environment;
use super::sources::{self, Drafts, Sources};
use super::{files, interpolate, yaml};

mod backup;
mod entries;
mod init;
mod lines;
mod routes;
mod set;
#[cfg(test)]
mod tests;
mod tokens;
mod webhooks;

pub use backup::{ConfigBackup, backup, paths, restore};
pub use init::init;
pub use routes::{EventRoute, add_route, remove_route};
pub use set::set;
pub use tokens::{
    NewToken, ScopeChange, TokenInfo, change_scopes, create, create_secret, delete, list,
    unknown_scopes,
};
pub use webhooks::{Webhook, WebhookTarget, add_webhook};

/// The new contents of the files of an edit.
#[derive(Debug, Default)]
pub struct Edit {
    writes: Drafts,
    removes: BTreeSet<PathBuf>,
}

/// Why an edit is refused, and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EditRefused {
    pub message: String,
    pub fix: String,
}

impl EditRefused {
    fn new(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            fix: fix.into(),
        }
    }
}

impl Edit {
    pub(crate) fn drafts(&self) -> &Drafts {
        &self.writes
    }

    /// The files to write (`true`) and to remove (`false`).
    pub fn paths(&self) -> impl Iterator<Item = (&Path, bool)> {
        let written = self.writes.keys().map(|path| (path.as_path(), true));
        written.chain(self.removes.iter().map(|path| (path.as_path(), false)))
    }

    /// Replaces every file atomically and keeps the previous version as `.bak`.
    pub fn apply(&self) -> io::Result<()> {
        // A file is written before the files that refer to it: scope files, then tokens, then what includes them.
        let mut writes: Vec<_> = self.writes.iter().collect();
        writes.sort_by_key(|(path, _)| Reverse((path.components().count(), *path)));
        for (path, bytes) in writes {
            files::make_dir(path.parent().unwrap_or(path))?;
            // A symbolic link is kept; its target is changed.
            let target = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            files::write_with_backup(&target, bytes)?;
        }
        self.removes.iter().try_for_each(fs::remove_file)
    }
}

/// Reads the files of a configuration; fails if one cannot be read.
fn read_sources(
    path: &Path,
    environment: &Environment,
    drafts: &Drafts,
) -> Result<Sources, EditRefused> {
    let sources = sources::gather(path, environment, drafts);
    if !sources.problems.has_errors() {
        return Ok(sources);
    }
    let problems = sources.problems.into_vec();
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let message = format!("the configuration cannot be read: {}", lines.join("; "));
    Err(EditRefused::new(message, "fix it, then try again"))
}

/// The text of a file with the positions of its values.
fn text_with_spans(path: &Path) -> Result<(String, yaml::ValueSpan), EditRefused> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| EditRefused::new(format!("cannot read {shown}: {error}"), ""))?;
    let spans = yaml::spans(&interpolate::same_length_outline(&text));
    let spans =
        spans.ok_or_else(|| edit_by_hand(&format!("{shown} has no simple block structure")))?;
    Ok((text, spans))
}

fn edit_by_hand(what: &str) -> EditRefused {
    EditRefused::new(what, "edit the file by hand, then run `config check`")
}
