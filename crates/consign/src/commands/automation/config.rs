//! The configuration of the automation: check, seal, show and change it, without a server.
//!
//! Invariant: nothing is written before the resulting tree was checked as a whole, and with `--json` a failure is one JSON
//! document, too.

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
pub(crate) enum ConfigSubcommand {
    /// Report all problems of a configuration
    Check(check::Args),
    /// Seal the files and plugins as they are now
    Lock(lock::Args),
    /// Show the configuration, or one part of it, without secrets
    Show(show::ConfigShowArgs),
    /// Show one value, without secrets
    Get(show::GetArgs),
    /// Change one value in place
    Set(set::Args),
    /// Write a first configuration with a working plugin
    Init(init::Args),
    /// Create, list and delete tokens
    #[command(subcommand)]
    Token(token::TokenSubcommand),
    /// Change the scopes of a token
    #[command(subcommand)]
    Scope(scope::ScopeSubcommand),
    /// List, show and change the plugins of the configuration
    #[command(subcommand)]
    Plugin(parts::PluginAction),
    /// List, add and remove routes
    #[command(subcommand)]
    Route(parts::RouteAction),
    /// List and add webhooks
    #[command(subcommand)]
    Webhook(parts::WebhookAction),
    /// Copy the files of the configuration into a new directory
    Backup(backup::BackupArgs),
    /// Restore the files of a backup
    Restore(backup::RestoreArgs),
}

impl ConfigSubcommand {
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
