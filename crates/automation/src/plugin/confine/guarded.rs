//! Paths that no sandbox opens, whatever a configuration names: the keys, ledgers and configuration of the service.
//!
//! Landlock can only add rights, and a right to a directory includes everything below it. So a configured path that would open a
//! guarded one is refused. Where a system directory contains a guarded path, its other entries are opened one by one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedPaths {
    /// Neither readable nor writable; a directory includes everything below it.
    pub hidden: Vec<PathBuf>,
    /// Not writable, because a writer could replace programs that the service runs.
    pub kept: Vec<PathBuf>,
    /// A directory of the service for temporary files of plugins, used where the default one would open a guarded path.
    pub spare: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    Read,
    Write,
}

impl GuardedPaths {
    /// Adds hidden paths, such as the keys, ledger and lock of a state or data directory.
    #[must_use]
    pub fn and_hidden(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.hidden.extend(paths);
        self
    }

    /// With all symbolic links resolved, as far as the paths exist.
    pub(super) fn resolved(&self) -> Self {
        let all = |paths: &[PathBuf]| paths.iter().map(|path| real(path)).collect();
        Self {
            hidden: all(&self.hidden),
            kept: all(&self.kept),
            spare: self.spare.clone(),
        }
    }

    /// A guarded path that the right to `path` would open. Both must be free of links.
    pub(super) fn opened_by(&self, path: &Path, right: Right) -> Option<&Path> {
        let meets = |guarded: &&PathBuf| guarded.starts_with(path) || path.starts_with(guarded);
        let hidden = self.hidden.iter().find(meets);
        let kept = || self.kept.iter().find(meets);
        let found = match right {
            Right::Read => hidden,
            Right::Write => hidden.or_else(kept),
        };
        found.map(PathBuf::as_path)
    }

    /// The guarded path that makes a configured path invalid, as far as that is known before a plugin runs.
    pub fn refuses_to_read(&self, path: &Path) -> Option<PathBuf> {
        let found = self.resolved();
        found
            .opened_by(&real(path), Right::Read)
            .map(Path::to_path_buf)
    }

    pub fn refuses_to_write(&self, path: &Path) -> Option<PathBuf> {
        let found = self.resolved();
        found
            .opened_by(&real(path), Right::Write)
            .map(Path::to_path_buf)
    }
}

/// Resolves a path; the part that does not exist is kept as written.
pub(super) fn real(path: &Path) -> PathBuf {
    let mut missing: Vec<OsString> = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(mut found) = std::fs::canonicalize(existing) {
            found.extend(missing.iter().rev());
            return found;
        }
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name.to_owned());
                existing = parent;
            }
            _ => return path.to_path_buf(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_opens_what_is_below_it_and_what_it_is_below_of() {
        let guarded = GuardedPaths {
            hidden: vec!["/srv/state/keys".into(), "/srv/state/a.db".into()],
            kept: vec!["/srv/plugins".into()],
            spare: None,
        };
        for (path, read, write) in [
            ("/", true, true),
            ("/srv/state", true, true),
            ("/srv/state/keys/seal_key", true, true),
            ("/srv/state/a.db", true, true),
            ("/srv/state/a.db-wal", false, false),
            ("/srv/state/out", false, false),
            ("/srv/state/keyset", false, false),
            ("/srv/plugins", false, true),
            ("/srv/plugins/one/cache", false, true),
            ("/srv/out", false, false),
        ] {
            let opens = |right| guarded.opened_by(Path::new(path), right).is_some();
            assert_eq!(
                (opens(Right::Read), opens(Right::Write)),
                (read, write),
                "{path}"
            );
        }
    }

    #[test]
    fn links_are_followed_as_far_as_there_is_something() {
        let folder = tempfile::tempdir().unwrap();
        let folder = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir_all(folder.join("state/keys")).unwrap();
        std::os::unix::fs::symlink(folder.join("state"), folder.join("link")).unwrap();
        assert_eq!(real(&folder.join("link/new/x")), folder.join("state/new/x"));
        let guarded = GuardedPaths::default().and_hidden([folder.join("link/keys")]);
        assert!(guarded.refuses_to_read(&folder.join("state")).is_some());
        assert!(
            guarded
                .refuses_to_write(&folder.join("state/../link"))
                .is_some()
        );
        assert_eq!(guarded.refuses_to_write(&folder.join("state/out")), None);
    }
}
