//! Creates a new plugin that works immediately.
//!
//! Existing files are never touched, and the manifest is written last, so that a concurrent discovery finds either no plugin or a
//! complete one. Nothing is printed and nothing is built.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const NAME_CHARS_MAX: usize = 64;
const PROGRAM: u32 = 0o755;
const TEXT: u32 = 0o644;
const DIRECTORY: u32 = 0o755;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Bash,
    Python,
    Rust,
}

impl Language {
    pub const ALL: [Self; 3] = [Self::Bash, Self::Python, Self::Rust];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Python => "python",
            Self::Rust => "rust",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|language| language.as_str() == name)
    }

    fn entrypoint(self) -> &'static str {
        match self {
            Self::Bash | Self::Rust => "run.sh",
            Self::Python => "run.py",
        }
    }

    /// The manifest comes last.
    fn templates(self) -> Vec<(&'static str, u32, &'static str)> {
        let mut templates = match self {
            Self::Bash => vec![("run.sh", PROGRAM, BASH)],
            Self::Python => vec![("run.py", PROGRAM, PYTHON)],
            Self::Rust => vec![
                (".gitignore", TEXT, RUST_GITIGNORE),
                ("Cargo.toml", TEXT, RUST_CARGO),
                ("src/main.rs", TEXT, RUST_MAIN),
                ("run.sh", PROGRAM, RUST_RUN),
            ],
        };
        templates.push(("manifest.yaml", TEXT, MANIFEST));
        templates
    }
}

const MANIFEST: &str = include_str!("scaffold/templates/manifest.yaml");
const BASH: &str = include_str!("scaffold/templates/bash.sh");
const PYTHON: &str = include_str!("scaffold/templates/python.py");
const RUST_CARGO: &str = include_str!("scaffold/templates/rust_cargo.toml");
const RUST_GITIGNORE: &str = include_str!("scaffold/templates/rust_gitignore");
const RUST_MAIN: &str = include_str!("scaffold/templates/rust_main.rs");
const RUST_RUN: &str = include_str!("scaffold/templates/rust_run.sh");

/// A file of the new plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub path: PathBuf,
    pub mode: u32,
    pub text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "`{0}` is not a valid plugin name; write letters, digits, `_` and `-`, a letter first, at most {NAME_CHARS_MAX}"
    )]
    Name(String),
    #[error("{0} exists already; choose another name or move it away")]
    Exists(PathBuf),
    #[error("{0} is not a directory; create it first")]
    NoParent(PathBuf),
    #[error("{path} cannot be written: {error}")]
    Write { path: PathBuf, error: io::Error },
}

/// The files that [`create`] would write, in order. Writes nothing.
pub fn plan(parent: &Path, name: &str, language: Language) -> Result<Vec<File>, Error> {
    if !is_name(name) {
        return Err(Error::Name(name.to_owned()));
    }
    if !parent.is_dir() {
        return Err(Error::NoParent(parent.to_path_buf()));
    }
    let directory = parent.join(name);
    // A dangling link counts as existing.
    if fs::symlink_metadata(&directory).is_ok() {
        return Err(Error::Exists(directory));
    }
    let templates = language.templates().into_iter();
    let files = templates.map(|(path, mode, text)| File {
        path: directory.join(path),
        mode,
        text: text
            .replace("{{name}}", name)
            .replace("{{entrypoint}}", language.entrypoint()),
    });
    Ok(files.collect())
}

/// Creates the directory `name` in `parent` with a plugin in it; returns its files.
pub fn create(parent: &Path, name: &str, language: Language) -> Result<Vec<File>, Error> {
    let files = plan(parent, name, language)?;
    let directory = parent.join(name);
    // Creating the directory decides a race; the loser gets an error.
    fs::create_dir(&directory).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            Error::Exists(directory.clone())
        } else {
            unwritten(&directory, error)
        }
    })?;
    let written = restrict(&directory).and_then(|()| files.iter().try_for_each(write));
    if let Err(error) = written {
        // A partial plugin would block the next try. If removing it fails, writing it failed for the same reason.
        let _ = fs::remove_dir_all(&directory);
        return Err(error);
    }
    Ok(files)
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_CHARS_MAX
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn write(file: &File) -> Result<(), Error> {
    let failed = |error| unwritten(&file.path, error);
    let directory = file.path.parent().expect("it was joined to a directory");
    if !directory.is_dir() {
        fs::create_dir(directory).map_err(|error| unwritten(directory, error))?;
        restrict(directory)?;
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(file.mode);
    let mut opened = options.open(&file.path).map_err(failed)?;
    opened.write_all(file.text.as_bytes()).map_err(failed)?;
    let mode = fs::Permissions::from_mode(file.mode);
    opened.set_permissions(mode).map_err(failed)
}

/// Discovery refuses world-writable files, which a permissive umask would create.
fn restrict(directory: &Path) -> Result<(), Error> {
    let mode = fs::Permissions::from_mode(DIRECTORY);
    fs::set_permissions(directory, mode).map_err(|error| unwritten(directory, error))
}

fn unwritten(path: &Path, error: io::Error) -> Error {
    Error::Write {
        path: path.to_path_buf(),
        error,
    }
}
