//! Agents of a Beam directory.

mod list;
mod register;
mod revoke;
mod rotate;
mod show;

use clap::Subcommand;
use consign_engine::SystemTimes;

use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum AgentSubcommand {
    /// Register an agent; makes its key pair if there is none
    Register(Box<register::Args>),
    /// List agents
    List(Box<list::Args>),
    /// Show an agent and its keys
    Show(Box<show::Args>),
    /// Replace the key pair of an agent; the old key is revoked at once
    Rotate(Box<rotate::Args>),
    /// Revoke a key of an agent that is not its current one
    Revoke(Box<revoke::Args>),
}

impl AgentSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Register(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Show(args) => args.run().await,
            Self::Rotate(args) => args.run().await,
            Self::Revoke(args) => args.run().await,
        }
    }
}

/// The time of a signature.
pub(crate) fn now() -> String {
    let now = SystemTimes::own_wall();
    consign_beam::timestamp::format(now)
}
