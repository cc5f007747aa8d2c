//! `consign key show KEYID`

use super::settings;
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The id of the key, as in consign key list
    #[arg(value_name = "KEYID")]
    id: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let key = self.admin.client()?.key(&self.id).await?;
        if self.output.json {
            out::json(&key)?;
        } else {
            out::data(&settings::human(&key))?;
        }
        Ok(Exit::Done)
    }
}
