//! The configuration of the automation: looked at, judged, sealed and changed, without a server.
//!
//! Invariant: nothing is written before the whole tree was judged as it would be, and with `--json` a failure is one JSON
//! document too.

mod backup;
mod check;
mod init;
mod lock;
mod parts;
mod scope;
mod set;
mod show;
mod token;
pub(crate) mod tree;

use clap::Subcommand;

use crate::failure::{self, Exit};

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Say everything that is wrong with a configuration
    Check(check::Args),
    /// Seal the files and plugins as they are now
    Lock(lock::Args),
    /// Show the configuration, or one thing in it, without secrets
    Show(show::ShowArgs),
    /// Show one value, without secrets
    Get(show::GetArgs),
    /// Change one value in place
    Set(set::Args),
    /// Write a first configuration with a plugin that runs
    Init(init::Args),
    /// Make, list and take away tokens
    #[command(subcommand)]
    Token(token::Action),
    /// Change what a token may do
    #[command(subcommand)]
    Scope(scope::Action),
    /// List, show and change the plugins of the configuration
    #[command(subcommand)]
    Plugin(parts::PluginAction),
    /// List, add and take away routes
    #[command(subcommand)]
    Route(parts::RouteAction),
    /// List and add webhooks
    #[command(subcommand)]
    Webhook(parts::WebhookAction),
    /// Copy the files of the configuration into a new directory
    Backup(backup::BackupArgs),
    /// Put the files of a backup back
    Restore(backup::RestoreArgs),
}

impl Action {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let json = self.wants_json();
        match self.act() {
            Err(error) if json => failure::report_json(&error),
            ended => ended,
        }
    }

    fn act(self) -> anyhow::Result<Exit> {
        match self {
            Self::Check(args) => args.run(),
            Self::Lock(args) => args.run(),
            Self::Show(args) => args.run(),
            Self::Get(args) => args.run(),
            Self::Set(args) => args.run(),
            Self::Init(args) => args.run(),
            Self::Token(action) => action.run(),
            Self::Scope(action) => action.run(),
            Self::Plugin(action) => action.run(),
            Self::Route(action) => action.run(),
            Self::Webhook(action) => action.run(),
            Self::Backup(args) => args.run(),
            Self::Restore(args) => args.run(),
        }
    }

    fn wants_json(&self) -> bool {
        let tree = match self {
            Self::Check(args) => return args.wants_json(),
            Self::Init(args) => return args.output.json,
            Self::Lock(args) => &args.tree,
            Self::Show(args) => &args.tree,
            Self::Get(args) => &args.tree,
            Self::Set(args) => &args.tree,
            Self::Token(action) => action.tree(),
            Self::Scope(action) => action.tree(),
            Self::Plugin(action) => action.tree(),
            Self::Route(action) => action.tree(),
            Self::Webhook(action) => action.tree(),
            Self::Backup(args) => &args.tree,
            Self::Restore(args) => &args.tree,
        };
        tree.output.json
    }
}
