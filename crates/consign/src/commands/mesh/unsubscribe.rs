//! `consign mesh unsubscribe SLUG TOPIC QUEUE`

use super::OperatorArgs;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    /// Name or id of the topic
    topic: String,

    /// Name of the queue, without `queue:`
    queue: String,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.operator.admin.client()?;
        let Self {
            slug, topic, queue, ..
        } = &self;
        let changed = client.mesh_unsubscribe(slug, topic, queue).await?;
        self.operator.print(&changed, |_| {
            out::note(&format!("{topic} no longer fills {queue}"));
            Ok(())
        })
    }
}
