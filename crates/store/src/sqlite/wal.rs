//! SQLite's write-ahead log: the store syncs it, and checks it, because commits since the last merge are only in it.
//!
//! Invariant: no commit is acknowledged that was written to a log which another process removed, replaced or truncated. The
//! content of such a log is merged into the file at once if it can still be read through the open descriptor, and never if
//! it is damaged.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use consign_kernel::plant::{self, Plant};
use rusqlite::Connection;

use super::checkpoint;
use super::file_status::FileStatus;
use super::schema;
use crate::Error;
use crate::group::SyncTarget;

/// The first bytes of every log, except for the last bit, which gives the byte order of its checksums.
const MAGIC: u32 = 0x377f_0682;
const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

const WHOLE: u8 = 0;
const TAKEN: u8 = 1;
const DAMAGED: u8 = 2;

/// SQLite's log, opened a second time. SQLite holds its locks on other files, so this descriptor does not affect them.
#[derive(Debug)]
pub(super) struct WalFile {
    file: File,
    path: PathBuf,
    identity: (u64, u64),
    /// The index of the log, which other processes need to read the database.
    index: Option<(PathBuf, (u64, u64))>,
    page_bytes: u64,
    /// The length after the last sync.
    length: AtomicU64,
    state: AtomicU8,
}

impl WalFile {
    /// Starts with an empty log: what an earlier process left in it may never have reached the disk, and is now in the
    /// file, written again.
    pub(super) fn open(connection: &Connection) -> Result<Self, Error> {
        // The path that SQLite resolved, through links.
        let beside =
            |end: &str| PathBuf::from(format!("{}-{end}", connection.path().unwrap_or_default()));
        let path = beside("wal");
        let unfit = |reason: String| Error::Open {
            path: path.clone(),
            reason,
        };
        schema::note_open(connection, true)?;
        if !checkpoint::merge_all(connection)? {
            let reason =
                "another process reads the database; start again when it is done, such as a backup";
            return Err(unfit(reason.to_owned()));
        }
        schema::leave_syncs_to_us(connection)?;
        let page_bytes: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        let file = File::options().read(true).write(true).open(&path);
        let file = file.map_err(|error| unfit(error.to_string()))?;
        let found = FileStatus::of(&file).map_err(|error| unfit(error.to_string()))?;
        let index = beside("shm");
        let index = FileStatus::at(&index)
            .ok()
            .map(|found| (index, found.identity));
        Ok(Self {
            identity: found.identity,
            file,
            index,
            page_bytes: u64::try_from(page_bytes).unwrap_or(0),
            length: AtomicU64::new(0),
            state: AtomicU8::new(WHOLE),
            path,
        })
    }

    /// Before a commit: checks that the log was not truncated. The commit itself would hide that, since it writes after the
    /// position where the log should end.
    pub(super) fn confirm_length(&self, connection: &Connection) -> Result<(), Error> {
        let length = FileStatus::of(&self.file).map_or(0, |found| found.length);
        if length >= self.length.load(Ordering::Relaxed) {
            return Ok(());
        }
        // SQLite itself truncates a long log after a merge, and so does a manual checkpoint.
        if checkpoint::unmerged_pages(connection)?.is_none_or(|pages| length >= self.bytes(pages)) {
            self.length.store(length, Ordering::Relaxed);
            return Ok(());
        }
        Err(self.damaged())
    }

    /// Between commits: checks that all files that SQLite relies on are still there.
    pub(super) fn confirm(&self, connection: &Connection) -> Result<(), Error> {
        self.confirm_place()?;
        if let Some((path, identity)) = &self.index {
            self.lies_at(path, *identity)?;
        }
        // Twice, because SQLite may restart the log between the two checks.
        for _ in 0..2 {
            let Some(pages) = checkpoint::unmerged_pages(connection)? else {
                return Ok(());
            };
            let length = FileStatus::of(&self.file).map_or(0, |found| found.length);
            if length >= self.bytes(pages) {
                return Ok(());
            }
        }
        Err(self.damaged())
    }

    /// Returns the length.
    fn confirm_place(&self) -> Result<u64, Error> {
        self.lies_at(&self.path, self.identity)
    }

    fn lies_at(&self, path: &Path, ours: (u64, u64)) -> Result<u64, Error> {
        match FileStatus::at(path) {
            Ok(found) if found.identity == ours => Ok(found.length),
            _ => {
                self.state.fetch_max(TAKEN, Ordering::Relaxed);
                Err(Error::Taken(format!(
                    "{} was removed, moved or replaced while the server ran; nothing is acknowledged any more; start the server again",
                    path.display()
                )))
            }
        }
    }

    /// Whether the log was removed by another process, and still holds everything.
    pub(super) fn is_rescuable(&self) -> bool {
        self.state.load(Ordering::Relaxed) == TAKEN
    }

    fn damaged(&self) -> Error {
        self.state.fetch_max(DAMAGED, Ordering::Relaxed);
        Error::Taken(format!(
            "{} was truncated or overwritten while the server ran; what was acknowledged in the last moments may be lost; run \
             `consign store check`, and go back to a backup if it finds something",
            self.path.display()
        ))
    }

    /// The minimum length of a log of so many pages.
    fn bytes(&self, pages: u64) -> u64 {
        HEADER_BYTES + pages * (FRAME_HEADER_BYTES + self.page_bytes)
    }
}

impl SyncTarget for WalFile {
    fn sync(&self) -> Result<(), Error> {
        if plant::on(Plant::NormalSync) {
            return Ok(());
        }
        self.file
            .sync_data()
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        let length = self.confirm_place()?;
        let mut magic = [0; 4];
        let read = self.file.read_exact_at(&mut magic, 0);
        if read.is_err() || u32::from_be_bytes(magic) & !1 != MAGIC {
            return Err(self.damaged());
        }
        self.length.store(length, Ordering::Relaxed);
        Ok(())
    }
}
