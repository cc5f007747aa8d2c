//! Sequences of writes and syncs, and the possible contents of the disk after power cuts with many seeds.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Disk, Loss};
use crate::seeded_random::SeededRandom;

/// A tree with one durable file `old` that contains "old", and the log of later events.
struct Story {
    folder: TempDir,
    log: Vec<u8>,
}

impl Story {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("old"), "old").unwrap();
        let log = Vec::new();
        Self { folder, log }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn inode(path: &Path) -> u64 {
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap())
    }

    fn note(mut self, kind: u8, one: u64, two: u64, texts: [&[u8]; 2]) -> Self {
        self.log.push(kind);
        self.log.extend(one.to_ne_bytes());
        self.log.extend(two.to_ne_bytes());
        for text in texts {
            let length = u32::try_from(text.len()).unwrap();
            self.log.extend(length.to_ne_bytes());
            self.log.extend(text);
        }
        self
    }

    fn writes(self, at: u64, bytes: &[u8]) -> Self {
        let inode = Self::inode(&self.path("old"));
        self.note(b'w', inode, at, [bytes, b""])
    }

    fn syncs(self, succeeds: bool) -> Self {
        let inode = Self::inode(&self.path("old"));
        self.note(b's', inode, succeeds.into(), [b"", b""])
    }

    fn makes(self, name: &str, inode: u64) -> Self {
        let path = self.path(name);
        self.note(b'c', inode, 0, [path.to_string_lossy().as_bytes(), b""])
    }

    fn syncs_directory(self) -> Self {
        let inode = Self::inode(self.folder.path());
        self.note(b's', inode, 1, [b"", b""])
    }

    /// The distinct contents of a file after power cuts with many seeds; `None` if the file is missing.
    fn outcomes(&self, name: &str) -> Vec<Option<Vec<u8>>> {
        let mut outcomes = Vec::new();
        for seed in 0..200 {
            let (disk, _) = self.cut(seed);
            let file = disk.names.get(&self.path(name));
            outcomes.push(file.map(|file| disk.files[*file].durable.clone()));
        }
        outcomes.sort();
        outcomes.dedup();
        outcomes
    }

    fn cut(&self, seed: u64) -> (Disk, Loss) {
        let mut disk = Disk::read(self.folder.path()).unwrap();
        let mut random = SeededRandom::new(seed);
        disk.replay(&self.log, &mut random);
        let loss = disk.cut_power(&mut random);
        (disk, loss)
    }
}

#[test]
fn what_was_synced_is_there_whatever_the_seed() {
    let story = Story::new().writes(0, b"new").syncs(true);
    assert_eq!(story.outcomes("old"), [Some(b"new".to_vec())]);
}

#[test]
fn what_was_not_synced_may_be_there_or_not_and_in_any_order() {
    let story = Story::new().writes(0, b"N").writes(1, b"E");
    let found = story.outcomes("old");
    for possible in [b"old", b"Nld", b"oEd", b"NEd"] {
        assert!(found.contains(&Some(possible.to_vec())), "{found:?}");
    }
    assert_eq!(found.len(), 4);
}

#[test]
fn a_write_tears_at_the_sectors_of_its_file() {
    let story = Story::new().writes(256, &[7; 768]);
    let found = story.outcomes("old");
    let torn = found.iter().flatten().any(|bytes| {
        bytes.len() == 1024 && bytes[256..512] == [0; 256] && bytes[512..] == [7; 512]
    });
    assert!(torn);
    let elsewhere = found
        .iter()
        .flatten()
        .any(|bytes| bytes.len() > 600 && bytes[512] != bytes[600]);
    assert!(!elsewhere);
}

#[test]
fn a_sync_that_failed_proves_nothing_even_if_the_next_one_succeeds() {
    let story = Story::new()
        .writes(0, b"N")
        .syncs(false)
        .writes(1, b"E")
        .syncs(true);
    let found = story.outcomes("old");
    assert_eq!(found, [Some(b"NEd".to_vec()), Some(b"oEd".to_vec())]);
}

#[test]
fn a_name_is_safe_once_its_directory_was_synced() {
    let loose = Story::new().makes("new", 4_000_000_000);
    assert_eq!(loose.outcomes("new"), [None, Some(Vec::new())]);
    let safe = loose.syncs_directory();
    assert_eq!(safe.outcomes("new"), [Some(Vec::new())]);
}

#[test]
fn memory_files_are_gone_and_a_record_cut_short_is_the_end() {
    let mut story = Story::new()
        .makes("db-shm", 4_000_000_000)
        .syncs_directory();
    assert_eq!(story.outcomes("db-shm"), [None]);
    story = story.writes(0, b"new").syncs(true);
    story.log.pop();
    assert!(story.outcomes("old").contains(&Some(b"old".to_vec())));
}

#[test]
fn the_tree_holds_what_the_disk_held() {
    let story = Story::new().writes(0, b"new").syncs(true);
    std::fs::write(story.path("other"), "made and never synced").unwrap();
    let mut disk = Disk::read(story.folder.path()).unwrap();
    disk.names.remove(&story.path("other"));
    disk.replay(&story.log, &mut SeededRandom::new(1));
    disk.write(story.folder.path()).unwrap();
    assert_eq!(std::fs::read(story.path("old")).unwrap(), b"new");
    assert!(!story.path("other").exists());
}
