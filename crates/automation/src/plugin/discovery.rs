//! Finds the plugins below the roots.
//!
//! A bad plugin never hides the others: it is skipped with a [`Note`] that says why and what to do. Only an unusable root is an
//! error. The walk is bounded in depth and in the number of directories, and skips hidden directories and those of package
//! managers. It blocks, so an async caller must use a blocking thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::manifest::{self, MANIFEST_BYTES_MAX, PluginManifest};
use super::trust::{self, Distrust, Symlinks};

pub(crate) const MANIFEST: &str = "manifest.yaml";
const DEPTH_MAX: usize = 8;
const DIRECTORIES_MAX: usize = 10_000;
/// A file with such a name and no manifest beside it was probably meant to be a plugin.
const USUAL_ENTRYPOINTS: &[&str] = &[
    "run", "run.py", "run.sh", "run.js", "run.rb", "run.pl", "main.py", "main.sh", "main.js",
];
/// Code that plugins share.
const SHARED: &[&str] = &["lib", "_lib"];
const FOREIGN: &[&str] = &["node_modules", "__pycache__"];

/// The result of a discovery. Names are those of the manifests.
#[derive(Debug, Default)]
pub struct Discovery {
    pub plugins: BTreeMap<String, DiscoveredPlugin>,
    /// The names of skipped plugins; the directory name if the manifest has none.
    pub skipped: BTreeSet<String>,
    pub notes: Vec<Note>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveredPlugin {
    pub manifest: Arc<PluginManifest>,
    pub directory: PathBuf,
    /// Absolute, with links resolved.
    pub entrypoint: PathBuf,
}

/// A message for the operator about one file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub weight: Weight,
    /// The plugin that was skipped because of it.
    pub plugin: Option<String>,
    pub path: PathBuf,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Detail,
    Warning,
    /// A plugin was skipped because of it.
    Skipped,
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path.display(), self.text)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("plugin root {path} cannot be read: {error}; create it or correct `plugin_roots`")]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("plugin root {0} is not a directory; correct `plugin_roots`")]
    NoDirectory(PathBuf),
    #[error("plugin root: {0}")]
    Distrusted(#[from] Distrust),
}

/// Walks the roots in order; the first plugin with a name wins.
pub fn discover(roots: &[PathBuf], symlinks: Symlinks) -> Result<Discovery, Error> {
    let mut walk = DiscoveryWalk {
        symlinks,
        roots: Vec::new(),
        visited: BTreeSet::new(),
        is_full: false,
        discovery: Discovery::default(),
    };
    for root in roots {
        walk.approve(root)?;
    }
    for root in walk.roots.clone() {
        walk.directory(&root, 0, false);
    }
    Ok(walk.discovery)
}

struct DiscoveryWalk {
    symlinks: Symlinks,
    /// Without links and duplicates.
    roots: Vec<PathBuf>,
    visited: BTreeSet<PathBuf>,
    is_full: bool,
    discovery: Discovery,
}

impl DiscoveryWalk {
    fn approve(&mut self, written: &Path) -> Result<(), Error> {
        // Without a trailing slash, after which a link looks like its target.
        let path: PathBuf = written.components().collect();
        let unreadable = |error| Error::Unreadable {
            path: path.clone(),
            error,
        };
        let is_symlink = fs::symlink_metadata(&path)
            .map_err(unreadable)?
            .is_symlink();
        if is_symlink && let Some(text) = trust::check_link(&path, self.symlinks)? {
            self.note(Weight::Warning, &path, text);
        }
        let root = fs::canonicalize(&path).map_err(unreadable)?;
        if !root.is_dir() {
            return Err(Error::NoDirectory(path));
        }
        fs::read_dir(&root).map_err(unreadable)?;
        if trust::is_writable_by_all(&root)? {
            let may = if trust::is_sticky(&root)? {
                "add plugins"
            } else {
                "add and replace plugins"
            };
            let text = format!("is world-writable, so any user may {may}; run `chmod o-w` on it");
            self.note(Weight::Warning, &root, text);
        }
        if !self.roots.contains(&root) {
            self.roots.push(root);
        }
        Ok(())
    }

    fn directory(&mut self, path: &Path, depth: usize, in_plugin: bool) {
        if self.is_full || !self.visited.insert(path.to_path_buf()) {
            return;
        }
        if self.visited.len() > DIRECTORIES_MAX {
            self.is_full = true;
            let text = format!("{DIRECTORIES_MAX} directories were searched; the rest is skipped");
            self.note(Weight::Warning, path, text);
            return;
        }
        let names = match names(path) {
            Ok(names) => names,
            Err(error) => {
                self.note(Weight::Warning, path, format!("cannot be read: {error}"));
                return;
            }
        };
        let has_manifest = names.contains(MANIFEST);
        if has_manifest {
            self.plugin(path);
        } else if !in_plugin {
            self.note_if_forgotten(path, &names);
        }
        for name in names {
            if !name.starts_with('.') && !FOREIGN.contains(&name.as_str()) {
                self.below(&path.join(name), depth + 1, in_plugin || has_manifest);
            }
        }
    }

    fn below(&mut self, path: &Path, depth: usize, in_plugin: bool) {
        // A file, removed since it was listed, or a dangling link.
        if !path.is_dir() {
            return;
        }
        if depth > DEPTH_MAX {
            let text = format!("is more than {DEPTH_MAX} directories deep and is not searched");
            // Deep directories inside a plugin are its own code.
            let weight = if in_plugin {
                Weight::Detail
            } else {
                Weight::Warning
            };
            self.note(weight, path, text);
            return;
        }
        match self.resolved(path) {
            Ok(path) => self.directory(&path, depth, in_plugin),
            Err(distrust) => self.note(Weight::Warning, path, distrust.to_string()),
        }
    }

    /// The path without links, if it is trusted.
    fn resolved(&mut self, path: &Path) -> Result<PathBuf, Distrust> {
        if trust::is_symlink(path)?
            && let Some(text) = trust::check_link(path, self.symlinks)?
        {
            self.note(Weight::Warning, path, text);
        }
        trust::inside_roots(path, &self.roots)
    }

    fn note_if_forgotten(&mut self, path: &Path, names: &BTreeSet<String>) {
        let is_shared = path
            .file_name()
            .is_some_and(|name| SHARED.iter().any(|shared| name == *shared));
        let entrypoint = USUAL_ENTRYPOINTS.iter().find(|name| names.contains(**name));
        if let Some(entrypoint) = entrypoint.filter(|_| !is_shared) {
            let text = format!("has `{entrypoint}` and no {MANIFEST}; add one to make it a plugin");
            self.note(Weight::Warning, path, text);
        }
    }

    fn plugin(&mut self, directory: &Path) {
        let file = directory.join(MANIFEST);
        let parsed = self
            .resolved(&file)
            .and_then(|target| {
                trust::check_ownership(&target, directory, &self.roots)?;
                Ok(target)
            })
            .map_err(|distrust| distrust.to_string())
            .and_then(|target| {
                let read = read(&target).map_err(|error| manifest::Error::Read(error.to_string()));
                let parsed = read.and_then(|text| manifest::parse(&text));
                parsed.map_err(|error| error.to_string())
            });
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(text) => {
                let name = directory.file_name().unwrap_or_default().to_string_lossy();
                self.skip(name.into_owned(), &file, text);
                return;
            }
        };
        let manifest = parsed.manifest;
        for key in parsed.unknown_keys {
            self.note(
                Weight::Detail,
                &file,
                format!("unknown key `{key}` is ignored"),
            );
        }
        let trusted =
            trust::entrypoint(directory, &self.roots, &manifest.entrypoint, self.symlinks);
        let entrypoint = match trusted {
            Ok(entrypoint) => entrypoint,
            Err(distrust) => {
                self.skip(manifest.name, &file, distrust.to_string());
                return;
            }
        };
        for text in entrypoint.warnings {
            self.note(Weight::Warning, &file, text);
        }
        if let Some(first) = self.discovery.plugins.get(&manifest.name) {
            let first = first.directory.join(MANIFEST);
            let name = &manifest.name;
            let text = format!(
                "another plugin `{name}` was found first: {}",
                first.display()
            );
            self.note(Weight::Warning, &file, text);
            return;
        }
        let found = DiscoveredPlugin {
            directory: directory.to_path_buf(),
            entrypoint: entrypoint.path,
            manifest: Arc::new(manifest),
        };
        let name = found.manifest.name.clone();
        self.discovery.plugins.insert(name, found);
    }

    fn skip(&mut self, name: String, file: &Path, text: String) {
        self.discovery.skipped.insert(name.clone());
        self.discovery.notes.push(Note {
            weight: Weight::Skipped,
            plugin: Some(name),
            path: file.to_path_buf(),
            text,
        });
    }

    fn note(&mut self, weight: Weight, path: &Path, text: impl Into<String>) {
        self.discovery.notes.push(Note {
            weight,
            plugin: None,
            path: path.to_path_buf(),
            text: text.into(),
        });
    }
}

/// Sorted, so that the first of two plugins is the same on every start. Names that are not UTF-8 cannot be written in a manifest.
fn names(path: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(path)? {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}

fn read(path: &Path) -> io::Result<String> {
    // A named pipe would block the start until something writes to it.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    let mut file = fs::File::open(path)?.take(MANIFEST_BYTES_MAX + 1);
    file.read_to_string(&mut text)?;
    if text.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(io::Error::other(format!(
            "it is longer than {MANIFEST_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}
