//! Restricts the files that this process can reach, with Landlock.
//!
//! Invariant: without `best_effort` either all of [`REQUIRED`] is enforced or nothing runs.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    PathFdError, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    Scope,
};

use super::guarded::{GuardedPaths, Right, real};
use super::{DEVICES, ETC, ETC_PYTHON, Error, SYSTEM, Sandbox, is_out_of_resources};

/// The first version that also controls truncation.
const REQUIRED: ABI = ABI::V3;
/// Additional rights where the kernel supports them: device control.
const WELCOME: ABI = ABI::V5;

/// Private, because a plugin's temporary files are its own.
const OWN_DIRECTORY: u32 = 0o700;

/// Returns the temporary directory if it is not the default one.
pub(super) fn restrict(sandbox: &Sandbox) -> Result<Option<PathBuf>, Error> {
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
        // A plugin must not signal the server either, nor connect to abstract sockets.
        .scope(Scope::Signal | Scope::AbstractUnixSocket)
        .map_err(unsupported)?;
    let mut ruleset = ruleset.create().map_err(unsupported)?;
    let guarded = sandbox.guarded.resolved();

    let read = AccessFs::from_read(WELCOME);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    for (paths, access) in [(SYSTEM, read), (ETC, read), (DEVICES, device)] {
        for path in paths.iter().map(Path::new).filter(|path| path.exists()) {
            ruleset = allow_except_guarded(ruleset, path, access, &guarded)?;
        }
    }
    for entry in std::fs::read_dir("/etc").into_iter().flatten().flatten() {
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(ETC_PYTHON.as_bytes())
        {
            ruleset = allow_except_guarded(ruleset, &entry.path(), read, &guarded)?;
        }
    }
    let write = AccessFs::from_all(WELCOME);
    for (paths, access, right) in [
        (&sandbox.read, read, Right::Read),
        (&sandbox.write, write, Right::Write),
    ] {
        for path in paths {
            if let Some(opened) = guarded.opened_by(&real(path), right) {
                return Err(Error::Guarded {
                    path: path.clone(),
                    guarded: opened.to_path_buf(),
                });
            }
            ruleset = allow(ruleset, path, access)?;
        }
    }
    let own = match &sandbox.temporary {
        Some(usual) => temporary(usual, &guarded)?,
        None => None,
    };
    if let Some(path) = own.as_ref().or(sandbox.temporary.as_ref()) {
        ruleset = allow(ruleset, path, write)?;
    }
    ruleset.restrict_self().map_err(unsupported)?;
    Ok(own)
}

/// The plugin's own directory, if the default one would open a guarded path.
fn temporary(usual: &Path, guarded: &GuardedPaths) -> Result<Option<PathBuf>, Error> {
    let Some(opened) = guarded.opened_by(&real(usual), Right::Write) else {
        return Ok(None);
    };
    let Some(own) = &guarded.spare else {
        return Err(Error::Guarded {
            path: usual.to_path_buf(),
            guarded: opened.to_path_buf(),
        });
    };
    let failed = |error| Error::NoTemporary {
        path: own.clone(),
        error,
    };
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(OWN_DIRECTORY).create(own);
    made.map_err(failed)?;
    fs::set_permissions(own, Permissions::from_mode(OWN_DIRECTORY)).map_err(failed)?;
    Ok(Some(own.clone()))
}

/// Like [`allow`], but if a hidden path lies below, its siblings are opened instead, entry by entry.
fn allow_except_guarded(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
    guarded: &GuardedPaths,
) -> Result<RulesetCreated, Error> {
    let Some(opened) = guarded.opened_by(&real(path), Right::Read) else {
        return allow(ruleset, path, access);
    };
    let mut ruleset = ruleset;
    if real(path).starts_with(opened) {
        return Ok(ruleset);
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // A right to a link would be a right to its target, which lies elsewhere.
        if entry.file_type().is_ok_and(|found| !found.is_symlink()) {
            ruleset = allow_except_guarded(ruleset, &entry.path(), access, guarded)?;
        }
    }
    Ok(ruleset)
}

fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Error> {
    let unopened = |error: String| Error::NoPath {
        path: path.to_path_buf(),
        error,
    };
    let opened = PathFd::new(path).map_err(|error| {
        if let PathFdError::OpenCall { source, .. } = &error
            && is_out_of_resources(source)
        {
            return Error::NoResources(error.to_string());
        }
        unopened(error.to_string())
    })?;
    // The kernel refuses directory rights for a file.
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(WELCOME)
    };
    let rule = PathBeneath::new(opened, access);
    let added = ruleset.add_rule(rule);
    added.map_err(|error| unopened(error.to_string()))
}
