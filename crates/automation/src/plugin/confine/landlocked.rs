//! The files that the rest of this process's life can reach, by Landlock.
//!
//! Invariant: without `best_effort` either everything that [`REQUIRED`] knows is enforced or nothing runs.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope,
};

use super::{DEVICES, ETC, ETC_PYTHON, Error, SYSTEM, Sandbox};

/// The first that also forbids to cut off files that may not be written.
const REQUIRED: ABI = ABI::V3;
/// What else is taken where the kernel has it: the control of devices.
const WELCOME: ABI = ABI::V5;

pub(super) fn restrict(sandbox: &Sandbox) -> Result<(), Error> {
    let unsupported = |error: RulesetError| Error::Unsupported(error.to_string());
    let level = if sandbox.best_effort {
        CompatLevel::BestEffort
    } else {
        CompatLevel::HardRequirement
    };
    let ruleset = Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(REQUIRED))
        .map_err(unsupported)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(WELCOME))
        .map_err(unsupported)?
        // A plugin shall not end the server either.
        .scope(Scope::Signal)
        .map_err(unsupported)?;
    let mut ruleset = ruleset.create().map_err(unsupported)?;

    let read = AccessFs::from_read(WELCOME);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    for (paths, access) in [(SYSTEM, read), (ETC, read), (DEVICES, device)] {
        for path in paths.iter().map(Path::new).filter(|path| path.exists()) {
            ruleset = allowed(ruleset, path, access)?;
        }
    }
    for entry in std::fs::read_dir("/etc").into_iter().flatten().flatten() {
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(ETC_PYTHON.as_bytes())
        {
            ruleset = allowed(ruleset, &entry.path(), read)?;
        }
    }
    let write = AccessFs::from_all(WELCOME);
    for (paths, access) in [(&sandbox.read, read), (&sandbox.write, write)] {
        for path in paths {
            ruleset = allowed(ruleset, path, access)?;
        }
    }
    ruleset.restrict_self().map_err(unsupported)?;
    Ok(())
}

fn allowed(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Error> {
    let unopened = |error: String| Error::NoPath {
        path: path.to_path_buf(),
        error,
    };
    let opened = PathFd::new(path).map_err(|error| unopened(error.to_string()))?;
    // A file has no rights of directories, and the kernel refuses to grant them.
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(WELCOME)
    };
    let rule = PathBeneath::new(opened, access);
    let added = ruleset.add_rule(rule);
    added.map_err(|error| unopened(error.to_string()))
}
