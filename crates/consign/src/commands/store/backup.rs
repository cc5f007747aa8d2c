//! `consign store backup DEST`

use std::fs::{self, Permissions};
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use super::{StoreArgs, must_be_ours};
use crate::commands::OutputArgs;
use crate::data_dir::sync_directory;
use crate::failure::{Exit, Failure};
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The new file; it must not exist yet
    #[arg(value_name = "DEST")]
    to: PathBuf,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Report {
    from: String,
    to: String,
    bytes: u64,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let from = self.store.path()?;
        must_be_ours(&from)?;
        if self.to.exists() {
            return Err(
                Failure::usage(format!("{} exists already", self.to.display()))
                    .hint("choose a new name")
                    .into(),
            );
        }
        let show = !self.output.json && std::io::stderr().is_terminal();
        let bytes = copy(&from, &self.to, show)?;
        if self.output.json {
            out::json(&Report {
                from: from.display().to_string(),
                to: self.to.display().to_string(),
                bytes,
            })?;
        } else {
            out::note(&format!("{} holds {bytes} bytes", self.to.display()));
            let keys = self.store.data_dir().keys();
            out::note(&format!(
                "keys are not in it: keep a copy of {} apart",
                keys.display()
            ));
        }
        Ok(Exit::Done)
    }
}

/// Half a backup looks like one, so it gets its name when it is whole.
fn copy(from: &Path, to: &Path, show: bool) -> anyhow::Result<u64> {
    let mut beside = to.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    remove_half(&beside)?;
    let copied = copy_beside(from, &beside, show);
    if copied.is_err() {
        // The error says more than a second one about the leftover would.
        let _ = remove_half(&beside);
    }
    copied?;
    fs::rename(&beside, to).with_context(|| format!("cannot make {}", to.display()))?;
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_directory(directory.unwrap_or(Path::new(".")))?;
    Ok(fs::metadata(to)?.len())
}

/// What a copy that was cut off left, with the journal in which SQLite would undo it.
fn remove_half(beside: &Path) -> anyhow::Result<()> {
    for suffix in ["", "-journal"] {
        let mut path = beside.as_os_str().to_owned();
        path.push(suffix);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn copy_beside(from: &Path, to: &Path, show: bool) -> anyhow::Result<()> {
    let mut shown = -1;
    consign_store::sqlite::backup(from, to, |done, all| {
        let percent = i64::from(done) * 100 / i64::from(all.max(1));
        if show && percent != shown {
            out::ask(&format!("\rcopying, {percent} %"));
            shown = percent;
        }
    })?;
    if show {
        out::note("");
    }
    fs::set_permissions(to, Permissions::from_mode(0o600))
        .with_context(|| format!("cannot make {} private", to.display()))
}
