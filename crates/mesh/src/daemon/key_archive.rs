//! `keypair-archive.json` on disk: written before a key is replaced, cleaned up when its keys have expired.
//!
//! Invariant: what this value holds is on disk. A file that cannot be understood is renamed and the daemon starts with an empty
//! archive, because messages for an old key are worth less than a daemon that runs.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};

use super::log::DaemonLog;
use super::metrics::{DaemonMetric, DaemonMetrics};
use super::private_file::{self, PRIVATE};
use crate::key_files::{ArchiveError, ArchivedKey, KeyArchive};
use crate::keys::X25519Secret;

/// The file in the folder of the daemon.
pub const ARCHIVE_FILE: &str = "keypair-archive.json";

/// The archive of one daemon.
#[derive(Debug)]
pub struct KeyArchiveFile {
    /// `None` for keys that are never written.
    path: Option<PathBuf>,
    archive: KeyArchive,
}

impl KeyArchiveFile {
    /// Reads the archive of a folder; a missing file is an empty archive.
    pub fn open(directory: &Path, keys_max: usize, log: &DaemonLog) -> io::Result<Self> {
        let path = directory.join(ARCHIVE_FILE);
        let archive = match private_file::read(&path)? {
            None => KeyArchive::new(keys_max),
            Some(text) => {
                warn_of_mode(&path, log)?;
                match KeyArchive::parse(&text) {
                    Ok(mut archive) => {
                        archive.limit(keys_max);
                        archive
                    }
                    Err(error) => {
                        set_aside(&path, error, log)?;
                        KeyArchive::new(keys_max)
                    }
                }
            }
        };
        Ok(Self {
            path: Some(path),
            archive,
        })
    }

    /// An archive that is not written, for ephemeral keys.
    pub const fn in_memory(keys_max: usize) -> Self {
        Self {
            path: None,
            archive: KeyArchive::new(keys_max),
        }
    }

    /// Adds a key; when this returns, it is on disk. The oldest keys above the maximum are removed, logged and counted.
    pub fn add(
        &mut self,
        key: ArchivedKey,
        log: &DaemonLog,
        metrics: &DaemonMetrics,
    ) -> io::Result<()> {
        let mut changed = self.archive.clone();
        let removed = changed.add(key);
        self.write(changed)?;
        for key_id in removed {
            log.warn("archive_force_expired", &json!({"key_id": key_id}));
            metrics.count(DaemonMetric::ArchiveForceExpired, &[&key_id]);
        }
        Ok(())
    }

    /// Removes a key whose rotation did not happen.
    pub fn remove(&mut self, key_id: &str) -> io::Result<()> {
        let mut changed = self.archive.clone();
        if changed.remove(key_id) {
            self.write(changed)?;
        }
        Ok(())
    }

    /// Removes expired keys, and an empty file. Returns how many keys were removed.
    pub fn clean_up(&mut self, now: Timestamp) -> io::Result<usize> {
        let mut changed = self.archive.clone();
        let removed = changed.remove_expired(now);
        if removed > 0 || changed.keys().is_empty() {
            self.write(changed)?;
        }
        Ok(removed)
    }

    /// The keys, newest first: messages are tried with the current key and then with these.
    pub fn keys(&self) -> &[ArchivedKey] {
        self.archive.keys()
    }

    /// The secrets of [`Self::keys`] that have not expired.
    pub fn secrets(&self, now: Timestamp) -> Vec<X25519Secret> {
        let live = self.keys().iter().filter(|key| key.expires_at > now);
        live.filter_map(ArchivedKey::secret).collect()
    }

    fn write(&mut self, changed: KeyArchive) -> io::Result<()> {
        if let Some(path) = &self.path {
            if changed.keys().is_empty() {
                private_file::remove(path)?;
            } else {
                private_file::replace(path, changed.to_text().as_bytes(), PRIVATE)?;
            }
        }
        self.archive = changed;
        Ok(())
    }
}

/// The mode is the operator's decision: it is reported and not changed.
fn warn_of_mode(path: &Path, log: &DaemonLog) -> io::Result<()> {
    if let Some(mode) = private_file::mode(path)?
        && mode != PRIVATE
    {
        log.warn(
            "keypair_archive_perms",
            &json!({"mode": format!("{mode:04o}"), "expected": "0600"}),
        );
    }
    Ok(())
}

fn set_aside(path: &Path, error: ArchiveError, log: &DaemonLog) -> io::Result<()> {
    let aside = private_file::set_aside(path, "malformed")?;
    let name = aside.file_name().unwrap_or_default().to_string_lossy();
    log.error(&error.to_string(), &json!({ "renamed_to": name }));
    Ok(())
}

/// How long until the next local midnight, when the archive is cleaned up.
pub fn until_midnight(now: Timestamp, zone: TimeZone) -> Duration {
    let now = now.to_zoned(zone);
    let midnight = now.start_of_day().and_then(|day| day.checked_add(1.day()));
    let until = midnight.map(|midnight| now.duration_until(&midnight));
    until
        .ok()
        .and_then(|until| Duration::try_from(until).ok())
        .unwrap_or(Duration::from_hours(24))
}

/// What `daemon archive-cleanup` prints.
pub fn cleanup_answer(removed: usize, archive: &KeyArchiveFile) -> Value {
    json!({"removed": removed, "left": archive.keys().len()})
}
