//! Encodes a confinement as launcher arguments, and decodes it.
//!
//! Invariant: decoding returns exactly what was encoded; anything else is refused, because a mistake would give a plugin more
//! rights than configured.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Confinement, Error, ResourceLimits, Sandbox, whole_seconds};

const END: &str = "--";

impl Confinement {
    /// The entrypoint follows this argument.
    pub(super) fn to_arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let limits = &self.limits;
        for (name, value) in [
            ("--memory", limits.memory_bytes),
            ("--cpu", limits.cpu.map(whole_seconds)),
            ("--open-files", limits.open_files),
            ("--processes", limits.processes),
            ("--file-size", limits.file_bytes),
        ] {
            if let Some(value) = value {
                arguments.extend([name.into(), value.to_string().into()]);
            }
        }
        if let Some(sandbox) = &self.sandbox {
            arguments.push("--sandbox".into());
            if sandbox.best_effort {
                arguments.push("--best-effort".into());
            }
            let guarded = &sandbox.guarded;
            for (name, paths) in [
                ("--read", &sandbox.read[..]),
                ("--write", &sandbox.write),
                ("--temporary", sandbox.temporary.as_slice()),
                ("--hide", &guarded.hidden),
                ("--keep", &guarded.kept),
                ("--spare", guarded.spare.as_slice()),
            ] {
                for path in paths {
                    arguments.extend([name.into(), path.into()]);
                }
            }
        }
        arguments.push(END.into());
        arguments
    }

    pub(super) fn from_arguments(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<(Self, PathBuf), Error> {
        let mut arguments = arguments.into_iter();
        let mut limits = ResourceLimits::default();
        let mut sandbox = None;
        loop {
            let name = arguments.next().ok_or_else(|| missing(END))?;
            let Some(name) = name.to_str() else {
                return Err(unknown(&name));
            };
            match name {
                END => break,
                "--memory" => limits.memory_bytes = Some(number(&mut arguments, name)?),
                "--cpu" => limits.cpu = Some(Duration::from_secs(number(&mut arguments, name)?)),
                "--open-files" => limits.open_files = Some(number(&mut arguments, name)?),
                "--processes" => limits.processes = Some(number(&mut arguments, name)?),
                "--file-size" => limits.file_bytes = Some(number(&mut arguments, name)?),
                "--sandbox" => sandbox = Some(Sandbox::default()),
                "--best-effort" => inside(&mut sandbox, name)?.best_effort = true,
                "--read" => inside(&mut sandbox, name)?
                    .read
                    .push(path(&mut arguments, name)?),
                "--write" => inside(&mut sandbox, name)?
                    .write
                    .push(path(&mut arguments, name)?),
                "--temporary" => {
                    inside(&mut sandbox, name)?.temporary = Some(path(&mut arguments, name)?);
                }
                "--hide" => inside(&mut sandbox, name)?
                    .guarded
                    .hidden
                    .push(path(&mut arguments, name)?),
                "--keep" => inside(&mut sandbox, name)?
                    .guarded
                    .kept
                    .push(path(&mut arguments, name)?),
                "--spare" => {
                    inside(&mut sandbox, name)?.guarded.spare = Some(path(&mut arguments, name)?);
                }
                other => return Err(unknown(OsStr::new(other))),
            }
        }
        let entrypoint = path(&mut arguments, END)?;
        match arguments.next() {
            Some(more) => Err(unknown(&more)),
            None => Ok((Self { limits, sandbox }, entrypoint)),
        }
    }
}

fn inside<'s>(sandbox: &'s mut Option<Sandbox>, name: &str) -> Result<&'s mut Sandbox, Error> {
    let lacking = || Error::Usage(format!("`{name}` is only valid after `--sandbox`"));
    sandbox.as_mut().ok_or_else(lacking)
}

fn number(arguments: &mut impl Iterator<Item = OsString>, name: &str) -> Result<u64, Error> {
    let value = arguments.next().ok_or_else(|| missing(name))?;
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::Usage(format!("`{name}` needs a whole number")))
}

fn path(arguments: &mut impl Iterator<Item = OsString>, name: &str) -> Result<PathBuf, Error> {
    let value = arguments.next().ok_or_else(|| missing(name))?;
    if Path::new(&value).is_absolute() {
        return Ok(value.into());
    }
    Err(Error::Usage(format!(
        "`{}` must be an absolute path",
        value.display()
    )))
}

fn missing(name: &str) -> Error {
    Error::Usage(format!("`{name}` and what follows it are missing"))
}

fn unknown(argument: &OsStr) -> Error {
    Error::Usage(format!("`{}` is unknown", argument.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::confine::GuardedPaths;

    fn read(arguments: &[&str]) -> Result<(Confinement, PathBuf), Error> {
        Confinement::from_arguments(arguments.iter().map(OsString::from))
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let full = Confinement {
            limits: ResourceLimits {
                memory_bytes: Some(1),
                cpu: Some(Duration::from_secs(2)),
                open_files: Some(3),
                processes: Some(4),
                file_bytes: Some(5),
            },
            sandbox: Some(Sandbox {
                read: vec!["/a".into(), "/--write".into()],
                write: vec!["/b c".into()],
                best_effort: true,
                temporary: Some("/t".into()),
                guarded: GuardedPaths {
                    hidden: vec!["/keys".into(), "/ledger".into()],
                    kept: vec!["/plugins".into()],
                    spare: Some("/spare".into()),
                },
            }),
        };
        let bare = Confinement {
            sandbox: Some(Sandbox::default()),
            ..Confinement::default()
        };
        for confinement in [full, bare, Confinement::default()] {
            let mut arguments = confinement.to_arguments();
            arguments.push("/plugin".into());
            let read = Confinement::from_arguments(arguments).unwrap();
            assert_eq!(read, (confinement, PathBuf::from("/plugin")));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for arguments in [
            &[][..],
            &["--"],
            &["--", "run.sh"],
            &["--", "/run.sh", "more"],
            &["--memory", "--", "/run.sh"],
            &["--memory", "-1", "--", "/run.sh"],
            &["--memroy", "1", "--", "/run.sh"],
            &["--read", "/a", "--", "/run.sh"],
            &["--sandbox", "--read", "a", "--", "/run.sh"],
            &["--sandbox", "/run.sh"],
        ] {
            assert!(read(arguments).is_err(), "{arguments:?}");
        }
    }
}
