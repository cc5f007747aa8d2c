//! `consign store backup DEST`

use std::fs::{self, Permissions};
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use consign_store::copy;
use consign_store::postgres::{DatabaseAddress, Postgres};
use serde::Serialize;

use super::{ProgressPrinter, StoreArgs, must_be_ours, no_ledger, now, warn_cost};
use crate::commands::OutputArgs;
use crate::data_dir::sync_directory;
use crate::failure::{Exit, Failure};
use crate::ledger_location::LedgerLocation;
use crate::out;

#[derive(Debug, clap::Args)]
#[command(after_help = KINDS)]
pub(crate) struct Args {
    /// The new file; it must not exist yet
    #[arg(value_name = "DEST")]
    to: PathBuf,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const KINDS: &str = "\
The backup is a SQLite file, whatever it was made of: a server can start on it, and
`consign store copy` brings it back to PostgreSQL. It shows the database as of one
instant. For a PostgreSQL of many gigabytes, and to go back to any moment, use its own
tools (pg_basebackup with archived WAL, or pg_dump).

As long as it takes, a PostgreSQL cleans nothing away, so that claims cost more and more.
Where many are made, name a standby in --store: it serves as well.";

#[derive(Serialize)]
struct BackupReport {
    from: String,
    to: String,
    bytes: u64,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let from = self.store.place()?;
        match &from {
            LedgerLocation::File(path) => must_be_ours(path)?,
            LedgerLocation::Database(address)
                if Postgres::exists(&address.for_reading()).await? => {}
            LedgerLocation::Database(address) => return Err(no_ledger(address).into()),
        }
        if self.to.exists() {
            return Err(
                Failure::usage(format!("{} exists already", self.to.display()))
                    .hint("choose a new name")
                    .into(),
            );
        }
        if let LedgerLocation::Database(address) = &from
            && !self.output.json
        {
            warn_cost(&address.for_reading()).await?;
        }
        let show = !self.output.json && std::io::stderr().is_terminal();
        let bytes = back_up(&from, &self.to, show).await?;
        if self.output.json {
            out::json(&BackupReport {
                from: from.to_string(),
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

/// An incomplete backup looks like a complete one, so the file gets its name at the end.
pub(crate) async fn back_up(from: &LedgerLocation, to: &Path, show: bool) -> anyhow::Result<u64> {
    let mut beside = to.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    remove_half(&beside)?;
    let copied = match from {
        LedgerLocation::File(path) => copy_file(path, &beside, show),
        LedgerLocation::Database(address) => save(&address.for_reading(), &beside, show).await,
    };
    if copied.is_err() {
        // The original error says more than one about the leftover would.
        let _ = remove_half(&beside);
    }
    copied?;
    fs::set_permissions(&beside, Permissions::from_mode(0o600))
        .with_context(|| format!("cannot make {} private", beside.display()))?;
    fs::rename(&beside, to).with_context(|| format!("cannot make {}", to.display()))?;
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_directory(directory.unwrap_or(Path::new(".")))?;
    Ok(fs::metadata(to)?.len())
}

/// Removes an interrupted copy, including SQLite's journal files.
fn remove_half(beside: &Path) -> anyhow::Result<()> {
    for suffix in ["", "-journal", "-wal", "-shm"] {
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

fn copy_file(from: &Path, to: &Path, show: bool) -> anyhow::Result<()> {
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
    Ok(())
}

async fn save(from: &DatabaseAddress, to: &Path, show: bool) -> anyhow::Result<()> {
    let (from, to) = (from.clone(), to.to_owned());
    let saved = tokio::task::spawn_blocking(move || {
        let mut printer = ProgressPrinter::new(show);
        let saved = copy::save(&from, &to, now().0, |progress| printer.print(progress));
        printer.end();
        saved
    });
    saved.await.context("the backup panicked")??;
    Ok(())
}
