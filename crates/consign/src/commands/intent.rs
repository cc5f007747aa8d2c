//! Publish, claim, extend, settle and show intents.

mod claim;
mod extend;
mod fail;
mod fulfil;
mod list;
mod publish;
mod show;

use clap::Subcommand;

use crate::failure::Exit;

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
    /// List intents
    List(Box<list::Args>),
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
        }
    }
}
