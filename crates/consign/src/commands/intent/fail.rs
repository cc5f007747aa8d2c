//! `consign intent fail ID --token T --error S`

use consign_client::SecretKey;

use super::fulfil::SettledOutput;
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::LinkArgs;
use crate::{input, out};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The claimed intent
    id: String,

    /// Token from the claim
    #[arg(long)]
    token: SecretKey,

    /// Reason of the failure: TEXT, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT")]
    error: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let error = input::text("error", &self.error)?;
        let client = self.link.client()?;
        client
            .fail(&self.id, self.token.reveal(), error.trim())
            .await?;
        if self.output.json {
            out::json(&SettledOutput {
                ok: true,
                id: &self.id,
            })?;
        } else {
            out::note(&format!("reported a failure of {}", self.id));
        }
        Ok(Exit::Done)
    }
}
