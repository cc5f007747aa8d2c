//! `consign intent timeline ID`

use super::show::history;
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::LinkArgs;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The intent
    id: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let timeline = self.link.client()?.timeline(&self.id).await?;
        if self.output.json {
            out::json(&timeline)?;
        } else {
            out::data(&history(&timeline))?;
        }
        Ok(Exit::Done)
    }
}
