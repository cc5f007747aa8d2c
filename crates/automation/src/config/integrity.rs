//! Verifies files against their seals, and seals them.
//!
//! Tokens, webhooks and scope files must match or the service does not start; other files cause a warning, or an error in strict
//! mode. The same holds for world-writable files, except that a world-writable seal is always refused. Only [`SealPlan::apply`]
//! writes a seal.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use consign_kernel::plant::{self, Plant};
use jiff::Timestamp;

use super::files;
use super::problem::{ConfigProblems, Severity};
use super::seal::{self, ConfigSeal, Fingerprint};
use super::sources::{self, SourceFile};

const HIGH: [&str; 2] = ["tokens.yaml", "webhooks.yaml"];
/// Covered if they exist in the directory of the configuration, included or not.
const NAMED: [&str; 4] = ["config.yaml", "webhooks.yaml", "tokens.yaml", "routes.yaml"];
const FIX: &str = "review the changes, then run `config lock`";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    Operational,
    HighSecurity,
}

/// A file with the seal that must contain it.
struct Covered {
    seal_dir: PathBuf,
    tier: Tier,
    hash: io::Result<String>,
}

/// Compares all covered files, included or not, with their seals.
pub(super) fn verify(
    dir: &Path,
    read: &[SourceFile],
    scope_files: &[PathBuf],
    drift_fails: bool,
) -> ConfigProblems {
    let covered = covered(dir, read, scope_files);
    let mut problems = ConfigProblems::default();
    let drift = if drift_fails {
        Severity::Error
    } else {
        Severity::Warning
    };
    check_modes(&covered, drift, &mut problems);
    let severity_of = |tier| match tier {
        Tier::HighSecurity if !plant::on(Plant::SealWarns) => Severity::Error,
        Tier::HighSecurity | Tier::Operational => drift,
    };
    for seal_dir in seal_dirs(&covered) {
        let here = covered.iter().filter(|(_, file)| file.seal_dir == seal_dir);
        let seal_path = seal_dir.join(seal::FILE);
        let seal = match ConfigSeal::read(&seal_dir) {
            Ok(Some(seal)) => seal,
            Ok(None) => {
                let high = here.filter(|(_, file)| file.tier == Tier::HighSecurity);
                let high: Vec<_> = high.map(|(path, _)| path.display().to_string()).collect();
                let (severity, message) = match high.as_slice() {
                    [] => (drift, "the configuration is not sealed".to_owned()),
                    high => (
                        Severity::Error,
                        format!("no seal exists for {}", high.join(", ")),
                    ),
                };
                problems.push(severity, &seal_path, 0, message, "run `config lock`");
                continue;
            }
            Err(message) => {
                problems.push(Severity::Error, &seal_path, 0, message, FIX);
                continue;
            }
        };
        for (path, file) in here {
            let message = match (&file.hash, seal.hashes.get(path)) {
                (Err(error), _) => format!("cannot be read for its seal: {error}"),
                (Ok(_), None) => "is not in the seal".to_owned(),
                (Ok(hash), Some(sealed)) if !hash.eq_ignore_ascii_case(sealed) => {
                    "differs from its seal".to_owned()
                }
                (Ok(_), Some(_)) => continue,
            };
            problems.push(severity_of(file.tier), path, 0, message, FIX);
        }
        // A seal may be shared with other configurations, so only missing files of the own directory are reported.
        let gone = seal.hashes.keys().filter(|path| !path.exists());
        for path in gone.filter(|_| seal_dir == dir) {
            let severity = severity_of(tier(dir, path, scope_files));
            problems.push(severity, path, 0, "was sealed and no longer exists", FIX);
        }
    }
    problems
}

/// Reports world-writable files, directories and seals.
fn check_modes(
    covered: &BTreeMap<PathBuf, Covered>,
    drift: Severity,
    problems: &mut ConfigProblems,
) {
    let mut paths = BTreeMap::new();
    for path in covered.keys() {
        paths.insert(path.clone(), drift);
        paths.extend(path.parent().map(|dir| (dir.to_owned(), drift)));
    }
    for dir in seal_dirs(covered) {
        paths.insert(dir.join(seal::FILE), Severity::Error);
    }
    for (path, severity) in paths {
        if files::is_writable_by_all(&path) {
            let fix = "run `chmod o-w` on it";
            problems.push(severity, &path, 0, "is world-writable", fix);
        }
    }
}

/// The seals to write.
#[derive(Debug)]
pub struct SealPlan {
    seals: Vec<(PathBuf, ConfigSeal)>,
    pub changes: Vec<(PathBuf, SealChange)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealChange {
    Added,
    Changed,
    Removed,
    Kept,
}

impl SealPlan {
    /// Writes the seals. Without this call a plan is a dry run.
    pub fn apply(&self) -> io::Result<()> {
        self.seals
            .iter()
            .try_for_each(|(dir, seal)| seal.write(dir))
    }
}

pub(super) fn plan(
    dir: &Path,
    read: &[SourceFile],
    scope_files: &[PathBuf],
    fingerprints: &[Fingerprint],
    now: Timestamp,
) -> io::Result<SealPlan> {
    let covered = covered(dir, read, scope_files);
    let generated_at = format!("{now:.0}");
    let mut plan = SealPlan {
        seals: Vec::new(),
        changes: Vec::new(),
    };
    for seal_dir in seal_dirs(&covered) {
        // A damaged seal must not prevent writing a valid one.
        let known = ConfigSeal::read(&seal_dir).ok().flatten();
        let known = known.map(|seal| seal.hashes).unwrap_or_default();
        let mut seal = ConfigSeal::new(generated_at.clone());
        if seal_dir == dir {
            seal.plugin_fingerprints = fingerprints.to_vec();
        } else {
            // Another configuration may have sealed more files there.
            seal.hashes.clone_from(&known);
        }
        for (path, file) in covered.iter().filter(|(_, file)| file.seal_dir == seal_dir) {
            let hash = match &file.hash {
                Ok(hash) => hash.clone(),
                Err(error) => {
                    let message = format!("cannot read {}: {error}", path.display());
                    return Err(io::Error::new(error.kind(), message));
                }
            };
            seal.hashes.insert(path.clone(), hash);
        }
        plan.changes.extend(changes(&known, &seal.hashes));
        plan.seals.push((seal_dir, seal));
    }
    Ok(plan)
}

fn changes(
    known: &BTreeMap<PathBuf, String>,
    next: &BTreeMap<PathBuf, String>,
) -> Vec<(PathBuf, SealChange)> {
    let paths: BTreeSet<&PathBuf> = known.keys().chain(next.keys()).collect();
    let change = |path| match (known.get(path), next.get(path)) {
        (None, _) => SealChange::Added,
        (Some(_), None) => SealChange::Removed,
        (Some(old), Some(new)) if old == new => SealChange::Kept,
        (Some(_), Some(_)) => SealChange::Changed,
    };
    paths
        .into_iter()
        .map(|path| (path.clone(), change(path)))
        .collect()
}

fn seal_dirs(covered: &BTreeMap<PathBuf, Covered>) -> BTreeSet<PathBuf> {
    covered.values().map(|file| file.seal_dir.clone()).collect()
}

fn covered(dir: &Path, read: &[SourceFile], scope_files: &[PathBuf]) -> BTreeMap<PathBuf, Covered> {
    let mut covered = BTreeMap::new();
    let mut cover = |path: &Path, hash: io::Result<String>| {
        let tier = tier(dir, path, scope_files);
        let own = path.parent().filter(|_| is_high_by_name(path));
        let seal_dir = own.unwrap_or(dir);
        covered.entry(path.to_owned()).or_insert(Covered {
            seal_dir: seal_dir.to_owned(),
            tier,
            hash,
        });
    };
    for source in read {
        cover(&source.path, Ok(source.hash.clone()));
    }
    for path in unincluded_files(dir).iter().chain(scope_files) {
        cover(path, sources::read(path).map(|bytes| sources::hash(&bytes)));
    }
    covered
}

/// The files that a seal covers even if they are not included.
fn unincluded_files(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = NAMED.iter().map(|name| dir.join(name)).collect();
    let listed = |dir: &Path, fits: fn(&str) -> bool| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let fitting = entries.filter(|entry| entry.file_name().to_str().is_some_and(fits));
        fitting.map(|entry| entry.path()).collect()
    };
    paths.extend(listed(dir, |name| {
        name.starts_with("relay-") && has_ending(name, "yaml")
    }));
    paths.extend(listed(&dir.join("scopes"), |name| has_ending(name, "json")));
    paths.retain(|path| path.is_file());
    paths
}

fn has_ending(name: &str, ending: &str) -> bool {
    Path::new(name).extension() == Some(OsStr::new(ending))
}

fn tier(dir: &Path, path: &Path, scope_files: &[PathBuf]) -> Tier {
    let in_scopes = path.parent() == Some(&dir.join("scopes"));
    let is_scope = in_scopes && path.extension() == Some(OsStr::new("json"));
    let named = scope_files.iter().any(|file| file == path);
    if is_high_by_name(path) || is_scope || named {
        Tier::HighSecurity
    } else {
        Tier::Operational
    }
}

fn is_high_by_name(path: &Path) -> bool {
    HIGH.iter()
        .any(|name| path.file_name() == Some(OsStr::new(name)))
}
