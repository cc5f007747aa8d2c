//! Reads the log that the shim writes; `shim/sync_shim.c` documents the format of its records.

use std::path::PathBuf;

/// A change or a sync in the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Changed { inode: u64, change: Change },
    Synced { inode: u64, succeeded: bool },
    Created { inode: u64, path: PathBuf },
    Named(NameChange),
}

/// A change of a file's content.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate { length: usize },
}

/// A change of a directory entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NameChange {
    Make { path: PathBuf, file: usize },
    Directory { path: PathBuf, inode: u64 },
    Rename { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf },
}

impl NameChange {
    /// The path of the entry. The change is durable once the parent directory is synced.
    pub(super) fn path(&self) -> &PathBuf {
        match self {
            Self::Make { path, .. } | Self::Directory { path, .. } | Self::Remove { path } => path,
            Self::Rename { to, .. } => to,
        }
    }
}

/// All complete records.
pub(super) fn events(log: &[u8]) -> impl Iterator<Item = Event> {
    let mut rest = log;
    std::iter::from_fn(move || event(&mut rest))
}

fn event(rest: &mut &[u8]) -> Option<Event> {
    let kind = take(rest, 1)?[0];
    let one = number(rest)?;
    let two = number(rest)?;
    let first = text(rest)?;
    let second = text(rest)?;
    let path = |bytes: &[u8]| PathBuf::from(String::from_utf8_lossy(bytes).into_owned());
    let size = usize::try_from(two).ok()?;
    Some(match kind {
        b'w' => Event::Changed {
            inode: one,
            change: Change::Write {
                at: size,
                bytes: first.to_vec(),
            },
        },
        b't' => Event::Changed {
            inode: one,
            change: Change::Truncate { length: size },
        },
        b's' => Event::Synced {
            inode: one,
            succeeded: two == 1,
        },
        b'c' => Event::Created {
            inode: one,
            path: path(first),
        },
        b'r' => Event::Named(NameChange::Rename {
            from: path(first),
            to: path(second),
        }),
        b'u' => Event::Named(NameChange::Remove { path: path(first) }),
        b'd' => Event::Named(NameChange::Directory {
            path: path(first),
            inode: one,
        }),
        _ => return None,
    })
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(take(rest, 8)?.try_into().ok()?))
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_ne_bytes(take(rest, 4)?.try_into().ok()?);
    take(rest, usize::try_from(length).ok()?)
}
