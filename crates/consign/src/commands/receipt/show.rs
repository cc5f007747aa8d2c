//! `consign receipt show ID`

use crate::failure::Exit;
use crate::link::ServerArgs;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The receipt (`atp_rcpt_…` or `atp_comp_…`); for the receipt of an intent use `intent show
    /// --receipt`
    id: String,

    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.server.client()?;
        let shown = client.transactions().receipt(&self.id).await?;
        // Printed verbatim, because the signature covers its bytes.
        out::data(shown.body.receipt.get())?;
        Ok(Exit::Done)
    }
}
