//! Checks before a server uses a ledger: a missing ledger, and a ledger with times in the future.
//!
//! Invariant: a refused start has changed nothing, and its hint says how to continue.

use consign_kernel::ids::{Micros, SECOND_US};
use consign_store::postgres::Postgres;
use consign_store::sqlite::{FileKind, Sqlite, identify};

use crate::data_dir::{DataDir, sync_directory};
use crate::failure::Failure;
use crate::ledger_location::LedgerLocation;
use crate::ledger_trouble::explained;

/// If the last commit is later than this machine's clock by more than this, one of the two clocks was wrong.
pub(crate) const AHEAD_US_MAX: i64 = 300 * SECOND_US;

/// Exceptions that an operator allows for one start.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct BeginArgs {
    /// Create a new ledger if the one that belongs to the keys is missing or empty
    #[arg(long)]
    pub(crate) new_ledger: bool,

    /// Start although the last commit is in the future; engine time continues from there until the clock has caught
    /// up
    #[arg(long)]
    pub(crate) clock_ahead: bool,
}

impl BeginArgs {
    /// Refuses to create a ledger if the keys belong to an existing one.
    pub(crate) async fn refuse_loss(
        self,
        location: &LedgerLocation,
        data: &DataDir,
    ) -> anyhow::Result<()> {
        let made = data.ledgers_made()?;
        if made.is_empty() || !is_missing(location).await? {
            return Ok(());
        }
        self.refuse_missing(location, data, &made)
    }

    /// The same for a directory with several ledgers, each a named file.
    pub(crate) async fn refuse_loss_of(
        self,
        location: &LedgerLocation,
        data: &DataDir,
    ) -> anyhow::Result<()> {
        let made = data.ledgers_made()?;
        if !made.contains(&name(location, data)) || !is_missing(location).await? {
            return Ok(());
        }
        self.refuse_missing(location, data, &made)
    }

    fn refuse_missing(
        self,
        location: &LedgerLocation,
        data: &DataDir,
        made: &[String],
    ) -> anyhow::Result<()> {
        if self.new_ledger {
            tracing::warn!("creating a new ledger in {location} because of --new-ledger");
            return Ok(());
        }
        let keys = data.keys();
        let message = format!(
            "there is no ledger in {location}, or it is empty, but the keys in {} belong to one ({})",
            keys.display(),
            made.join(", ")
        );
        let hint = "restore the ledger from a backup, or pass the right one with --store; to create a new one with these keys and \
                    abandon the old one, start once with --new-ledger";
        Err(Failure::failed(message).hint(hint).into())
    }

    /// Refuses a ledger whose last commit is far ahead of the clock.
    pub(crate) fn refuse_future(
        self,
        location: &LedgerLocation,
        last: Option<Micros>,
        now: Micros,
    ) -> anyhow::Result<()> {
        let ahead_us = last.map_or(0, |last| last.0.saturating_sub(now.0));
        if ahead_us <= AHEAD_US_MAX {
            return Ok(());
        }
        let ahead_s = ahead_us / SECOND_US;
        if self.clock_ahead {
            tracing::warn!(
                ahead_s,
                "the last commit is in the future; engine time continues from there because of --clock-ahead"
            );
            return Ok(());
        }
        let (whose, repair) = match location {
            LedgerLocation::File(_) => (
                "this machine's clock",
                "; or, if that clock was wrong then, set the time of the ledger back with `consign store check --repair`, \
                 which works if no open intent was published or leased since",
            ),
            LedgerLocation::Database(_) => ("the database's clock", ""),
        };
        let message = format!("the last commit in {location} is {ahead_s} s ahead of {whose}");
        let hint = format!(
            "set the clock, if it is wrong now{repair}; or start with --clock-ahead: engine time then continues from the \
             time of the last commit, and records written meanwhile have times in the future"
        );
        Err(Failure::failed(message).hint(hint).into())
    }
}

/// Records a ledger that was opened, so that its loss is detected.
pub(crate) fn note_made(location: &LedgerLocation, data: &DataDir) -> anyhow::Result<()> {
    if let LedgerLocation::File(path) = location {
        // The record must not survive a power cut that the file does not.
        let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
        sync_directory(directory.unwrap_or(std::path::Path::new(".")))?;
    }
    data.note_made(&name(location, data));
    Ok(())
}

/// The recorded name: for a file of this directory its file name only, because directories are moved and copied.
fn name(location: &LedgerLocation, data: &DataDir) -> String {
    let LedgerLocation::File(path) = location else {
        return location.noted();
    };
    let real = |path: &std::path::Path| path.canonicalize().ok();
    let inside = path.parent().is_some_and(|parent| {
        parent == data.root() || real(parent).is_some_and(|it| Some(it) == real(data.root()))
    });
    match path.file_name() {
        Some(name) if inside => name.to_string_lossy().into_owned(),
        _ => location.noted(),
    }
}

/// Whether there is no ledger, or one without any commit.
async fn is_missing(location: &LedgerLocation) -> anyhow::Result<bool> {
    match location {
        LedgerLocation::File(path) => {
            let looked = identify(path).and_then(|found| {
                Ok(match found {
                    FileKind::Nothing => true,
                    FileKind::Consign => Sqlite::last_time(path)?.is_none(),
                    FileKind::IntentBus | FileKind::OtherDatabase => false,
                })
            });
            looked.map_err(|error| explained(error, path))
        }
        LedgerLocation::Database(address) => Ok(!Postgres::exists(address).await?),
    }
}
