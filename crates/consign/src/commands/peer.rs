//! Other directories.

mod add;
mod list;
mod remove;

use std::path::PathBuf;

use clap::Subcommand;
use consign_client::SecretKey;

use crate::commands::beam::BeamLinkArgs;
use crate::failure::{Exit, Failure};
use crate::link;

#[derive(Debug, Subcommand)]
pub(crate) enum PeerSubcommand {
    /// Register another directory and read its agents
    Add(Box<add::Args>),
    /// List the other directories
    List(Box<list::Args>),
    /// Remove another directory; from another machine with the session of an administrator
    Remove(Box<remove::Args>),
}

impl PeerSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Add(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Remove(args) => args.run().await,
        }
    }
}

/// The secret that directories share.
#[derive(Debug, clap::Args)]
struct FederationArgs {
    /// File with the secret that the directories share; wins over the environment variable of `consign serve`
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// The same from the environment.
    #[arg(
        long,
        value_name = "SECRET",
        env = "BEAM_FEDERATION_SHARED_SECRET",
        hide = true,
        hide_env_values = true
    )]
    secret: Option<SecretKey>,
}

impl FederationArgs {
    /// The secret, which a token makes optional: with a secret, the server ignores a session.
    fn secret(&self, link: &BeamLinkArgs) -> anyhow::Result<Option<SecretKey>> {
        let given = link::given(self.secret.as_ref(), self.secret_file.as_deref())?;
        if given.is_none() && !link.has_token() {
            let failure = Failure::usage("the secret that the directories share is missing");
            let hint = "set the variable BEAM_FEDERATION_SHARED_SECRET, or use --secret-file; from another machine, use the session of an administrator with --token-file";
            return Err(failure.hint(hint).into());
        }
        Ok(given)
    }
}
