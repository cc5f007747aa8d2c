//! The content of a disk after a power cut, computed from the shim's log of changes and syncs.
//!
//! Invariant: everything that a finished sync covers is kept. Every other write is kept, dropped or torn at sector
//! boundaries, independently of earlier ones. Names (created, renamed, removed) are lost from some point on, because
//! file systems journal them in order. A name is durable once its directory was synced, content once its file was. A
//! failed sync guarantees nothing later: what it covered may be lost even if the next sync of that file succeeds.
//! SQLite's `-shm` is memory and never survives.

mod log;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::seeded_random::SeededRandom;
use log::{Change, Event, NameChange};

const SECTOR_BYTES: usize = 512;

/// One directory tree as on disk, and the changes that wait for a sync.
#[derive(Debug, Default)]
pub struct Disk {
    files: Vec<Content>,
    /// Files by inode; a reused number refers to the newer file.
    by_inode: BTreeMap<u64, usize>,
    names: BTreeMap<PathBuf, usize>,
    directories: BTreeMap<PathBuf, u64>,
    waiting_names: Vec<NameChange>,
    loss: Loss,
}

#[derive(Debug, Default)]
struct Content {
    durable: Vec<u8>,
    waiting: Vec<Change>,
}

/// The effect of a power cut, or of a failed sync, on the waiting changes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    pub kept: u64,
    pub dropped: u64,
    pub torn: u64,
}

impl Disk {
    /// Reads a tree without writers: all of it is durable.
    pub fn read(tree: &Path) -> io::Result<Self> {
        let mut disk = Self::default();
        if tree.exists() {
            disk.read_directory(tree)?;
        }
        Ok(disk)
    }

    fn read_directory(&mut self, directory: &Path) -> io::Result<()> {
        let inode = fs::metadata(directory)?.ino();
        self.directories.insert(directory.to_owned(), inode);
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let found = fs::metadata(&path)?;
            if found.is_dir() {
                self.read_directory(&path)?;
                continue;
            }
            let file = self.add_file(found.ino());
            self.files[file].durable = fs::read(&path)?;
            self.names.insert(path, file);
        }
        Ok(())
    }

    fn add_file(&mut self, inode: u64) -> usize {
        let file = self.files.len();
        self.files.push(Content::default());
        self.by_inode.insert(inode, file);
        file
    }

    /// Applies a log. An incomplete record is the end of it.
    pub fn replay(&mut self, log: &[u8], random: &mut SeededRandom) {
        for event in log::events(log) {
            match event {
                Event::Changed { inode, change } => {
                    if let Some(&file) = self.by_inode.get(&inode) {
                        self.files[file].waiting.push(change);
                    }
                }
                Event::Synced { inode, succeeded } => self.sync(inode, succeeded, random),
                Event::Created { inode, path } => {
                    let file = self.add_file(inode);
                    self.waiting_names.push(NameChange::Make { path, file });
                }
                Event::Named(change) => self.waiting_names.push(change),
            }
        }
    }

    fn sync(&mut self, inode: u64, succeeded: bool, random: &mut SeededRandom) {
        if let Some(&file) = self.by_inode.get(&inode) {
            let content = &mut self.files[file];
            let keep = if succeeded { Keep::All } else { Keep::Some };
            content.settle(keep, random, &mut self.loss);
        }
        let waiting = std::mem::take(&mut self.waiting_names);
        for change in waiting {
            // A new directory is known from the change that waits for its parent.
            let parent = change.path().parent().map(Path::to_owned);
            let synced = parent.is_some_and(|parent| self.directories.get(&parent) == Some(&inode));
            if succeeded && synced {
                self.rename(change);
            } else {
                self.waiting_names.push(change);
            }
        }
    }

    fn rename(&mut self, change: NameChange) {
        match change {
            NameChange::Make { path, file } => {
                self.names.insert(path, file);
            }
            NameChange::Directory { path, inode } => {
                self.directories.insert(path, inode);
            }
            NameChange::Rename { from, to } => {
                if let Some(file) = self.names.remove(&from) {
                    self.names.insert(to, file);
                }
            }
            NameChange::Remove { path } => {
                self.names.remove(&path);
                self.directories.remove(&path);
            }
        }
    }

    /// Decides about all waiting changes, and returns the loss since the tree was read.
    pub fn cut_power(&mut self, random: &mut SeededRandom) -> Loss {
        let keep = match random.below(4) {
            0 => Keep::None,
            1 => Keep::All,
            _ => Keep::Some,
        };
        for content in &mut self.files {
            content.settle(keep, random, &mut self.loss);
        }
        let waiting = std::mem::take(&mut self.waiting_names);
        let kept = match keep {
            Keep::None => 0,
            Keep::All => waiting.len() as u64,
            Keep::Some => random.below(waiting.len() as u64 + 1),
        };
        for (change, place) in waiting.into_iter().zip(0..) {
            if place < kept {
                self.loss.kept += 1;
                self.rename(change);
            } else {
                self.loss.dropped += 1;
            }
        }
        self.names.retain(|path, _| !is_memory(path));
        self.loss
    }

    /// Writes the content of the disk to the tree. Existing files keep their mode.
    pub fn write(&self, tree: &Path) -> io::Result<()> {
        for directory in self.directories.keys() {
            if !directory.exists() {
                DirBuilder::new().mode(0o700).create(directory)?;
            }
        }
        self.remove_others(tree)?;
        for (path, file) in &self.names {
            // A name in a lost directory is lost too.
            if !path.parent().is_some_and(Path::exists) {
                continue;
            }
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.open(path)?.write_all(&self.files[*file].durable)?;
        }
        Ok(())
    }

    fn remove_others(&self, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                if self.directories.contains_key(&path) {
                    self.remove_others(&path)?;
                } else {
                    fs::remove_dir_all(&path)?;
                }
            } else if !self.names.contains_key(&path) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// How many of the waiting changes reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    All,
    Some,
    None,
}

impl Content {
    fn settle(&mut self, keep: Keep, random: &mut SeededRandom, loss: &mut Loss) {
        for change in std::mem::take(&mut self.waiting) {
            let fate = match keep {
                Keep::All => 0,
                Keep::None => 2,
                Keep::Some => random.below(3),
            };
            match (fate, change) {
                (0 | 1, Change::Truncate { length }) => {
                    loss.kept += u64::from(keep != Keep::All);
                    self.durable.resize(length, 0);
                }
                (0, Change::Write { at, bytes }) => {
                    loss.kept += u64::from(keep != Keep::All);
                    self.put(at, &bytes);
                }
                (1, Change::Write { at, bytes }) => {
                    loss.torn += 1;
                    self.put_torn(at, &bytes, random);
                }
                _ => loss.dropped += 1,
            }
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[at..end].copy_from_slice(bytes);
    }

    /// Sectors are aligned to the file, not to the write.
    fn put_torn(&mut self, at: usize, bytes: &[u8], random: &mut SeededRandom) {
        let mut done = 0;
        while done < bytes.len() {
            let to_boundary = SECTOR_BYTES - (at + done) % SECTOR_BYTES;
            let next = (done + to_boundary).min(bytes.len());
            if random.percent(50) {
                self.put(at + done, &bytes[done..next]);
            }
            done = next;
        }
    }
}

fn is_memory(path: &Path) -> bool {
    path.to_string_lossy().ends_with("-shm")
}

#[cfg(test)]
mod tests;
