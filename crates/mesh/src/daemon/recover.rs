//! `daemon recover`: what is damaged in a stopped daemon's databases, and the three ways to go on.
//!
//! Invariant: nothing is deleted. A database that is not used any more is renamed with the time, so that what can still be read
//! of it can be read by other programs.

#[cfg(test)]
mod tests;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use consign_store::file_check::find_damage;
use jiff::Timestamp;
use serde::Serialize;

use super::exclusive::StoppedDaemon;
use super::log::rfc3339_ms;
use super::private_file::{self, PRIVATE};
use crate::role::words;

const OUTBOX: &str = "outbox.db";
const INBOX: &str = "inbox.db";
const SIDE_FILES: &[&str] = &["-wal", "-shm"];
/// Asks the next connection to read the topics' history into the inbox.
pub const REBUILD_FILE: &str = "inbox_rebuild.json";
const READ_ONLY: u32 = 0o400;

words! {
    /// How a daemon goes on after its databases were damaged.
    RecoverWay {
        /// The inbox stays as a file that can be read, and the daemon starts with empty databases.
        ReadOnlyInbox => "read-only-inbox",
        /// Empty databases, and the messages of the topics are read again from the broker.
        Rebuild => "rebuild",
        /// Empty databases.
        Fresh => "fresh",
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecoverReport {
    /// What is wrong with the outbox; absent if it is intact.
    pub outbox_damage: Option<String>,
    pub inbox_damage: Option<String>,
    /// The words of [`RecoverWay`].
    pub ways: Vec<RecoverWay>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecoverAnswer {
    pub way: RecoverWay,
    /// The new names of the databases.
    pub set_aside: Vec<PathBuf>,
}

impl RecoverReport {
    pub const fn is_damaged(&self) -> bool {
        self.outbox_damage.is_some() || self.inbox_damage.is_some()
    }
}

/// Checks both databases.
pub fn examine(daemon: &StoppedDaemon) -> RecoverReport {
    RecoverReport {
        outbox_damage: find_damage(&daemon.directory().join(OUTBOX)),
        inbox_damage: find_damage(&daemon.directory().join(INBOX)),
        ways: RecoverWay::ALL.to_vec(),
    }
}

/// Sets the databases aside. Messages that wait in the outbox are not sent any more.
pub fn recover(daemon: &StoppedDaemon, way: RecoverWay) -> io::Result<RecoverAnswer> {
    let mut aside = Vec::new();
    for database in [OUTBOX, INBOX] {
        let path = daemon.directory().join(database);
        if !path.exists() {
            continue;
        }
        let moved = set_aside(&path)?;
        if way == RecoverWay::ReadOnlyInbox && database == INBOX {
            fs::set_permissions(&moved, Permissions::from_mode(READ_ONLY))?;
        }
        aside.push(moved);
    }
    if way == RecoverWay::Rebuild {
        let text = serde_json::json!({"requested_at": rfc3339_ms(Timestamp::now())}).to_string();
        let path = daemon.directory().join(REBUILD_FILE);
        private_file::replace(&path, text.as_bytes(), PRIVATE)?;
    }
    Ok(RecoverAnswer {
        way,
        set_aside: aside,
    })
}

/// The database with its side files, which SQLite finds by the name of the database.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let moved = private_file::set_aside(path, "recovered")?;
    for side in SIDE_FILES {
        let from = with_suffix(path, side);
        if from.exists() {
            private_file::rename(&from, &with_suffix(&moved, side))?;
        }
    }
    Ok(moved)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
