//! `consign tx reconcile`

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let reply = self.admin.client()?.transactions().reconcile().await?;
        if self.output.json {
            out::data(&reply.text)?;
            return Ok(Exit::Done);
        }
        let swept = &reply.body.swept;
        let count = |name: &str| swept[name].as_u64().unwrap_or(0);
        out::note(&format!(
            "{} checked: {} settled, {} compensated, {} still open",
            count("looked_at"),
            count("settled"),
            count("compensated"),
            count("open"),
        ));
        Ok(Exit::Done)
    }
}
