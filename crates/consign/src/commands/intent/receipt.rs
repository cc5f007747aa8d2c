//! `consign intent receipt ID`

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::LinkArgs;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The intent
    id: String,

    // A receipt is JSON in any case; the flag is there because every command has it.
    #[command(flatten)]
    _output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

impl Args {
    /// Prints the document exactly as the server keeps it, because the signature covers its bytes.
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        out::data(&self.link.client()?.receipt(&self.id).await?)?;
        Ok(Exit::Done)
    }
}
