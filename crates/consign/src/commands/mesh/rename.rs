//! `consign mesh rename SLUG PUBKEY NAME`

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

    /// Name to show to other members
    name: String,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.operator.admin.client()?;
        let renamed = client
            .mesh_rename_member(&self.slug, &self.pubkey, &self.name)
            .await?;
        self.operator.print(&renamed, |renamed| {
            let name = cell(renamed, "name");
            out::note(&format!("the member is called {name} now"));
            Ok(())
        })
    }
}
