//! `system reload`

use std::fmt::Write as _;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::checks::config_check;
use crate::commands::automation::request::{ChangeRequest, block_on, change, print, print_would};
use crate::commands::automation::service_args::ServiceArgs;
use crate::failure::{Exit, Failure};
use crate::system::{START_SERVER_HINT, ServiceClient, StateDir};

const AFTER_HELP: &str = "\
The service responds when the new configuration is active, or with the reason why the
old one stays. If its control socket does not respond, it gets SIGHUP instead; then its
log has the result.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Let the service check the configuration, without a reload
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if let Some(url) = &self.service.api_url {
            let wanted = ChangeRequest {
                look: "/system/status",
                post: "/system/reload",
                body: None,
                what: &format!("reload the configuration of {url}"),
            };
            return change(&self.service, self.dry_run, &wanted, reloaded);
        }
        self.reload_here()
    }

    /// The service checks the configuration, because it has variables that the shell of this command may lack.
    fn reload_here(&self) -> anyhow::Result<Exit> {
        let args = &self.service.tree;
        let tree = args.find()?;
        let state = StateDir::of_tree(&tree)?;
        let Some(pid) = state.service_pid() else {
            let message = "no service runs with this configuration";
            let hint = match state.external_ledger()? {
                Some(_) => START_SERVER_HINT,
                None => "start it with `system start`",
            };
            return Err(Failure::failed(message).hint(hint).into());
        };
        let answer = block_on(async {
            // The lock is held, so a missing socket does not mean that no service runs.
            let Ok(Some(client)) = ServiceClient::connect_running(&tree).await else {
                return Ok(None);
            };
            require_usable(&config_check(&client).await?)?;
            if self.dry_run {
                return Ok(None);
            }
            Ok(Some(client.post("/system/reload", None).await?.body))
        })?;
        if self.dry_run {
            return print_would(args, &format!("reload the service (pid {pid})"));
        }
        match answer {
            Some(answer) => print(args, &answer, reloaded),
            None => print(args, &signalled(pid)?, |_| {
                format!("sent SIGHUP to {pid}; see its log for the result")
            }),
        }
    }
}

/// An invalid configuration ends the command with the same code as a start.
fn require_usable(config: &Value) -> Result<(), Failure> {
    if config["ok"] == true {
        return Ok(());
    }
    let detail = config["detail"].as_str().unwrap_or("it gives no reason");
    let message = format!("the service cannot use the configuration: {detail}");
    Err(Failure::new(Exit::Config, message).hint("see `config check`"))
}

fn signalled(pid: u32) -> anyhow::Result<Value> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let raw = raw.ok_or_else(|| Failure::failed("the process id of the service is unknown"))?;
    kill_process(raw, Signal::HUP)
        .map_err(|error| Failure::failed(format!("SIGHUP cannot be sent to {pid}: {error}")))?;
    Ok(json!({"status": "ok", "pid": pid, "message": "sent SIGHUP"}))
}

fn reloaded(answer: &Value) -> String {
    let names = |key: &str| -> Vec<&str> {
        let names = answer[key].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).collect()
    };
    let mut text = "reloaded".to_owned();
    for (key, words) in [
        ("added", "added"),
        ("removed", "removed"),
        ("left_out", "skipped, their jobs wait"),
    ] {
        if !names(key).is_empty() {
            let _ = write!(text, "; {words}: {}", names(key).join(", "));
        }
    }
    match answer["ended_jobs"].as_u64() {
        None | Some(0) => {}
        Some(ended) => {
            let _ = write!(text, "; cancelled jobs: {ended}");
        }
    }
    if answer["unfinished"] == true {
        text.push_str("; follow-up work failed and will be retried, see the log");
    }
    text
}
