//! `consign worker run --goal G -- CMD…`

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use consign_kernel::limits::{CAPABILITIES_MAX, LEASE_MAX_S, LEASE_MIN_S, WORKER_ID_CHARS_MAX};

use crate::duration_arg::DurationArg;
use crate::failure::{Exit, Failure};
use crate::link::LinkArgs;
use crate::worker::{WorkerPool, WorkerSettings};
use crate::{host_name, out, render};

pub(super) const AFTER_HELP: &str = "\
The command gets the payload on standard input, and these variables:
  CONSIGN_INTENT_ID, CONSIGN_GOAL, CONSIGN_NAMESPACE, CONSIGN_ATTEMPT,
  CONSIGN_WORKER_ID, and TRACEPARENT if the publisher sent a trace context

What becomes of the intent:
  exit 0          fulfilled; standard output is the result, as JSON if it is
                  JSON and otherwise as text, up to 7168 bytes
  exit 78         dead: no attempt can succeed
  another status  failed, with the end of standard error as its reason; it is
                  tried again while attempts are left
  a signal        failed

The lease is extended while the command runs. Processes that the command leaves
behind are killed. The first SIGINT or SIGTERM ends the claims and waits for
running commands, the second one kills them.

Examples:
  consign worker run --goal resize -- ./resize.sh
  consign worker run --goal mail --concurrency 8 -- python3 send_mail.py
  consign worker run --goal report --once -- sh -c 'jq -r .name | tee report.txt'";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kind of work
    #[arg(long)]
    goal: String,

    /// Namespace [server default: default]
    #[arg(long, short)]
    namespace: Option<String>,

    /// Commands that run at the same time
    #[arg(
        long,
        short = 'c',
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    concurrency: u32,

    /// A capability of this worker; may be repeated
    #[arg(long = "capability", value_name = "WORD", value_delimiter = ',')]
    capabilities: Vec<String>,

    /// Id of this worker, recorded with each intent [default: host name and process id]
    #[arg(long, value_name = "ID")]
    worker_id: Option<String>,

    /// Length of a lease, 10s to 1h; it is extended when a third of it is over
    #[arg(long, value_name = "TIME", default_value = "60s")]
    lease: DurationArg,

    /// How long running commands may go on after the first signal
    #[arg(long, value_name = "TIME", default_value = "30s")]
    grace: DurationArg,

    /// End after one intent: 0 if it is fulfilled, 1 if it failed, 3 if there is none
    #[arg(long)]
    once: bool,

    /// Print a line of JSON for each intent that has ended
    #[arg(long)]
    json: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,

    #[command(flatten)]
    link: LinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let settings = self.settings()?;
        let client = self.link.client()?;
        if !settings.once {
            out::note(&format!(
                "working on {} in namespace {} as {}, {} at a time",
                render::safe(&settings.goal),
                settings.namespace.as_deref().unwrap_or("default"),
                settings.worker_id,
                settings.concurrency
            ));
        }
        WorkerPool::new(client, settings).run().await
    }

    /// Checks before anything is claimed what would make every attempt fail.
    fn settings(&self) -> Result<WorkerSettings, Failure> {
        let lease_s = i64::try_from(self.lease.get().as_secs()).unwrap_or(i64::MAX);
        if !(LEASE_MIN_S..=LEASE_MAX_S).contains(&lease_s) {
            return Err(Failure::usage(format!(
                "the lease is {}; the server allows {LEASE_MIN_S}s to {LEASE_MAX_S}s",
                self.lease
            )));
        }
        if self.capabilities.len() > CAPABILITIES_MAX {
            return Err(Failure::usage(format!(
                "at most {CAPABILITIES_MAX} capabilities are allowed"
            )));
        }
        let program = self.command.first().map(OsString::as_os_str);
        let program = program.unwrap_or_default();
        if !can_be_run(program) {
            return Err(Failure::usage(format!(
                "{} is not a program that can be run",
                program.display()
            ))
            .hint("check its path and that it is executable; arguments of the command follow it as separate words"));
        }
        let worker_id = self.worker_id.clone().unwrap_or_else(default_id);
        if worker_id.is_empty() || worker_id.chars().count() > WORKER_ID_CHARS_MAX {
            return Err(Failure::usage(format!(
                "the id of a worker has 1 to {WORKER_ID_CHARS_MAX} characters"
            )));
        }
        Ok(WorkerSettings {
            goal: self.goal.clone(),
            namespace: self.namespace.clone(),
            worker_id,
            capabilities: self.capabilities.clone(),
            concurrency: if self.once { 1 } else { self.concurrency },
            lease: self.lease.get(),
            grace: self.grace.get(),
            once: self.once,
            json: self.json,
            command: self.command.clone(),
        })
    }
}

/// As the system looks for a program: a name without a slash in the directories of `PATH`.
fn can_be_run(program: &OsStr) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return is_executable(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    !program.is_empty()
        && std::env::split_paths(&path).any(|folder| is_executable(&folder.join(program)))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Tells the workers of one key apart.
fn default_id() -> String {
    let host = host_name::read().unwrap_or_default();
    let allowed = |letter: &char| letter.is_ascii_alphanumeric() || "._-".contains(*letter);
    let pid = std::process::id().to_string();
    let room = WORKER_ID_CHARS_MAX - pid.len() - 1;
    let host: String = host.chars().filter(allowed).take(room).collect();
    let host = if host.is_empty() { "worker" } else { &host };
    format!("{host}:{pid}")
}
