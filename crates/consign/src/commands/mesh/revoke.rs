//! `consign mesh revoke SLUG PUBKEY`

use super::OperatorArgs;
use crate::commands::beam::cell;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    /// Key of the member, 64 hex digits
    pubkey: String,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.operator.admin.client()?;
        let revoked = client.mesh_revoke_member(&self.slug, &self.pubkey).await?;
        self.operator.print(&revoked, |revoked| {
            let name = cell(revoked, "name");
            out::note(&format!(
                "{name} is no member any more; its connections are closed"
            ));
            Ok(())
        })
    }
}
