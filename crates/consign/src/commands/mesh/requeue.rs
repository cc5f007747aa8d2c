//! `consign mesh requeue SLUG ITEM`

use super::OperatorArgs;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    /// Id of the item, as `consign mesh dead` shows it
    item: String,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.operator.admin.client()?;
        let requeued = client.mesh_requeue(&self.slug, &self.item).await?;
        self.operator.print(&requeued, |_| {
            out::note("the item waits for workers of its queue again");
            Ok(())
        })
    }
}
