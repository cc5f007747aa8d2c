//! The configuration: find, read, merge, validate and seal.
//!
//! All input comes as values: variables, home directory and processor count in an [`Environment`], time as an argument. Problems
//! are collected: [`load`] reports all of them at once, each with file, line and fix. Manifests, schedules and pipelines are
//! validated elsewhere.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

mod confinement;
pub mod edit;
mod effective;
mod fields;
mod files;
mod find;
mod get;
mod integrity;
pub(crate) mod intents;
mod interpolate;
mod merge;
mod mesh;
mod messages;
pub mod model;
pub mod node;
mod plugins;
mod problem;
mod read;
mod redact;
mod registry;
mod seal;
mod sources;
#[cfg(test)]
mod tests;
mod tokens;
mod yaml;

pub use find::{Environment, FILE, FindError, find};
pub use get::{get, pick};
pub use integrity::{SealChange, SealPlan, Tier};
pub use model::{Config, Strictness};
pub use node::ConfigNode;
pub use problem::{ConfigProblem, ConfigProblems, Severity, SourcePosition};
pub use redact::{MASK, masked};
pub use registry::{Scopes, TokenHolder, TokenRegistry};
pub use seal::{ConfigSeal, Fingerprint};
pub(crate) use sources::Drafts;
pub use sources::SourceFile;
use sources::Sources;

/// Prefix of the placeholder for a variable that is not set.
pub const STAND_IN: &str = "unset_variable_";

/// How the seal is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealCheck {
    /// Not at all: for reading a tree that is about to be sealed.
    No,
    /// As the configuration itself requires: at the start.
    AsConfigured,
    /// As the running configuration requires: a new one must not lower the bar for itself.
    AsRunning(Strictness),
}

/// The configuration, unless a problem is an error, and all problems.
#[derive(Debug)]
pub struct LoadedConfig {
    pub config: Option<Config>,
    pub problems: Vec<ConfigProblem>,
    /// An error came from a seal; such a start ends with its own exit code.
    pub integrity_failed: bool,
}

/// Loads the configuration whose root file is `path`, as returned by [`find()`].
pub fn load(path: &Path, environment: &Environment, verify: SealCheck) -> LoadedConfig {
    let checked = check(path, environment, verify, &Drafts::new());
    let sound = !checked.problems.has_errors();
    LoadedConfig {
        config: checked.config.filter(|_| sound),
        problems: checked.problems.into_vec(),
        integrity_failed: checked.integrity_failed,
    }
}

/// A configuration that may still have errors, so that more of them can be found.
pub(crate) struct CheckedConfig {
    /// `None` only if a file could not be read.
    pub config: Option<Config>,
    pub problems: ConfigProblems,
    pub integrity_failed: bool,
    /// The strictness for all further checks.
    pub strictness: Strictness,
}

pub(crate) fn check(
    path: &Path,
    environment: &Environment,
    verify: SealCheck,
    drafts: &Drafts,
) -> CheckedConfig {
    let mut sources = sources::gather(path, environment, drafts);
    if sources.problems.has_errors() {
        return unreadable(path, sources, verify);
    }
    let report = RefCell::new(std::mem::take(&mut sources.problems));
    let config = read::read(path, sources, environment, drafts, &report);
    let own = config.service.strictness;
    let strictness_for_seal = match verify {
        SealCheck::AsRunning(running) => running,
        SealCheck::No | SealCheck::AsConfigured => own,
    };
    // A configuration that is stricter than the running one would not start the next time.
    let strictness = Strictness {
        drift: strictness_for_seal.drift,
        validation: strictness_for_seal.validation || own.validation,
    };
    let mut problems = report.into_inner();
    if strictness.validation {
        problems.promote_warnings();
    }
    let mut integrity_failed = false;
    if verify != SealCheck::No {
        let scope_files = scope_files(&config);
        let drift = integrity::verify(
            &config.dir,
            &config.files,
            &scope_files,
            strictness_for_seal.drift,
        );
        integrity_failed = drift.has_errors();
        problems.extend(drift);
    }
    CheckedConfig {
        config: Some(config),
        problems,
        integrity_failed,
        strictness,
    }
}

/// A tree with unreadable files is not validated, because most problems would only follow from the missing parts. Its seal is
/// verified.
fn unreadable(path: &Path, sources: Sources, verify: SealCheck) -> CheckedConfig {
    let strictness = match verify {
        SealCheck::AsRunning(running) => running,
        SealCheck::No | SealCheck::AsConfigured => Strictness::default(),
    };
    let mut problems = sources.problems;
    let mut integrity_failed = false;
    if verify != SealCheck::No {
        let dir = path.parent().unwrap_or(path);
        let drift = integrity::verify(dir, &sources.files, &[], strictness.drift);
        integrity_failed = drift.has_errors();
        problems.extend(drift);
    }
    CheckedConfig {
        config: None,
        problems,
        integrity_failed,
        strictness,
    }
}

/// Reads the configuration even if it has errors. Fails only if a file cannot be read.
pub fn peek(path: &Path, environment: &Environment) -> Result<Config, Vec<ConfigProblem>> {
    let checked = check(path, environment, SealCheck::No, &Drafts::new());
    checked.config.ok_or_else(|| checked.problems.into_vec())
}

/// The environment with a placeholder for every variable that the configuration at `path` uses and that is not set. It is for
/// reading what needs no secret; a program that is loaded with it must not run.
#[must_use]
pub fn with_stand_ins(path: &Path, environment: &Environment) -> Environment {
    let mut environment = environment.clone();
    loop {
        let unset = sources::gather(path, &environment, &Drafts::new()).unset;
        if unset.is_empty() {
            return environment;
        }
        // A file that could not be read without them may use more variables in its includes.
        let texts = unset.into_iter().map(|name| {
            let text = format!("{STAND_IN}{name}");
            (name, text)
        });
        environment.variables.extend(texts);
    }
}

/// Seals the files again after an edit, and vouches for no plugin that was not sealed before.
pub fn reseal(
    path: &Path,
    environment: &Environment,
    now: Timestamp,
) -> Result<SealPlan, LockError> {
    let dir = path.parent().unwrap_or(path);
    let known = ConfigSeal::read(dir).ok().flatten();
    let fingerprints = known.map(|seal| seal.plugin_fingerprints);
    lock(path, environment, &fingerprints.unwrap_or_default(), now)
}

/// Plans what sealing the configuration at `path` would change; [`SealPlan::apply`] does it.
///
/// Fails only if a file cannot be read: a tree that is not valid yet may be sealed while it is being repaired.
pub fn lock(
    path: &Path,
    environment: &Environment,
    fingerprints: &[Fingerprint],
    now: Timestamp,
) -> Result<SealPlan, LockError> {
    let drafts = Drafts::new();
    let mut sources = sources::gather(path, environment, &drafts);
    let problems = std::mem::take(&mut sources.problems);
    if problems.has_errors() {
        return Err(LockError::Unreadable(problems.into_vec()));
    }
    let report = RefCell::new(problems);
    let config = read::read(path, sources, environment, &drafts, &report);
    let scope_files = scope_files(&config);
    let plan = integrity::plan(&config.dir, &config.files, &scope_files, fingerprints, now)?;
    Ok(plan)
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("the configuration cannot be read, so it cannot be sealed")]
    Unreadable(Vec<ConfigProblem>),
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn scope_files(config: &Config) -> Vec<PathBuf> {
    let tokens = config.tokens.iter();
    tokens
        .filter_map(|token| token.scopes_file.clone())
        .collect()
}
