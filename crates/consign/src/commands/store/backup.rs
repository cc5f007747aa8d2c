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
        let copied = copy(&from, &self.to, show);
        if copied.is_err() {
            // Half a backup looks like one; better none. It was not there before.
            let _ = fs::remove_file(&self.to);
        }
        let bytes = copied?;
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

fn copy(from: &Path, to: &Path, show: bool) -> anyhow::Result<u64> {
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
        .with_context(|| format!("cannot make {} private", to.display()))?;
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_directory(directory.unwrap_or(Path::new(".")))?;
    Ok(fs::metadata(to)?.len())
}
