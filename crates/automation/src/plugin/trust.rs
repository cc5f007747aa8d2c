//! Decides whether the program of a plugin may be run.
//!
//! A trusted program is executable and, after all links are resolved, lies inside its plugin's directory and inside an approved
//! root. Only root and the user of this process could have replaced it: program, manifest and the directories up to the root
//! belong to one of the two, and neither group nor others may write to them. Violations are refused, including group-writable
//! files, because the members of a group are usually unknown. All rules are checked at discovery, and the ownership of the program
//! and of its plugin's directory again before each start.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;

const EXECUTE: u32 = 0o111;
const WRITE_BY_ALL: u32 = 0o002;
const WRITE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

/// How symbolic links among roots, directories, manifests and programs are handled. They are reported in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symlinks {
    Refuse,
    Follow,
}

#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    #[error(
        "{0} is a symbolic link; put the file itself there, or set `service.allow_symlinks: true`"
    )]
    Symlink(PathBuf),
    #[error("{path} leads to {target}, outside of {allowed}; move it inside")]
    Escape {
        path: PathBuf,
        target: PathBuf,
        allowed: String,
    },
    #[error("entrypoint `{0}` must be a path inside the plugin's directory, without `..`")]
    Traversal(String),
    #[error("entrypoint {0} is not executable; run `chmod +x` on it")]
    NotExecutable(PathBuf),
    #[error("entrypoint {0} is not a file")]
    NoFile(PathBuf),
    #[error(
        "{path} is writable by {whom} (mode {mode:04o}), who could replace the program that the service runs; run \
         `chmod go-w {path}` (for a whole checkout `chmod -R go-w`)"
    )]
    Writable {
        path: PathBuf,
        mode: u32,
        whom: &'static str,
    },
    #[error(
        "{path} belongs to user {owner}, who could replace the program that the service runs; run \
         `chown {user} {path}`, or `chown root {path}`"
    )]
    Foreign {
        path: PathBuf,
        owner: u32,
        user: u32,
    },
    #[error("{path} cannot be examined: {error}")]
    Unreadable { path: PathBuf, error: io::Error },
}

/// The program of a plugin with links resolved, and warnings.
#[derive(Debug)]
pub struct Entrypoint {
    pub path: PathBuf,
    pub warnings: Vec<String>,
}

/// `directory` and `roots` must be free of links.
pub fn entrypoint(
    directory: &Path,
    roots: &[PathBuf],
    written: &str,
    symlinks: Symlinks,
) -> Result<Entrypoint, Distrust> {
    let relative = Path::new(written);
    let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if written.contains('\0') || !relative.components().all(inside) {
        return Err(Distrust::Traversal(written.to_owned()));
    }
    let mut warnings = Vec::new();
    let mut step = directory.to_path_buf();
    for part in relative.components() {
        step.push(part);
        if is_symlink(&step)? {
            warnings.extend(check_link(&step, symlinks)?);
            // A user who may write there may redirect the link.
            let holder = step.parent().unwrap_or(directory);
            check_ownership(&inside_roots(holder, roots)?, directory, roots)?;
        }
    }
    let path = inside_roots(&step, roots)?;
    if !path.starts_with(directory) || path == directory {
        return Err(Distrust::Escape {
            path: step,
            target: path,
            allowed: "its plugin's directory".to_owned(),
        });
    }
    let found = fs::metadata(&path).map_err(|error| unreadable(&path, error))?;
    if !found.is_file() {
        return Err(Distrust::NoFile(path));
    }
    if found.permissions().mode() & EXECUTE == 0 {
        return Err(Distrust::NotExecutable(path));
    }
    check_ownership(&path, directory, roots)?;
    Ok(Entrypoint { path, warnings })
}

/// Refuses `path`, inside a plugin's `directory`, if another user could have written it. All paths must be free of links.
pub(crate) fn check_ownership(
    path: &Path,
    directory: &Path,
    roots: &[PathBuf],
) -> Result<(), Distrust> {
    let user = geteuid().as_raw();
    for part in path.ancestors() {
        let found = fs::metadata(part).map_err(|error| unreadable(part, error))?;
        let (mode, owner) = (found.permissions().mode() & 0o7777, found.uid());
        if owner != ROOT && owner != user {
            let path = part.to_path_buf();
            return Err(Distrust::Foreign { path, owner, user });
        }
        // Above the plugin, a sticky directory may be shared: others can add entries, which are refused on their own, but not
        // replace them.
        let is_shared = !part.starts_with(directory) && mode & STICKY != 0;
        if mode & WRITE_BY_OTHERS != 0 && !is_shared {
            return Err(Distrust::Writable {
                path: part.to_path_buf(),
                mode,
                whom: if mode & WRITE_BY_ALL != 0 {
                    "any user"
                } else {
                    "its group"
                },
            });
        }
        if roots.iter().any(|root| root == part) {
            break;
        }
    }
    Ok(())
}

/// Reports that a link was followed, unless links are refused.
pub(super) fn check_link(link: &Path, symlinks: Symlinks) -> Result<Option<String>, Distrust> {
    match symlinks {
        Symlinks::Refuse => Err(Distrust::Symlink(link.to_path_buf())),
        Symlinks::Follow => Ok(Some(format!("{} is a symbolic link", link.display()))),
    }
}

/// Resolves `path`; fails if the target is outside of the approved roots.
pub(super) fn inside_roots(path: &Path, roots: &[PathBuf]) -> Result<PathBuf, Distrust> {
    let target = fs::canonicalize(path).map_err(|error| unreadable(path, error))?;
    if roots.iter().any(|root| target.starts_with(root)) {
        return Ok(target);
    }
    Err(Distrust::Escape {
        path: path.to_path_buf(),
        target,
        allowed: "every plugin root".to_owned(),
    })
}

pub(super) fn is_writable_by_all(path: &Path) -> Result<bool, Distrust> {
    Ok(mode(path)? & WRITE_BY_ALL != 0)
}

/// Whether only the owner of an entry may remove or rename it.
pub(super) fn is_sticky(path: &Path) -> Result<bool, Distrust> {
    Ok(mode(path)? & STICKY != 0)
}

fn mode(path: &Path) -> Result<u32, Distrust> {
    let found = fs::metadata(path).map_err(|error| unreadable(path, error))?;
    Ok(found.permissions().mode())
}

pub(super) fn is_symlink(path: &Path) -> Result<bool, Distrust> {
    let found = fs::symlink_metadata(path).map_err(|error| unreadable(path, error))?;
    Ok(found.is_symlink())
}

fn unreadable(path: &Path, error: io::Error) -> Distrust {
    Distrust::Unreadable {
        path: path.to_path_buf(),
        error,
    }
}
