//! `consign bulk show ID`

use super::{OneBulkArgs, fields};
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    one: OneBulkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let job = self.one.admin.client()?.bulk_job(&self.one.id).await?;
        if self.one.output.json {
            out::json(&job)?;
        } else {
            out::data(&fields(&job))?;
        }
        Ok(Exit::Done)
    }
}
