//! The automation runtime on the command line. The same commands exist in the binary under the name `ductile`.

mod api;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod request;
pub(crate) mod service_args;

use clap::Subcommand;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum AutomationSubcommand {
    /// Check, seal and change the configuration
    #[command(subcommand)]
    Config(config::ConfigSubcommand),
}

impl AutomationSubcommand {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Config(action) => action.run(),
        }
    }
}
