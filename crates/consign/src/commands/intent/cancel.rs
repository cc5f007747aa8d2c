//! `consign intent cancel ID...`

use super::operate::{IdsArgs, OperatorStep};
use crate::failure::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Cancel fulfilled intents too, although their receipts say otherwise
    #[arg(long, conflicts_with = "filter")]
    force: bool,

    #[command(flatten)]
    ids: IdsArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        self.ids
            .run(OperatorStep::Cancel, self.force, str::to_owned)
            .await
    }
}
