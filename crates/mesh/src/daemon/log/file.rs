//! `daemon.log` and its predecessors.
//!
//! Invariant: a file has whole lines only and is replaced before it exceeds its size or age; older files are removed by age
//! and number, so that the log uses a bounded part of the disk.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use crate::daemon::private_file::PUBLIC;

pub const LOG_FILE_BYTES_MAX: u64 = 100_000_000;
pub const LOG_AGE_DAYS_MAX: i64 = 14;
/// Files beside the current one.
pub const LOG_FILES_MAX: usize = 5;

#[derive(Debug)]
pub(super) struct RotatedFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The time of the first line.
    started_at: Timestamp,
    bytes_max: u64,
}

impl RotatedFile {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        Self::open_limited(path, LOG_FILE_BYTES_MAX)
    }

    pub(super) fn open_limited(path: PathBuf, bytes_max: u64) -> io::Result<Self> {
        let file = open(&path)?;
        let started_at = first_line_at(&path).unwrap_or_else(Timestamp::now);
        let bytes = file.metadata()?.len();
        let mut rotated = Self {
            path,
            file,
            bytes,
            started_at,
            bytes_max,
        };
        rotated.end_torn_line()?;
        remove_old(&rotated.path, Timestamp::now());
        Ok(rotated)
    }

    /// A crash may have left the beginning of a line.
    fn end_torn_line(&mut self) -> io::Result<()> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        if self.bytes == 0 {
            return Ok(());
        }
        let mut reader = File::open(&self.path)?;
        let mut last = [0];
        reader.seek(SeekFrom::End(-1))?;
        reader.read_exact(&mut last)?;
        if last != *b"\n" {
            self.file.write_all(b"\n")?;
            self.bytes += 1;
        }
        Ok(())
    }

    pub(super) fn append(&mut self, line: &[u8], now: Timestamp) -> io::Result<()> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        let is_full = self.bytes > 0 && self.bytes.saturating_add(length) > self.bytes_max;
        if is_full || now.duration_since(self.started_at) > age_max() {
            // If that fails, the current file grows; a line is worth more than its limit.
            let _ = self.rotate(now);
        }
        // One write per line, so that a reader of the file sees no half of it.
        self.file.write_all(line)?;
        self.bytes = self.bytes.saturating_add(length);
        Ok(())
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        if self.bytes > 0 {
            fs::rename(&self.path, rotated_path(&self.path, now))?;
        }
        self.file = open(&self.path)?;
        self.bytes = 0;
        self.started_at = now;
        remove_old(&self.path, now);
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(PUBLIC)
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.len() == 0 {
        // Whatever the mask of the process is.
        file.set_permissions(Permissions::from_mode(PUBLIC))?;
    }
    Ok(file)
}

fn age_max() -> SignedDuration {
    SignedDuration::from_hours(24 * LOG_AGE_DAYS_MAX)
}

/// The name with the time of the rotation, so that names sort by time.
fn rotated_path(path: &Path, now: Timestamp) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(now.strftime(".%Y%m%dT%H%M%S%6fZ").to_string());
    path.with_file_name(name)
}

fn first_line_at(path: &Path) -> Option<Timestamp> {
    let mut line = String::new();
    // A line without an end is not read further than this.
    let mut reader = BufReader::new(io::Read::take(File::open(path).ok()?, 1 << 16));
    reader.read_line(&mut line).ok()?;
    let line: serde_json::Value = serde_json::from_str(&line).ok()?;
    line.get("ts")?.as_str()?.parse().ok()
}

/// Removes files that are too old or too many. One that cannot be removed is tried again at the next rotation.
fn remove_old(path: &Path, now: Timestamp) {
    let Some(prefix) = path.file_name().and_then(|name| name.to_str()) else {
        return;
    };
    let prefix = format!("{prefix}.");
    let entries = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    let mut rotated: Vec<(Timestamp, PathBuf)> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name();
            let at = name.to_str()?.strip_prefix(&prefix)?;
            let at = Timestamp::strptime("%Y%m%dT%H%M%S%fZ%z", format!("{at}+0000")).ok()?;
            Some((at, entry.path()))
        })
        .collect();
    rotated.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    for (number, (at, path)) in rotated.iter().enumerate() {
        if number >= LOG_FILES_MAX || now.duration_since(*at) > age_max() {
            let _ = fs::remove_file(path);
        }
    }
}
