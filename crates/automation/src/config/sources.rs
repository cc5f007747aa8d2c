//! Reads the files of a configuration: hash, substitute, parse and merge, in the order of their includes.
//!
//! The hash covers exactly the bytes that are used, before substitution. Includes are read from the text before substitution, so
//! the set of files never depends on a variable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::find::{self, Environment};
use super::interpolate;
use super::merge;
use super::node::{ConfigNode, NodeKind};
use super::problem::{ConfigProblems, SourcePosition, wrong_kind};
use super::yaml::{self, FILE_BYTES_MAX};

const FILES_MAX: usize = 256;

/// A file that was read, with the hash of its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    pub path: PathBuf,
    /// BLAKE3, 64 hex digits.
    pub hash: String,
}

/// Proposed file contents that replace those on disk.
pub(crate) type Drafts = BTreeMap<PathBuf, Vec<u8>>;

/// All files of one configuration.
#[derive(Debug)]
pub(super) struct Sources {
    pub files: Vec<SourceFile>,
    pub merged: ConfigNode,
    /// Symbolic links; whether they are allowed is known only after everything is read.
    pub links: Vec<PathBuf>,
    /// Variables that are used but not set.
    pub unset: BTreeSet<String>,
    pub problems: ConfigProblems,
}

pub(super) fn gather(root: &Path, environment: &Environment, drafts: &Drafts) -> Sources {
    let file: Arc<Path> = Arc::from(root);
    let mut walk = IncludeWalk {
        environment,
        drafts,
        variables: environment.variables.clone(),
        seen: Vec::new(),
        found: Sources {
            files: Vec::new(),
            merged: ConfigNode {
                at: SourcePosition { file, line: 0 },
                kind: NodeKind::Map(Vec::new()),
                is_filled: false,
            },
            links: Vec::new(),
            unset: BTreeSet::new(),
            problems: ConfigProblems::default(),
        },
    };
    let start = walk.found.merged.at.clone();
    walk.file(root, &start);
    walk.found
}

pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a named pipe would block until something writes to it.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX);
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_BYTES_MAX {
        let message = format!("it is larger than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

pub(super) fn read_or_draft(path: &Path, drafts: &Drafts) -> io::Result<Vec<u8>> {
    match drafts.get(path) {
        Some(draft) => Ok(draft.clone()),
        None => read(path),
    }
}

pub(super) fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

struct IncludeWalk<'a> {
    environment: &'a Environment,
    drafts: &'a Drafts,
    variables: BTreeMap<String, String>,
    seen: Vec<PathBuf>,
    found: Sources,
}

impl IncludeWalk<'_> {
    /// Reads one file, merges it, then follows its includes.
    fn file(&mut self, path: &Path, includer: &SourcePosition) {
        let shown = path.display();
        let same = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if self.seen.contains(&same) {
            let message = format!("circular include: {shown} is already part of the configuration");
            let fix = "include every file once, and never the file that includes it";
            return self.found.problems.error(includer, message, fix);
        }
        if self.seen.len() == FILES_MAX {
            let message = format!("more than {FILES_MAX} files are included");
            return self.found.problems.error(includer, message, "");
        }
        self.seen.push(same);
        if path.is_symlink() {
            self.found.links.push(path.to_owned());
        }
        let bytes = match read_or_draft(path, self.drafts) {
            Ok(bytes) => bytes,
            Err(error) => {
                let message = format!("cannot read {shown}: {error}");
                return self.found.problems.error(includer, message, "");
            }
        };
        self.found.files.push(SourceFile {
            path: path.to_owned(),
            hash: hash(&bytes),
        });
        let file: Arc<Path> = Arc::from(path);
        let Some((outline, tree)) = self.parse(&file, &bytes) else {
            return;
        };
        merge::merge_file(&mut self.found.merged, tree);
        for (include, at) in self.paths(outline.get("include"), "include") {
            self.include(&include, &at, path);
        }
    }

    /// The tree before and after substitution.
    fn parse(&mut self, file: &Arc<Path>, bytes: &[u8]) -> Option<(ConfigNode, ConfigNode)> {
        let whole = SourcePosition {
            file: Arc::clone(file),
            line: 0,
        };
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.found
                .problems
                .error(&whole, "the file is not UTF-8", "");
            return None;
        };
        let outline = match yaml::parse(file, &interpolate::outline(text)) {
            Ok(outline) => outline,
            Err(unreadable) => {
                let at = SourcePosition {
                    line: unreadable.line,
                    ..whole
                };
                let message = format!("not valid YAML: {}", unreadable.reason);
                self.found.problems.error(&at, message, "");
                return None;
            }
        };
        if !matches!(outline.kind, NodeKind::Map(_) | NodeKind::Null) {
            wrong_kind(
                &mut self.found.problems,
                &outline,
                "the file",
                "a map of keys",
            );
            return None;
        }
        self.preload(&outline, file);
        for name in interpolate::unfilled(text) {
            match self.variables.get(name) {
                Some(value) => {
                    let written = format!("${{{name}}}");
                    self.found.problems.conceal(value, &written);
                }
                None => {
                    self.found.unset.insert(name.to_owned());
                }
            }
        }
        let filled = interpolate::fill(text, |name| self.variables.get(name).map(String::as_str));
        match yaml::parse(file, &filled) {
            Ok(mut tree) => {
                let problems = &mut self.found.problems;
                tree.mark_filled(&outline, &mut |value, written| {
                    problems.conceal(value, written);
                });
                Some((outline, tree))
            }
            Err(unreadable) => {
                // The parser's message may quote a substituted value.
                let at = SourcePosition {
                    line: unreadable.line,
                    ..whole
                };
                let message = "not valid YAML after variables are substituted";
                let fix = "put quotes around the placeholder";
                self.found.problems.error(&at, message, fix);
                None
            }
        }
    }

    /// Loads the dotenv files that this file names. Variables that are set already stay.
    fn preload(&mut self, outline: &ConfigNode, file: &Path) {
        let key = "environment_vars.include";
        let listed = outline.get("environment_vars");
        let listed = listed.and_then(|vars| vars.get("include"));
        for (written, at) in self.paths(listed, key) {
            let base = file.parent().unwrap_or(file);
            let path = find::resolve(&written, base, self.environment);
            let pairs = read(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))
                .and_then(|bytes| {
                    let text = String::from_utf8_lossy(&bytes);
                    interpolate::dotenv(&text).map_err(|lines| {
                        format!("{}: no KEY=VALUE in lines {lines:?}", path.display())
                    })
                });
            match pairs {
                Ok(pairs) => {
                    for (name, value) in pairs {
                        self.variables.entry(name).or_insert(value);
                    }
                }
                Err(message) => self.found.problems.error(&at, message, ""),
            }
        }
    }

    fn include(&mut self, written: &str, at: &SourcePosition, includer: &Path) {
        let base = includer.parent().unwrap_or(includer);
        let path = find::resolve(written, base, self.environment);
        if !path.is_dir() {
            return self.file(&path, at);
        }
        if path.is_symlink() {
            self.found.links.push(path.clone());
        }
        match yaml_files(&path) {
            Ok(files) => files.iter().for_each(|file| self.file(file, at)),
            Err(error) => {
                let message = format!("cannot list {}: {error}", path.display());
                self.found.problems.error(at, message, "");
            }
        }
    }

    /// A list of paths in an outline; none may contain a placeholder.
    fn paths(&mut self, listed: Option<&ConfigNode>, key: &str) -> Vec<(String, SourcePosition)> {
        let Some(listed) = listed else {
            return Vec::new();
        };
        let items = match &listed.kind {
            NodeKind::Null => return Vec::new(),
            NodeKind::List(items) => items,
            NodeKind::Bool { .. }
            | NodeKind::Number { .. }
            | NodeKind::Text(_)
            | NodeKind::Map(_) => {
                wrong_kind(&mut self.found.problems, listed, key, "a list of paths");
                return Vec::new();
            }
        };
        let mut paths = Vec::new();
        for item in items {
            match item.text() {
                Some(path) if interpolate::has_placeholder(path) || path.contains("${") => {
                    let message = format!("`{key}` must not use variables");
                    let fix = "write the path itself";
                    self.found.problems.error(&item.at, message, fix);
                }
                Some(path) if !path.is_empty() => paths.push((path.to_owned(), item.at.clone())),
                _ => wrong_kind(&mut self.found.problems, item, key, "a list of paths"),
            }
        }
        paths
    }
}

fn yaml_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "yaml") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
