//! `system start`

use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::Exit;
use crate::serve::begin::BeginArgs;
use crate::{serve, system};

const AFTER_HELP: &str = "\
Runs until SIGTERM or SIGINT and then waits up to 30 seconds for running jobs; SIGHUP
reloads the configuration. The log goes to standard output. Only one service at a time
can use a state directory (that of `state.path`): ductile.lock contains its process id.

Example:
  consign automation config init ~/.config/ductile && consign system start";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,

    #[command(flatten)]
    begin: BeginArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let tree = self.tree.find()?;
        // Jobs run in their own processes, so this process needs few threads.
        serve::runtime(None)?.block_on(Box::pin(system::run(tree, self.begin)))
    }
}
