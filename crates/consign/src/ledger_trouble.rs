//! What to do about a ledger file that is damaged, or whose disk is full: the error names the file and the next step.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use consign_store::Error;
use consign_store::sqlite::{FileKind, identify};

use crate::failure::Failure;
use crate::render;

/// The first bytes of every SQLite file.
const HEADER: &[u8] = b"SQLite format 3\0";
const BACKUPS_NAMED_MAX: usize = 3;
/// How many entries of a directory are searched for backups.
const ENTRIES_MAX: usize = 1_000;
/// With less free space than this, a failed write means that the disk is full.
const FREE_BYTES_MIN: u64 = 256 * 1024;

/// An error of the file at `path`.
pub(crate) fn explained(error: Error, path: &Path) -> anyhow::Error {
    let shown = path.display();
    if let Error::Corrupt(reason) = &error {
        return damaged(&format!("{shown} is damaged"), reason, path).into();
    }
    if let Error::Open { reason, .. } = &error
        && is_damage(reason)
    {
        let message = format!("{shown} is damaged, or not a database at all");
        return damaged(&message, reason, path).into();
    }
    if let Error::DiskFull(reason) = &error {
        return full(reason, path).into();
    }
    if let Error::Unavailable(reason) = &error
        && is_disk_full(path)
    {
        return full(reason, path).into();
    }
    error.into()
}

/// A sentence about the backups beside a file.
pub(crate) fn backups_beside(path: &Path) -> String {
    let found = backups(path);
    if found.is_empty() {
        return "no backup lies beside it".to_owned();
    }
    let named = found.iter().map(|(time, path)| {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        format!(
            "{} (of {})",
            path.display(),
            render::time(since.as_secs_f64())
        )
    });
    format!("beside it: {}", named.collect::<Vec<_>>().join(", "))
}

fn is_damage(reason: &str) -> bool {
    reason.contains("not a database") || reason.contains("malformed")
}

fn damaged(message: &str, reason: &str, path: &Path) -> Failure {
    let shown = path.display();
    let beside = backups_beside(path);
    Failure::failed(format!("{message}: {reason}")).hint(format!(
        "let nothing write to it, and restore a backup: check it with `consign store check --store sqlite:BACKUP`, move \
         {shown}, {shown}-wal and {shown}-shm away, copy the backup to {shown}, and start again; {beside}"
    ))
}

fn full(reason: &str, path: &Path) -> Failure {
    let shown = path.display();
    Failure::failed(format!(
        "the disk is full, so {shown} cannot be written: {reason}"
    ))
    .hint("free space on the disk of this file, and start again; nothing that was acknowledged is lost")
}

fn is_disk_full(path: &Path) -> bool {
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    let disk = rustix::fs::statvfs(directory.unwrap_or(Path::new(".")));
    disk.is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < FREE_BYTES_MIN)
}

/// Other ledger files in the directory of this one and in the directory above, newest first.
fn backups(path: &Path) -> Vec<(SystemTime, PathBuf)> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let directories = path.ancestors().skip(1).take(2);
    let entries = directories.flat_map(|directory| {
        let entries = fs::read_dir(directory).into_iter().flatten();
        entries.flatten().take(ENTRIES_MAX)
    });
    let mut found: Vec<(SystemTime, PathBuf)> = entries
        .map(|entry| entry.path())
        .filter(|candidate| *candidate != path && is_ledger(candidate))
        .filter_map(|candidate| {
            let changed = fs::metadata(&candidate).and_then(|file| file.modified());
            Some((changed.ok()?, candidate))
        })
        .collect();
    found.sort_by(|left, right| right.cmp(left));
    found.truncate(BACKUPS_NAMED_MAX);
    found
}

fn is_ledger(path: &Path) -> bool {
    let begins_as_database = || {
        let mut header = [0; HEADER.len()];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
        read.is_ok() && header == *HEADER
    };
    path.is_file() && begins_as_database() && matches!(identify(path), Ok(FileKind::Consign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_another_kind_stays_as_it_is() {
        let path = Path::new("/proc/nowhere/consign.db");
        let error = explained(Error::Busy, path);
        assert!(matches!(error.downcast_ref(), Some(Error::Busy)), "{error}");
    }

    #[test]
    fn a_full_disk_and_a_damaged_file_are_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("consign.db");
        let shown = path.display().to_string();
        let full = explained(
            Error::DiskFull("database or disk is full".to_owned()),
            &path,
        );
        assert!(full.to_string().contains("the disk is full"), "{full}");
        assert!(full.to_string().contains(&shown), "{full}");
        let torn = explained(Error::Corrupt("malformed".to_owned()), &path);
        assert_eq!(torn.to_string(), format!("{shown} is damaged: malformed"));
        assert_eq!(backups_beside(&path), "no backup lies beside it");
    }
}
