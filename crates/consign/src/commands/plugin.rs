//! Commands for plugins: list, run, create and check.

mod init;
mod list;
mod run;
mod validate;

use clap::Subcommand;

use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::Exit;

pub(crate) use list::PluginListArgs;
pub(crate) use run::{PayloadArgs, PluginRunArgs, start};

#[derive(Debug, Subcommand)]
pub(crate) enum PluginSubcommand {
    /// List the plugins that can be run
    List(list::PluginListArgs),
    /// Show a plugin and its commands
    Show(list::PluginShowArgs),
    /// Run a command of a plugin
    Run(run::PluginRunArgs),
    /// Create a new plugin that works immediately
    Init(init::Args),
    /// Report all problems of the plugin in a directory
    Validate(validate::Args),
}

impl PluginSubcommand {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run(),
            Self::Show(args) => args.run(),
            Self::Run(args) => args.run(),
            Self::Init(args) => args.run(),
            Self::Validate(args) => args.run(),
        }
    }

    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::List(args) => &args.service.tree,
            Self::Show(args) => &args.service.tree,
            Self::Run(args) => &args.service.tree,
            Self::Init(args) => &args.tree,
            Self::Validate(args) => &args.tree,
        }
    }
}
