//! Run commands for claimed intents.

mod run;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerSubcommand {
    /// Run a command for each intent of a goal
    #[command(after_long_help = run::AFTER_HELP)]
    Run(Box<run::Args>),
}

impl WorkerSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Run(args) => args.run().await,
        }
    }
}
