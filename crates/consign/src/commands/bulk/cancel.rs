//! `consign bulk cancel ID`

use super::OneBulkArgs;
use crate::confirm::confirm;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Show the job and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    one: OneBulkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let (client, id) = (self.one.admin.client()?, &self.one.id);
        let job = if self.dry_run {
            client.bulk_job(id).await?
        } else {
            confirm(&format!("end the bulk job {id}?"), self.yes)?;
            client.cancel_bulk(id).await?
        };
        if self.one.output.json {
            out::json(&job)?;
        } else if self.dry_run {
            out::note(&format!(
                "would end it; it is {} and nothing was changed",
                job.state
            ));
        } else {
            out::note(&format!(
                "it is {}; {} rows were changed so far",
                job.state, job.done
            ));
        }
        Ok(Exit::Done)
    }
}
