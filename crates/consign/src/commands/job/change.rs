//! `job cancel` and `job retry`

use serde_json::json;

use crate::commands::automation::request::{ChangeRequest, cell, change};
use crate::commands::automation::service_args::ServiceArgs;
use crate::failure::Exit;
use crate::system::path_segment;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The id of the job
    #[arg(value_name = "ID")]
    id: String,

    /// A reason for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl Args {
    pub(crate) fn run(self, verb: &str) -> anyhow::Result<Exit> {
        let id = path_segment(&self.id);
        let wanted = ChangeRequest {
            look: &format!("/job/{id}"),
            post: &format!("/job/{id}/{verb}"),
            body: self.reason.map(|reason| json!({ "reason": reason })),
            what: &format!("{verb} job {}", self.id),
        };
        change(&self.service, self.dry_run, &wanted, |answer| {
            format!("{}  {}", cell(&answer["job_id"]), cell(&answer["status"]))
        })
    }
}
