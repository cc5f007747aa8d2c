//! Merges the log into the file in a thread of its own, so that no request waits for it.
//!
//! The thread copies the content of the log while commits continue. The log can restart only at a moment when all of it is
//! copied, and under load that moment never comes by itself: then the writer, between two groups, copies the few pages
//! that were added meanwhile. Nothing is lost if none of this happens; the log only grows.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::wal::WalFile;
use crate::Error;
use crate::group::CommitShared;

/// How often the log is checked.
const PAUSE: Duration = Duration::from_millis(100);
/// The minimum number of unmerged pages for a merge.
const PAGES_WORTH_MERGING: i64 = 1_000;
/// From this length on the log should restart.
const PAGES_LONG: i64 = 4_000;
/// From this length on SQLite merges within a commit, if the thread does not keep up.
pub(super) const PAGES_MAX: i64 = 16_384;

pub(super) struct Checkpointer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The log is long and nearly merged: the writer should merge the rest.
    pub(super) merge_wanted: Arc<AtomicBool>,
}

/// The length of the log, and how much of it is merged.
struct WalStatus {
    /// A reader still needs pages that would be overwritten.
    busy: bool,
    pages: i64,
    merged: i64,
}

impl WalStatus {
    fn ask(connection: &Connection, sql: &str) -> rusqlite::Result<Self> {
        connection.query_row(sql, [], |row| {
            Ok(Self {
                busy: row.get(0)?,
                pages: row.get(1)?,
                merged: row.get(2)?,
            })
        })
    }
}

impl Checkpointer {
    pub(super) fn start(
        path: &Path,
        shared: &Arc<CommitShared>,
        watched: &Arc<WalFile>,
    ) -> Result<Self, Error> {
        let connection = Connection::open(path)?;
        // Merged pages are synced before the log may restart; set explicitly, so that it depends on no default.
        connection.execute_batch("PRAGMA synchronous = FULL")?;
        connection.busy_timeout(PAUSE)?;
        // Opens the log now: later another file may be at its path.
        unmerged_pages(&connection)?;
        let merge_wanted = Arc::new(AtomicBool::new(false));
        let wanted = Arc::clone(&merge_wanted);
        let (shared, watched) = (Arc::clone(shared), Arc::clone(watched));
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("ledger-merge".to_owned())
            .spawn(move || {
                let mut rescued = false;
                while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                    if !shared.durability.is_lost()
                        && let Err(error @ Error::Taken(_)) = watched.confirm(&connection)
                    {
                        tracing::error!(%error, "no request is accepted until a restart");
                        shared.durability.mark_lost_by(&error);
                    }
                    if shared.durability.is_lost() {
                        // At once: the process that removed the log may end this one next.
                        rescued = rescued || rescue(&connection, &watched, &shared);
                        continue;
                    }
                    let long = noted(merge_worthwhile(&connection), &shared);
                    wanted.store(long.unwrap_or(false), Ordering::Relaxed);
                }
                if shared.durability.is_lost() {
                    leave_log(&connection);
                }
            })
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            merge_wanted,
        })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

/// Merges everything. Returns whether no reader prevented it.
pub(super) fn merge_all(connection: &Connection) -> rusqlite::Result<bool> {
    WalStatus::ask(connection, "PRAGMA wal_checkpoint(TRUNCATE)").map(|log| !log.busy)
}

/// Merges a log that was removed and can still be read: acknowledged commits are only in it. Pages that may not be on the
/// disk must not reach the file, so after a failed sync nothing is merged. Returns whether nothing is left to do.
pub(super) fn rescue(connection: &Connection, log: &WalFile, shared: &CommitShared) -> bool {
    if !log.is_rescuable() || shared.durability.failed_sync() {
        return true;
    }
    let merged = WalStatus::ask(connection, "PRAGMA wal_checkpoint(FULL)");
    let done = noted(merged, shared).is_some_and(|log| !log.busy && log.merged == log.pages);
    if done {
        tracing::warn!("the content of the log is in the database file now");
    }
    done
}

/// Without this, SQLite would merge what it believes to be in the log when the last connection closes.
pub(super) fn leave_log(connection: &Connection) {
    if let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::warn!(%error, "SQLite may merge the log when it closes the file");
    }
}

/// The number of pages in the log; `None` if all of them are merged.
pub(super) fn unmerged_pages(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let log = WalStatus::ask(connection, "PRAGMA wal_checkpoint(NOOP)")?;
    let pages = u64::try_from(log.pages).ok();
    Ok(pages.filter(|_| log.pages > log.merged))
}

/// Merges as much as possible without waiting for readers.
pub(super) fn merge(connection: &Connection) -> rusqlite::Result<()> {
    WalStatus::ask(connection, "PRAGMA wal_checkpoint(PASSIVE)").map(drop)
}

/// A failed merge is retried later, unless its sync failed: a failed sync cannot be repeated.
pub(super) fn noted<T>(merged: rusqlite::Result<T>, shared: &CommitShared) -> Option<T> {
    let error = match merged {
        Ok(merged) => return Some(merged),
        Err(error) => error,
    };
    if is_failed_sync(&error) {
        tracing::error!(%error, "the sync of a merge failed; no request is accepted until a restart");
        shared.durability.mark_sync_failed();
    } else {
        tracing::warn!(%error, "the log was not merged into the file; the merge is retried");
    }
    None
}

/// Whether SQLite could not sync one of its files.
pub(super) fn is_failed_sync(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code == Some(rusqlite::ffi::SQLITE_IOERR_FSYNC)
}

/// Merges if there are enough pages. Returns whether the log has become long.
fn merge_worthwhile(connection: &Connection) -> rusqlite::Result<bool> {
    let log = WalStatus::ask(connection, "PRAGMA wal_checkpoint(NOOP)")?;
    if log.pages - log.merged < PAGES_WORTH_MERGING {
        return Ok(false);
    }
    let log = WalStatus::ask(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
    Ok(log.pages >= PAGES_LONG)
}
