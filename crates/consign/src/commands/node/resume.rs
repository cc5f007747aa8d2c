//! `consign node resume NODE`

use super::{OneArgs, called};
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    one: OneArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let one = &self.one;
        let client = one.admin.client()?;
        let mut node = one.find(&client.nodes().await?)?.clone();
        if !one.dry_run {
            node = client.drain_node(node.id, false).await?;
        }
        if one.output.json {
            out::json(&node)?;
            return Ok(Exit::Done);
        }
        let called = called(&node);
        out::note(&if one.dry_run {
            format!("would let {called} hand out work again; nothing was sent")
        } else {
            format!("{called} hands out work again within two seconds")
        });
        Ok(Exit::Done)
    }
}
