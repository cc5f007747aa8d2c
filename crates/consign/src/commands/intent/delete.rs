//! `consign intent delete ID...`

use super::operate::{IdsArgs, OperatorStep};
use crate::failure::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ids: IdsArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        self.ids
            .run(OperatorStep::Delete, false, str::to_owned)
            .await
    }
}
