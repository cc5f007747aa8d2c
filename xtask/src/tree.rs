//! The files of the repository, read once, so that each check is a function from files to findings.
//!
//! These are the files that git tracks and new ones that it does not ignore. Outside of a checkout (an unpacked archive)
//! the folder is walked instead. Files that are not text are left out.

use std::fs;
use std::path::Path;

use crate::context::Context;
use crate::process;
use crate::rust::Source;

/// Never part of the repository, and too large to walk.
const FOLDERS_LEFT_OUT: &[&str] = &["target", ".git", "consign-data"];

/// One text file, its path relative to the root.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn source(&self) -> Source {
        Source::read(&self.text)
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.extension() == Some("rs")
    }

    pub(crate) fn extension(&self) -> Option<&str> {
        Path::new(&self.path).extension()?.to_str()
    }

    /// The folder name of the crate, if the file is in its `src`: of those below `crates/`, and `peers`.
    pub(crate) fn crate_of_source(&self) -> Option<&str> {
        let below_crates = self.path.strip_prefix("crates/");
        let (name, rest) = below_crates.unwrap_or(&self.path).split_once('/')?;
        let is_crate = below_crates.is_some() || name == "peers";
        (is_crate && rest.starts_with("src/")).then_some(name)
    }

    /// Test code that has a file of its own.
    pub(crate) fn is_test_file(&self) -> bool {
        self.path
            .split('/')
            .any(|part| part == "tests" || part == "benches")
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("_tests.rs")
    }
}

/// All files, in order of path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    pub(crate) fn load(context: &Context) -> Result<Self, String> {
        let listing = context.program(
            "git",
            &[
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ],
        );
        let mut paths: Vec<String> = match process::output_of(listing) {
            Some(listing) => listing.split_terminator('\0').map(str::to_owned).collect(),
            None => walked(&context.root)?,
        };
        paths.sort();
        paths.dedup();
        let mut files = Vec::new();
        for path in paths {
            // Listed but deleted, a link to a folder, or not text: nothing to check.
            if let Ok(text) = fs::read_to_string(context.root.join(&path)) {
                files.push(File { path, text });
            }
        }
        Ok(Self { files })
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    /// Files directly in `folder`, with their names.
    pub(crate) fn folder<'a>(
        &'a self,
        folder: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a File)> {
        self.files.iter().filter_map(move |file| {
            let name = file.path.strip_prefix(folder)?.strip_prefix('/')?;
            (!name.contains('/')).then_some((name, file))
        })
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        Self {
            files: files.iter().map(file).collect(),
        }
    }
}

fn walked(root: &Path) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder)
            .map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let left_out = FOLDERS_LEFT_OUT
                .iter()
                .any(|name| entry.file_name() == *name);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !left_out => folders.push(path),
                Ok(kind) if kind.is_file() => {
                    let relative = path.strip_prefix(root).unwrap_or(&path);
                    paths.push(relative.to_string_lossy().into_owned());
                }
                _ => {}
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_finds_this_crate_and_leaves_the_target_out() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let paths = walked(root).unwrap();
        assert!(paths.iter().any(|path| path == "xtask/src/tree.rs"));
        assert!(!paths.iter().any(|path| path.starts_with("target/")));
    }

    #[test]
    fn files_know_their_crate() {
        let tree = Tree::of(&[
            ("crates/store/src/a/b.rs", ""),
            ("crates/store/tests/it/c.rs", ""),
            ("peers/src/d.rs", ""),
            ("xtask/src/e.rs", ""),
        ]);
        assert_eq!(tree.files[0].crate_of_source(), Some("store"));
        assert_eq!(tree.files[1].crate_of_source(), None);
        assert!(tree.files[1].is_test_file());
        assert_eq!(tree.files[2].crate_of_source(), Some("peers"));
        assert_eq!(tree.files[3].crate_of_source(), None);
    }
}
