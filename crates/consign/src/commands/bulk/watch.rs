//! `consign bulk watch ID`

use super::{OneBulkArgs, exit, follow, summary};
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  every row was changed
  1  the job was cancelled
  4  some rows could not be changed")]
pub(crate) struct Args {
    #[command(flatten)]
    one: OneBulkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let job = follow(&self.one.admin.client()?, &self.one.id).await?;
        if self.one.output.json {
            out::json(&job)?;
        } else {
            out::data(&summary(&job))?;
        }
        Ok(exit(&job))
    }
}
