//! The root of the repository, its target folder, and the deadline of the running stage.
//!
//! Child programs are made here, so that all of them run in the root with the same environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Shared by every command and stage.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    /// When the budget of the running stage ends; `None` outside of `cargo xtask test`.
    pub(crate) deadline: Option<Instant>,
}

impl Context {
    pub(crate) fn discover() -> Result<Self, String> {
        // The value at run time follows a repository that was moved; the one from the build does not.
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir
            .parent()
            .ok_or("the xtask crate has no parent folder")?
            .to_owned();
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        Ok(Self {
            root,
            target,
            deadline: None,
        })
    }

    /// A program started in the root of the repository.
    pub(crate) fn program(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.root);
        // `cargo run` describes this crate in the environment. Build scripts that watch these variables
        // would run again, and rebuild what depends on them, each time the caller changes.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_")
                || text.starts_with("CARGO_MANIFEST_")
                || matches!(&*text, "CARGO_BIN_NAME" | "CARGO_CRATE_NAME")
            {
                command.env_remove(&name);
            }
        }
        command
    }

    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        self.program("cargo", args)
    }

    /// A binary that the product build leaves in the target folder.
    pub(crate) fn binary(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    /// The folder of the logs and tools of this program.
    pub(crate) fn work_folder(&self) -> PathBuf {
        self.target.join("xtask")
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.work_folder().join(format!("{name}.log"))
    }

    /// The path of a file that must exist; the error names it and says what it is for.
    pub(crate) fn require_file(&self, path: &str, what: &str) -> Result<PathBuf, String> {
        let full = self.root.join(path);
        if full.is_file() {
            Ok(full)
        } else {
            Err(format!("{path} is missing: {what}"))
        }
    }

    pub(crate) fn read(&self, path: &str) -> Result<String, String> {
        read(&self.root.join(path))
    }
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    }
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
