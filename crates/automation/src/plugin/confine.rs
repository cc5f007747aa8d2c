//! Less for a plugin than the server itself may have: resource limits, and the files it can reach.
//!
//! A process is confined by itself before it becomes the plugin: the server starts a launcher, which reads a [`Confinement`]
//! from its arguments, gives up its rights with [`exec`] and turns into the entrypoint. What was given up cannot be got back,
//! by no child either. A plugin without a confinement is started without a launcher.
//!
//! The network is not confined, nor are sockets in the file system, and `processes` counts all processes of the user, as the system
//! does. What of the service's own files no sandbox opens is said in [`GuardedPaths`].

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

/// Where programs and what they need to start lie. Those that a system does not have are left out.
const SYSTEM: &[&str] = &["/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt"];
/// What programs need of `/etc`, which is otherwise where services keep their configurations and secrets, ours too.
const ETC: &[&str] = &[
    // To start.
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/alternatives",
    "/etc/perl",
    // To find hosts and users.
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
    // To trust others.
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    // To know where and when they are.
    "/etc/debian_version",
    "/etc/localtime",
    "/etc/locale.alias",
    "/etc/machine-id",
    "/etc/os-release",
    "/etc/timezone",
    // To deal with files.
    "/etc/fonts",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/terminfo",
];
/// The start of Python reads a file in a directory that is named after its version.
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
/// Between the signal that says that the processor time is used up, and the kill.
const CPU_GRACE_SECONDS: u64 = 1;
const EXIT_CONFIG: u8 = 78;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    pub limits: ResourceLimits,
    pub sandbox: Option<Sandbox>,
}

/// Of each process of the plugin. What is absent is as it is for the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Of addresses, used or not; garbage collectors reserve far more than they use.
    pub memory_bytes: Option<u64>,
    /// Of processor time, rounded up to whole seconds.
    pub cpu: Option<Duration>,
    pub open_files: Option<u64>,
    /// Of the whole user. The system does not hold root to it.
    pub processes: Option<u64>,
    pub file_bytes: Option<u64>,
}

/// The files that can be reached beyond the system's own and the plugin's own, which can be read and executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Absolute; a directory stands for all below it. They may be executed too.
    pub read: Vec<PathBuf>,
    /// These may be read as well.
    pub write: Vec<PathBuf>,
    /// On a kernel that cannot do all of it, run with what it can instead of not at all.
    pub best_effort: bool,
    /// Writable too, unless that opens what is guarded; then the plugin gets one of its own. No key of a configuration.
    pub temporary: Option<PathBuf>,
    /// No key of a configuration either: the service says it.
    pub guarded: GuardedPaths,
}

impl Confinement {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The launcher with this confinement for the plugin in `directory`; none if there is nothing to confine.
    ///
    /// `base` starts a program that calls [`exec`] with the arguments behind those of `base`. What is `guarded` no sandbox opens.
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

/// Why a plugin was not started. Nothing of it has run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the launcher was called wrongly: {0}")]
    Usage(String),
    #[error(
        "this kernel cannot confine files as `sandbox` asks for (Linux 6.2 or later, with Landlock on, can): {0}; \
         use such a kernel, remove `sandbox`, or set `sandbox.best_effort: true` to run with less"
    )]
    Unsupported(String),
    #[error(
        "`sandbox` names {path}, which cannot be opened: {error}; create it or correct the path"
    )]
    NoPath { path: PathBuf, error: String },
    #[error(
        "the sandbox would open {path}, and with it {guarded}, which belongs to the service itself: its keys, ledger, configuration \
         or programs; name a narrower path in `sandbox`, or move what the plugin needs (or the plugin) elsewhere"
    )]
    Guarded { path: PathBuf, guarded: PathBuf },
    #[error("no temporary directory of its own could be made at {path}: {error}")]
    NoTemporary { path: PathBuf, error: io::Error },
    /// Another attempt may find what this one lacked.
    #[error("the system has no room to confine the plugin: {0}")]
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
    /// What the launcher prints in place of the plugin, so that the failure reaches the job as every other does.
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

/// Confines this process and becomes the plugin that `arguments` name. Returns only if that fails; then end the process, which
/// may be confined by half.
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
    // Before the limits: with little memory left even this might fail.
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
        // Memory comes last, for what is done here needs some.
        for (name, resource, value, grace) in [
            ("cpu", Resource::Cpu, cpu_seconds, CPU_GRACE_SECONDS),
            ("open_files", Resource::Nofile, self.open_files, 0),
            ("processes", Resource::Nproc, self.processes, 0),
            ("file_size", Resource::Fsize, self.file_bytes, 0),
            ("memory", Resource::As, self.memory_bytes, 0),
        ] {
            let Some(value) = value else { continue };
            // What the server was given itself cannot be exceeded.
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
