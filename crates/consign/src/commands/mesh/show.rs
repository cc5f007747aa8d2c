//! `consign mesh show SLUG`

use super::OperatorArgs;
use crate::commands::beam::member;
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let found = self.operator.admin.client()?.mesh(&self.slug).await?;
        self.operator.print(&found, |mesh| {
            out::data(&render::fields(&[
                ("slug", member(mesh, "slug")),
                ("name", member(mesh, "name")),
                ("id", member(mesh, "mesh_id")),
                ("owner", member(mesh, "owner_pubkey")),
                ("ids kept", Some(super::dedupe(mesh))),
                (
                    "messages kept",
                    member(mesh, "message_days").map(|days| format!("{days} days")),
                ),
                ("second connection", member(mesh, "clone_policy")),
                ("created", Some(super::time(mesh, "created_at"))),
            ]))
        })
    }
}
