//! Copies the files of a configuration to a new directory, and restores them.
//!
//! Only the files of the configuration are copied, not plugins or state. A file outside of the configuration's directory is not
//! copied but reported.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Edit;
use crate::config::files;
use crate::config::model::Config;
use crate::config::seal;

/// The copied files, relative to the directory of the configuration, and those that were not copied.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConfigBackup {
    pub copied: Vec<PathBuf>,
    pub left_out: Vec<PathBuf>,
}

/// The files of a configuration, including its seal.
pub fn paths(config: &Config) -> impl Iterator<Item = PathBuf> {
    let sealed = config.dir.join(seal::FILE);
    let sealed = Some(sealed).filter(|path| path.is_file());
    let paths = config.files.iter().map(|source| source.path.clone());
    paths.chain(sealed)
}

/// Copies into `output`, which must not exist yet.
pub fn backup(config: &Config, output: &Path) -> io::Result<ConfigBackup> {
    if output.exists() {
        let message = format!("{} exists already", output.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    let mut done = ConfigBackup::default();
    for path in paths(config) {
        let Ok(relative) = path.strip_prefix(&config.dir) else {
            done.left_out.push(path);
            continue;
        };
        let target = output.join(relative);
        files::make_dir(target.parent().unwrap_or(output))?;
        files::write(&target, &fs::read(&path)?)?;
        done.copied.push(relative.to_owned());
    }
    done.copied.sort();
    Ok(done)
}

/// Plans to restore the files of a backup into `dir`.
pub fn restore(from: &Path, dir: &Path) -> io::Result<Edit> {
    if !from.join("config.yaml").is_file() {
        let message = format!(
            "{} has no config.yaml, so it is not a backup",
            from.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let mut edit = Edit::default();
    let mut waiting = vec![from.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let relative = path.strip_prefix(from).unwrap_or(&path);
            edit.writes.insert(dir.join(relative), fs::read(&path)?);
        }
    }
    Ok(edit)
}
