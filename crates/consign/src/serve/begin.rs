//! Ledgers that a server does not begin on without being asked to: a new one where there should be one, and one from the future.
//!
//! Invariant: a refused start has changed nothing, and says how to go on.

use consign_kernel::ids::{Micros, SECOND_US};
use consign_store::postgres::Postgres;
use consign_store::sqlite::{FileKind, Sqlite, identify};

use crate::data_dir::{DataDir, sync_directory};
use crate::failure::Failure;
use crate::place::Place;

/// A last commit that is later than this machine's clock by more was made by a clock that was wrong, or is read by one.
pub(crate) const AHEAD_US_MAX: i64 = 300 * SECOND_US;

/// What an operator allows for one start.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct BeginArgs {
    /// Begin a new ledger where the one that belongs to the keys is missing or empty
    #[arg(long)]
    pub(crate) new_ledger: bool,

    /// Start although the last commit lies in the future; times go on from there until the clock has caught up
    #[arg(long)]
    pub(crate) clock_ahead: bool,
}

impl BeginArgs {
    /// Refuses to make a ledger beside keys that have one.
    pub(crate) async fn refuse_loss(self, place: &Place, data: &DataDir) -> anyhow::Result<()> {
        let made = data.ledgers_made()?;
        if made.is_empty() || !is_missing(place).await? {
            return Ok(());
        }
        self.refuse_missing(place, data, &made)
    }

    /// The same for a directory that may have several, each a file with a name.
    pub(crate) async fn refuse_loss_of(self, place: &Place, data: &DataDir) -> anyhow::Result<()> {
        let made = data.ledgers_made()?;
        if !made.contains(&name(place, data)) || !is_missing(place).await? {
            return Ok(());
        }
        self.refuse_missing(place, data, &made)
    }

    fn refuse_missing(self, place: &Place, data: &DataDir, made: &[String]) -> anyhow::Result<()> {
        if self.new_ledger {
            tracing::warn!("a new ledger is begun in {place}, as --new-ledger says");
            return Ok(());
        }
        let keys = data.keys();
        let message = format!(
            "there is no ledger in {place}, or it is empty, but the keys in {} belong to one ({})",
            keys.display(),
            made.join(", ")
        );
        let hint = "put the ledger back from a backup, or name the right one with --store; to begin a new one with these keys \
                    and leave the old one, start once with --new-ledger";
        Err(Failure::failed(message).hint(hint).into())
    }

    /// Refuses a ledger whose last commit is far ahead of the clock.
    pub(crate) fn refuse_future(
        self,
        place: &Place,
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
                "the last commit lies in the future; times of leases and delays go on from there, as --clock-ahead says"
            );
            return Ok(());
        }
        let (whose, repair) = match place {
            Place::File(_) => (
                "this machine's clock",
                "; or, if that clock was wrong then, set the time of the ledger back with `consign store check --repair`, which \
                 it does if no open intent was made or leased since",
            ),
            Place::Database(_) => ("the database's clock", ""),
        };
        let message = format!("the last commit in {place} is {ahead_s} s ahead of {whose}");
        let hint = format!(
            "set the clock, if it is wrong now{repair}; or start with --clock-ahead: leases and delays then go on from the time \
             of the last commit, and what is written meanwhile bears times from the future"
        );
        Err(Failure::failed(message).hint(hint).into())
    }
}

/// Notes a ledger that was opened, so that its loss is noticed.
pub(crate) fn note_made(place: &Place, data: &DataDir) -> anyhow::Result<()> {
    if let Place::File(path) = place {
        // The note must not outlive a power cut that the file does not.
        let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
        sync_directory(directory.unwrap_or(std::path::Path::new(".")))?;
    }
    data.note_made(&name(place, data));
    Ok(())
}

/// How a note calls it: a file of this directory by its name alone, since directories are moved and copied.
fn name(place: &Place, data: &DataDir) -> String {
    let Place::File(path) = place else {
        return place.noted();
    };
    let real = |path: &std::path::Path| path.canonicalize().ok();
    let inside = path.parent().is_some_and(|parent| {
        parent == data.root() || real(parent).is_some_and(|it| Some(it) == real(data.root()))
    });
    match path.file_name() {
        Some(name) if inside => name.to_string_lossy().into_owned(),
        _ => place.noted(),
    }
}

/// Whether there is nothing, or a file in which nothing was ever kept.
async fn is_missing(place: &Place) -> anyhow::Result<bool> {
    match place {
        Place::File(path) => Ok(match identify(path)? {
            FileKind::Nothing => true,
            FileKind::Consign => Sqlite::last_time(path)?.is_none(),
            FileKind::IntentBus | FileKind::OtherDatabase => false,
        }),
        Place::Database(address) => Ok(!Postgres::exists(address).await?),
    }
}
