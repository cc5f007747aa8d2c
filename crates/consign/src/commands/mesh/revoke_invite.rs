//! `consign mesh revoke-invite SLUG ID`

use super::OperatorArgs;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    /// Id of the invite, as `consign mesh invites` shows it
    id: String,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.operator.admin.client()?;
        let revoked = client.mesh_revoke_invite(&self.slug, &self.id).await?;
        self.operator.print(&revoked, |_| {
            out::note("no further member joins with this invite; those who joined stay");
            Ok(())
        })
    }
}
