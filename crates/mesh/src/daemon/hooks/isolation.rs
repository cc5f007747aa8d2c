//! What a hook may reach: the network and the files.
//!
//! Best effort, as the protocol says: a policy that this system cannot enforce is reported, and the hook runs without it.
//! Linux has `unshare` for an empty network and `bwrap` for a sandbox, macOS `sandbox-exec`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::config::{FsPolicy, HookSandbox, HookSettings, NetworkPolicy};

/// The programs of this system. Tests replace them.
#[derive(Debug, Clone)]
pub struct IsolationPrograms {
    pub unshare: PathBuf,
    pub bubblewrap: PathBuf,
    pub sandbox_exec: PathBuf,
}

impl Default for IsolationPrograms {
    fn default() -> Self {
        Self {
            unshare: PathBuf::from("/usr/bin/unshare"),
            bubblewrap: PathBuf::from("/usr/bin/bwrap"),
            sandbox_exec: PathBuf::from("/usr/bin/sandbox-exec"),
        }
    }
}

/// How to start a script, and what could not be enforced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Isolated {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// Words for the log and the metric.
    pub(super) unenforceable: Vec<&'static str>,
}

/// What a sandbox shows of the files of the daemon.
#[derive(Debug, Clone)]
pub(super) struct SandboxPaths {
    /// Their content is hidden.
    pub(super) secrets: Vec<PathBuf>,
    /// These are readable, though they are in a hidden folder.
    pub(super) readable: Vec<PathBuf>,
}

/// What works here, tried once each.
#[derive(Debug)]
pub(super) struct Isolation {
    programs: IsolationPrograms,
    paths: SandboxPaths,
    unshare: OnceCell<Option<&'static [&'static str]>>,
    bubblewrap: OnceCell<bool>,
    sandbox_exec: OnceCell<bool>,
}

/// Users other than root need a user namespace first.
const UNSHARE: &[&[&str]] = &[&["--net"], &["--user", "--map-current-user", "--net"]];
/// Nothing is writable but a private `/tmp`; there are no network, no sockets of the session in `/run`, no other processes, no
/// terminal and no `/proc`. [`Isolation::sandboxed`] adds what is hidden of the daemon.
const BUBBLEWRAP: &[&str] = &[
    "--ro-bind",
    "/",
    "/",
    "--tmpfs",
    "/tmp",
    "--tmpfs",
    "/run",
    "--tmpfs",
    "/proc",
    "--dev",
    "/dev",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-pid",
    "--new-session",
    "--die-with-parent",
];
const SANDBOX_EXEC: &str =
    "(version 1)(allow default)(deny network*)(allow network* (remote unix-socket))";

impl Isolation {
    pub(super) fn new(programs: IsolationPrograms, paths: SandboxPaths) -> Self {
        Self {
            programs,
            paths,
            unshare: OnceCell::new(),
            bubblewrap: OnceCell::new(),
            sandbox_exec: OnceCell::new(),
        }
    }

    /// The options of the sandbox.
    fn sandboxed(&self) -> Vec<String> {
        let mut options: Vec<String> = BUBBLEWRAP.iter().map(|&one| one.to_owned()).collect();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        // A folder that is not there, as with keys in memory, has no secrets.
        for path in self.paths.secrets.iter().filter(|path| path.is_dir()) {
            options.extend(["--tmpfs".to_owned(), text(path)]);
        }
        for path in &self.paths.readable {
            options.extend(["--ro-bind-try".to_owned(), text(path), text(path)]);
        }
        options
    }

    pub(super) async fn command(&self, script: &Path, hook: &HookSettings) -> Isolated {
        let mut unenforceable = Vec::new();
        let wants_sandbox = hook.sandbox.is_some() || hook.fs_policy == Some(FsPolicy::Sandbox);
        if wants_sandbox {
            if let Some((program, arguments)) = self.sandbox(script, hook).await {
                return Isolated {
                    program,
                    arguments,
                    unenforceable,
                };
            }
            unenforceable.push("sandbox");
        } else if hook.fs_policy == Some(FsPolicy::Readonly) {
            unenforceable.push("fs_policy");
        }
        let denies_network = match hook.network_policy {
            NetworkPolicy::Deny => true,
            NetworkPolicy::Allow => false,
            NetworkPolicy::Allowlist if hook.network_allowlist.is_empty() => true,
            NetworkPolicy::Allowlist => {
                unenforceable.push("network_allowlist");
                false
            }
        };
        let mut isolated = Isolated {
            program: script.to_owned(),
            arguments: Vec::new(),
            unenforceable,
        };
        if denies_network {
            match self.without_network(script).await {
                Some((program, arguments)) => {
                    isolated.program = program;
                    isolated.arguments = arguments;
                }
                None => isolated.unenforceable.push("network"),
            }
        }
        isolated
    }

    async fn sandbox(&self, script: &Path, hook: &HookSettings) -> Option<(PathBuf, Vec<String>)> {
        if hook.sandbox == Some(HookSandbox::SandboxExec) {
            return self.sandbox_exec(script).await;
        }
        let program = &self.programs.bubblewrap;
        let works = self
            .bubblewrap
            .get_or_init(|| async { works(program, &self.sandboxed()).await })
            .await;
        works.then(|| (program.clone(), arguments(&self.sandboxed(), script)))
    }

    async fn sandbox_exec(&self, script: &Path) -> Option<(PathBuf, Vec<String>)> {
        let program = &self.programs.sandbox_exec;
        let profile = &["-p", SANDBOX_EXEC];
        let works = self
            .sandbox_exec
            .get_or_init(|| works(program, profile))
            .await;
        works.then(|| (program.clone(), arguments(profile, script)))
    }

    async fn without_network(&self, script: &Path) -> Option<(PathBuf, Vec<String>)> {
        let program = &self.programs.unshare;
        let found = self.unshare.get_or_init(|| async {
            for &options in UNSHARE {
                if works(program, options).await {
                    return Some(options);
                }
            }
            None
        });
        if let Some(options) = found.await {
            return Some((program.clone(), arguments(options, script)));
        }
        if cfg!(target_os = "macos") {
            return self.sandbox_exec(script).await;
        }
        None
    }
}

fn arguments(options: &[impl AsRef<str>], script: &Path) -> Vec<String> {
    let options = options.iter().map(|option| option.as_ref().to_owned());
    options
        .chain([script.to_string_lossy().into_owned()])
        .collect()
}

/// Whether the program starts another one with these options.
async fn works(program: &Path, options: &[impl AsRef<str>]) -> bool {
    let status = Command::new(program)
        .args(options.iter().map(AsRef::as_ref))
        .arg("/bin/true")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status();
    status.await.is_ok_and(|status| status.success())
}
