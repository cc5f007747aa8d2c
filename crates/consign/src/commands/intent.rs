//! Publish, claim, extend, settle, find, show and change intents.

mod cancel;
mod claim;
mod delete;
mod extend;
mod fail;
mod found;
mod fulfil;
mod list;
mod operate;
mod publish;
mod receipt;
mod retry;
mod show;
mod timeline;
mod watch;

use clap::Subcommand;

use crate::failure::Exit;

pub(crate) use found::{FILTER_HELP, check as check_filter};
pub(crate) use operate::{IdsArgs, OperatorStep};
pub(crate) use publish::IntentArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum IntentSubcommand {
    /// Publish an intent
    Publish(Box<publish::Args>),
    /// Claim intents
    Claim(Box<claim::Args>),
    /// Extend the lease of a claimed intent
    Extend(Box<extend::Args>),
    /// Report success
    #[command(visible_alias = "fulfill")]
    Fulfil(Box<fulfil::Args>),
    /// Report a failure; the intent is retried later or becomes a dead letter
    Fail(Box<fail::Args>),
    /// Show one intent, its timeline or its receipt
    Show(Box<show::Args>),
    /// List intents: those of the key, or with a filter those of all keys and protocols
    #[command(after_help = FILTER_HELP)]
    List(Box<list::Args>),
    /// Follow an intent until it ends
    #[command(after_help = watch::AFTER_HELP)]
    Watch(Box<watch::Args>),
    /// Show what happened to an intent
    Timeline(Box<timeline::Args>),
    /// Print the signed receipt of an intent
    Receipt(Box<receipt::Args>),
    /// Give intents a fresh start, with all their attempts; needs the admin token
    Retry(Box<retry::Args>),
    /// Stop intents: they become dead letters; needs the admin token
    Cancel(Box<cancel::Args>),
    /// Delete intents and their history; needs the admin token
    Delete(Box<delete::Args>),
}

impl IntentSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Publish(args) => args.run().await,
            Self::Claim(args) => args.run().await,
            Self::Extend(args) => args.run().await,
            Self::Fulfil(args) => args.run().await,
            Self::Fail(args) => args.run().await,
            Self::Show(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Watch(args) => args.run().await,
            Self::Timeline(args) => args.run().await,
            Self::Receipt(args) => args.run().await,
            Self::Retry(args) => args.run().await,
            Self::Cancel(args) => args.run().await,
            Self::Delete(args) => args.run().await,
        }
    }
}
