//! `consign mesh set-grants SLUG PUBKEY MEMBER RIGHT...`: what a member lets another one do, set by the operator.

use super::OperatorArgs;
use super::grant::RightArgs;
use crate::commands::beam::cell;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    /// Key of the member that receives, 64 hex digits
    pubkey: String,

    /// Key of the member that may do it, 64 hex digits
    member: String,

    #[command(flatten)]
    rights: RightArgs,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.operator.admin.client()?;
        let rights = self.rights.list();
        let rights: Option<Vec<String>> =
            rights.map(|rights| rights.iter().map(ToString::to_string).collect());
        let (slug, pubkey) = (&self.slug, &self.pubkey);
        let changed = client
            .mesh_set_grants(slug, pubkey, &self.member, rights.as_deref())
            .await?;
        self.operator.print(&changed, |changed| {
            let name = cell(changed, "name");
            out::note(&format!("what {name} lets that member do is set"));
            Ok(())
        })
    }
}
