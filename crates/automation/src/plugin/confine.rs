//! Confines a plugin: resource limits, and the files that it can reach.
//!
//! A process confines itself before it becomes the plugin: the server starts a launcher, which reads a [`Confinement`] from its
//! arguments, drops its rights with [`exec`] and executes the entrypoint. Neither the process nor its children can regain a
//! dropped right. A plugin without a confinement is started without a launcher.
//!
//! Network access and sockets in the file system are not confined, and `processes` counts all processes of the user, as the
//! kernel does. [`GuardedPaths`] lists the files of the service that no sandbox opens.

mod arguments;
mod guarded;
mod landlocked;

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use super::environment::PluginVariables;
use super::run::{Launcher, is_out_of_resources, why_not_started};

pub use guarded::GuardedPaths;

/// Directories of programs and their libraries. Those that do not exist are skipped.
const SYSTEM: &[&str] = &["/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt"];
/// The parts of `/etc` that programs need. The rest stays closed, because services keep configurations and secrets there.
const ETC: &[&str] = &[
    // To start.
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/alternatives",
    "/etc/perl",
    // To resolve hosts and users.
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    // To verify certificates.
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    // For time zone, locale and system identity.
    "/etc/debian_version",
    "/etc/localtime",
    "/etc/locale.alias",
    "/etc/machine-id",
    "/etc/os-release",
    "/etc/timezone",
    // For file types, fonts and terminals.
    "/etc/fonts",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/terminfo",
];
/// Python reads a file at start from a directory with this prefix.
const ETC_PYTHON: &str = "python3";
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];
const TEMPORARY: &str = "/tmp";
const TMPDIR: &str = "TMPDIR";
/// The time between the signal for exhausted processor time and the kill.
const CPU_GRACE_SECONDS: u64 = 1;
const EXIT_CONFIG: u8 = 78;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    pub limits: ResourceLimits,
    pub sandbox: Option<Sandbox>,
}

/// Limits of each process of the plugin. An absent limit is that of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Limits the address space, used or not; garbage collectors reserve far more than they use.
    pub memory_bytes: Option<u64>,
    /// Limits processor time, rounded up to whole seconds.
    pub cpu: Option<Duration>,
    pub open_files: Option<u64>,
    /// Counts all processes of the user. The kernel does not enforce it for root.
    pub processes: Option<u64>,
    pub file_bytes: Option<u64>,
}

/// The files that a plugin can reach in addition to those of the system and its own, which it can read and execute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Absolute; a directory includes everything below it. Files may be executed too.
    pub read: Vec<PathBuf>,
    /// Writable paths can be read as well.
    pub write: Vec<PathBuf>,
    /// On a kernel without full support, enforce what it can instead of refusing to run.
    pub best_effort: bool,
    /// Writable too, unless that would open a guarded path; then the plugin gets its own directory. Not a configuration key.
    pub temporary: Option<PathBuf>,
    /// Not a configuration key: the service sets it.
    pub guarded: GuardedPaths,
}

impl Confinement {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The launcher with this confinement for the plugin in `directory`; `None` if there is nothing to confine.
    ///
    /// `base` starts a program that calls [`exec`] with the arguments after those of `base`. No sandbox opens `guarded`.
    pub fn launcher(
        &self,
        base: &Launcher,
        directory: &Path,
        environment: &PluginVariables,
        guarded: &GuardedPaths,
    ) -> Option<Launcher> {
        if self.is_empty() {
            return None;
        }
        let mut confinement = self.clone();
        if let Some(sandbox) = &mut confinement.sandbox {
            let temporary = environment.get(std::ffi::OsStr::new(TMPDIR));
            let temporary = temporary.map_or_else(|| PathBuf::from(TEMPORARY), PathBuf::from);
            sandbox.read.push(directory.to_path_buf());
            sandbox.temporary = Some(temporary);
            sandbox.guarded = guarded.clone();
        }
        let mut launcher = base.clone();
        launcher.arguments.extend(confinement.to_arguments());
        Some(launcher)
    }
}

/// Why a plugin was not started. None of its code has run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid arguments for the launcher: {0}")]
    Usage(String),
    #[error(
        "this kernel does not support the configured `sandbox` (Linux 6.2 or later with Landlock does): {0}; \
         use such a kernel, remove `sandbox`, or set `sandbox.best_effort: true` to run with less protection"
    )]
    Unsupported(String),
    #[error(
        "`sandbox` names {path}, which cannot be opened: {error}; create it or correct the path"
    )]
    NoPath { path: PathBuf, error: String },
    #[error(
        "the sandbox would open {path}, and with it {guarded}, which belongs to the service itself: its keys, ledger, configuration \
         or programs; name a narrower path in `sandbox`, or move the files of the plugin"
    )]
    Guarded { path: PathBuf, guarded: PathBuf },
    #[error("the temporary directory {path} cannot be created: {error}")]
    NoTemporary { path: PathBuf, error: io::Error },
    /// A later attempt may succeed.
    #[error("the system has no resources to confine the plugin: {0}")]
    NoResources(String),
    #[error("the limit of {name} could not be set to {value}: {error}")]
    Limit {
        name: &'static str,
        value: u64,
        error: io::Error,
    },
    #[error("{0}")]
    NotStarted(String),
}

impl Error {
    /// The response that the launcher prints in place of the plugin, so that the failure is reported like any other.
    pub fn answer(&self) -> String {
        json!({"status": "error", "error": self.to_string(), "retry": self.is_retryable()})
            .to_string()
    }

    pub fn exit_code(&self) -> u8 {
        if self.is_retryable() { 1 } else { EXIT_CONFIG }
    }

    fn is_retryable(&self) -> bool {
        match self {
            Self::NotStarted(_) | Self::NoResources(_) | Self::NoTemporary { .. } => true,
            Self::Usage(_)
            | Self::Unsupported(_)
            | Self::NoPath { .. }
            | Self::Guarded { .. }
            | Self::Limit { .. } => false,
        }
    }
}

/// Confines this process and executes the plugin that `arguments` name. Returns only on failure; the caller must then exit,
/// because the process may be partly confined.
pub fn exec(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Error {
    match confined(arguments) {
        Ok(mut command) => {
            let error = command.exec();
            let entrypoint = Path::new(command.get_program());
            Error::NotStarted(why_not_started(entrypoint, &error))
        }
        Err(error) => error,
    }
}

fn confined(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Command, Error> {
    let (confinement, entrypoint) = Confinement::from_arguments(arguments)?;
    // Before the limits: with little memory left, this allocation might fail.
    let mut command = Command::new(entrypoint);
    if let Some(sandbox) = &confinement.sandbox
        && let Some(temporary) = landlocked::restrict(sandbox)?
    {
        command.env(TMPDIR, temporary);
    }
    confinement.limits.apply()?;
    Ok(command)
}

impl ResourceLimits {
    fn apply(&self) -> Result<(), Error> {
        let cpu_seconds = self.cpu.map(|cpu| whole_seconds(cpu).max(1));
        // Memory comes last, because this code needs some.
        for (name, resource, value, grace) in [
            ("cpu", Resource::Cpu, cpu_seconds, CPU_GRACE_SECONDS),
            ("open_files", Resource::Nofile, self.open_files, 0),
            ("processes", Resource::Nproc, self.processes, 0),
            ("file_size", Resource::Fsize, self.file_bytes, 0),
            ("memory", Resource::As, self.memory_bytes, 0),
        ] {
            let Some(value) = value else { continue };
            // A limit cannot exceed that of the server.
            let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
            let limit = Rlimit {
                current: Some(value.min(most)),
                maximum: Some(value.saturating_add(grace).min(most)),
            };
            setrlimit(resource, limit).map_err(|error| Error::Limit {
                name,
                value,
                error: error.into(),
            })?;
        }
        Ok(())
    }
}

fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
