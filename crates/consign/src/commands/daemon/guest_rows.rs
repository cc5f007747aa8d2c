//! The outbox of a daemon that is a member only while it runs.
//!
//! Invariant: its rows go with its keys, which nobody has afterwards, and the rows of another membership are never removed. A
//! file in the folder tells them apart.

use std::fs;
use std::path::Path;

use consign_mesh::daemon::exclusive::StoppedDaemon;

use crate::data_dir::remove_note;
use crate::failure::Failure;

/// Exists while the rows in the folder are those of a guest.
const MARK: &str = "guest";
const OUTBOX: [&str; 3] = ["outbox.db", "outbox.db-wal", "outbox.db-shm"];
/// What the folder of another membership has.
const OF_MEMBERS: [&str; 2] = ["keypair.json", "outbox.db"];

/// Prepares the folder for a guest: without rows, those of an earlier guest included.
pub(super) fn begin(directory: &Path) -> anyhow::Result<()> {
    remove(directory)?;
    let _stopped = StoppedDaemon::lock(directory)?;
    if OF_MEMBERS.iter().any(|file| directory.join(file).exists()) {
        let message = format!("{} belongs to another membership", directory.display());
        let hint = "set CLAUDEMESH_DAEMON_DIR to an empty directory";
        return Err(Failure::usage(message).hint(hint).into());
    }
    fs::write(directory.join(MARK), "")?;
    Ok(())
}

/// Removes the rows that a guest left, if there are any.
pub(super) fn remove(directory: &Path) -> anyhow::Result<()> {
    let mark = directory.join(MARK);
    if !mark.exists() {
        return Ok(());
    }
    let _stopped = StoppedDaemon::lock(directory)?;
    for file in OUTBOX {
        remove_note(&directory.join(file))?;
    }
    remove_note(&mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_guests_are_removed_and_those_of_members_stay() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("team");
        let rows = directory.join("outbox.db");
        begin(&directory).unwrap();
        fs::write(&rows, "of a guest").unwrap();
        begin(&directory).unwrap();
        assert!(!rows.exists());
        fs::write(&rows, "of a guest").unwrap();
        remove(&directory).unwrap();
        assert!(!rows.exists());
        fs::write(&rows, "of a member").unwrap();
        remove(&directory).unwrap();
        let refused = begin(&directory).unwrap_err().to_string();
        assert!(refused.contains("another membership"), "{refused}");
        assert_eq!(fs::read_to_string(&rows).unwrap(), "of a member");
    }
}
