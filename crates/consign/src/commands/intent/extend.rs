//! `consign intent extend ID --token T`

use consign_client::SecretKey;

use crate::commands::OutputArgs;
use crate::duration_arg::DurationArg;
use crate::failure::Exit;
use crate::link::LinkArgs;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The claimed intent
    id: String,

    /// Token from the claim
    #[arg(long)]
    token: SecretKey,

    /// Length of the lease from now on, 10s to 1h
    #[arg(
        long,
        visible_alias = "seconds",
        value_name = "TIME",
        default_value = "60s"
    )]
    lease: DurationArg,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let seconds = self.lease.get().as_secs();
        let client = self.link.client()?;
        let extended = client
            .extend(&self.id, self.token.reveal(), seconds)
            .await?;
        if self.output.json {
            out::json(&extended)?;
            return Ok(Exit::Done);
        }
        let lease = DurationArg::of_seconds(extended.extended_by);
        let why = if extended.extended_by == seconds {
            ""
        } else {
            ", the nearest length that the server allows"
        };
        out::note(&format!("the lease of {} ends in {lease}{why}", self.id));
        Ok(Exit::Done)
    }
}
