//! `consign intent retry ID...`

use super::operate::{IdsArgs, OperatorStep};
use crate::failure::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Retry fulfilled intents too: they lose their result, and their work is repeated
    #[arg(long, conflicts_with = "filter")]
    force: bool,

    #[command(flatten)]
    ids: IdsArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        self.ids
            .run(OperatorStep::Retry, self.force, str::to_owned)
            .await
    }
}
