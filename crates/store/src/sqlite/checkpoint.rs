//! Merges the log into the file beside the writer, so that nobody waits for it.
//!
//! A thread of its own copies what the log holds while commits go on behind it. The log can begin anew only at a moment
//! when all of it is copied, and under load that moment never comes by itself: then the writer, between two groups,
//! copies the little that came in meanwhile. Nothing is lost if none of this happens; the log is only longer.

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

/// How often the log is looked at.
const PAUSE: Duration = Duration::from_millis(100);
/// Pages not yet merged that are worth the work.
const PAGES_WORTH_MERGING: i64 = 1_000;
/// From this length the log shall begin anew.
const PAGES_LONG: i64 = 4_000;
/// SQLite's own merging within a commit, should ours fail to keep up.
pub(super) const PAGES_MAX: i64 = 16_384;

pub(super) struct Checkpointer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The log is long and nearly merged.
    pub(super) merge_wanted: Arc<AtomicBool>,
}

/// How long the log is, and how much of it has been merged.
struct WalStatus {
    /// Somebody reads what would have to be overwritten.
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
        // What is merged is synced before the log may begin anew; said here so that it rests on no default.
        connection.execute_batch("PRAGMA synchronous = FULL")?;
        connection.busy_timeout(PAUSE)?;
        // Opens the log now: later another file may lie there.
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
                        tracing::error!(%error, "nothing more is accepted until a new start");
                        shared.durability.mark_lost_by(&error);
                    }
                    if shared.durability.is_lost() {
                        // At once: whoever took the log away may end this process next.
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
            tracing::error!("the merging of the log ended by a panic");
        }
    }
}

/// Merges everything. Says whether nobody stood in the way.
pub(super) fn merge_all(connection: &Connection) -> rusqlite::Result<bool> {
    WalStatus::ask(connection, "PRAGMA wal_checkpoint(TRUNCATE)").map(|log| !log.busy)
}

/// Merges a log that was taken away and can still be read: what was acknowledged is in it alone. What may not be on the disk
/// must not get into the file, so after a failed sync nothing is merged. Says whether nothing is left to do.
pub(super) fn rescue(connection: &Connection, log: &WalFile, shared: &CommitShared) -> bool {
    if !log.is_rescuable() || shared.durability.failed_sync() {
        return true;
    }
    let merged = WalStatus::ask(connection, "PRAGMA wal_checkpoint(FULL)");
    let done = noted(merged, shared).is_some_and(|log| !log.busy && log.merged == log.pages);
    if done {
        tracing::warn!("what the log held is in the database file now");
    }
    done
}

/// SQLite would merge what it believes to be in the log when the last connection closes.
pub(super) fn leave_log(connection: &Connection) {
    if let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::warn!(%error, "SQLite may merge the log when it closes the file");
    }
}

/// How many pages the log holds; `None` if all of them are in the file as well.
pub(super) fn unmerged_pages(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let log = WalStatus::ask(connection, "PRAGMA wal_checkpoint(NOOP)")?;
    let pages = u64::try_from(log.pages).ok();
    Ok(pages.filter(|_| log.pages > log.merged))
}

/// Merges as much as is possible without waiting for anybody.
pub(super) fn merge(connection: &Connection) -> rusqlite::Result<()> {
    WalStatus::ask(connection, "PRAGMA wal_checkpoint(PASSIVE)").map(drop)
}

/// A merge that failed is tried again later, unless a sync failed in it: that cannot be repeated, here as elsewhere.
pub(super) fn noted<T>(merged: rusqlite::Result<T>, shared: &CommitShared) -> Option<T> {
    let error = match merged {
        Ok(merged) => return Some(merged),
        Err(error) => error,
    };
    let code = error.sqlite_error().map(|error| error.extended_code);
    if code == Some(rusqlite::ffi::SQLITE_IOERR_FSYNC) {
        tracing::error!(%error, "the disk did not keep what was merged; nothing more is accepted until a new start");
        shared.durability.mark_sync_failed();
    } else {
        tracing::warn!(%error, "the log was not merged into the file; it is tried again");
    }
    None
}

/// Merges what is worth it. Says whether the log has become long.
fn merge_worthwhile(connection: &Connection) -> rusqlite::Result<bool> {
    let log = WalStatus::ask(connection, "PRAGMA wal_checkpoint(NOOP)")?;
    if log.pages - log.merged < PAGES_WORTH_MERGING {
        return Ok(false);
    }
    let log = WalStatus::ask(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
    Ok(log.pages >= PAGES_LONG)
}
