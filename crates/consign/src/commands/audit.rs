//! Show what operators did. All commands need the admin token.

mod export;
mod list;

use clap::Subcommand;
use consign_client::AuditQuery;
use jiff::Timestamp;

use crate::commands::key::span::Span;
use crate::failure::Exit;

/// Entries per request.
const PAGE: u32 = 500;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditSubcommand {
    /// List the newest entries of the audit log
    List(Box<list::Args>),
    /// Print the audit log, one JSON document a line, from the newest entry to the oldest
    Export(Box<export::Args>),
}

impl AuditSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run().await,
            Self::Export(args) => args.run().await,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Filter")]
pub(crate) struct FilterArgs {
    /// Only the last 30m, 12h, 2d
    #[arg(long, value_name = "TIME")]
    since: Option<Span>,

    /// Only this actor: admin-token, the name of a user or the id of a key
    #[arg(long, value_name = "ACTOR")]
    actor: Option<String>,

    /// Only this action, as key.create, or this noun, as key
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
}

impl FilterArgs {
    pub(crate) fn query(&self, limit: u32) -> AuditQuery {
        let since = self.since.map(|span| {
            let ago = i64::try_from(span.seconds).unwrap_or(i64::MAX);
            Timestamp::now().as_second().saturating_sub(ago).max(0)
        });
        AuditQuery {
            after: None,
            limit: limit.min(PAGE),
            actor: self.actor.clone(),
            action: self.action.clone(),
            since,
        }
    }
}
