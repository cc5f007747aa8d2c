//! `system reload`

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::commands::automation::ask::{load, print, would};
use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::{Exit, Failure};
use crate::system::StateDir;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Judge the configuration, and tell the service nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl Args {
    /// One that does not hold is refused here already, where somebody reads why.
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let tree = self.tree.find()?;
        let program = load(&tree)?;
        let running = StateDir::of(program.config()).running();
        let pid = running.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let Some(pid) = pid else {
            let message = "no service runs with this configuration";
            return Err(Failure::failed(message)
                .hint("start it with `system start`")
                .into());
        };
        if self.dry_run {
            return would(&self.tree, &format!("send SIGHUP to {pid}"));
        }
        kill_process(pid, Signal::HUP)
            .map_err(|error| Failure::failed(format!("{pid} cannot be told: {error}")))?;
        let told = json!({"status": "ok", "pid": pid.as_raw_nonzero().get()});
        print(&self.tree, &told, |_| {
            format!("told {pid} to reload; its log says what came of it")
        })
    }
}
