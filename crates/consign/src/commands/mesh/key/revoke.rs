//! `consign mesh key revoke SLUG ID`

use crate::commands::mesh::OperatorArgs;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    /// Id of the key, as `consign mesh key list` shows it
    id: String,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.operator.admin.client()?;
        let revoked = client.mesh_revoke_key(&self.slug, &self.id).await?;
        self.operator.print(&revoked, |_| {
            out::note("the key is disabled");
            Ok(())
        })
    }
}
