//! `consign node drain NODE`

use std::time::Duration;

use consign_client::{Client, NodeStatus};

use super::{OneArgs, called};
use crate::failure::{Exit, Failure};
use crate::out;

const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Wait until all its leases have ended
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    one: OneArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.one.admin.client()?;
        let nodes = client.nodes().await?;
        let mut node = self.one.find(&nodes)?.clone();
        if !self.one.output.json && !others_serve(&nodes, node.id) {
            out::note("no other node of this ledger hands out work");
        }
        if !self.one.dry_run {
            node = client.drain_node(node.id, true).await?;
            if self.wait {
                node = self.until_drained(&client, node).await?;
            }
        }
        if self.one.output.json {
            out::json(&node)?;
            return Ok(Exit::Done);
        }
        let (called, leases) = (called(&node), node.leases);
        out::note(&if self.one.dry_run {
            format!("would drain {called}, which has {leases} leases; nothing was sent")
        } else if node.state == "drained" {
            format!("{called} is drained and can be stopped")
        } else {
            format!("{called} stops handing out work within two seconds; {leases} leases are left")
        });
        Ok(Exit::Done)
    }

    /// Without a time limit, because workers may extend their leases.
    async fn until_drained(
        &self,
        client: &Client,
        mut node: NodeStatus,
    ) -> anyhow::Result<NodeStatus> {
        let mut printed = None;
        while node.state != "drained" {
            let status = (node.state.clone(), node.leases);
            if !self.one.output.json && printed.as_ref() != Some(&status) {
                let (called, leases) = (called(&node), node.leases);
                out::note(&format!("{called} is {}, {leases} leases left", status.0));
                printed = Some(status);
            }
            tokio::time::sleep(LOOK_EVERY).await;
            let nodes = client.nodes().await?;
            let found = nodes.into_iter().find(|found| found.id == node.id);
            node = found.ok_or_else(|| {
                Failure::new(Exit::Nothing, format!("{} is gone", called(&node))).hint(
                    "it stopped; remaining leases stay valid, and any other node accepts their results",
                )
            })?;
        }
        Ok(node)
    }
}

fn others_serve(nodes: &[NodeStatus], id: i64) -> bool {
    let mut others = nodes.iter().filter(|other| other.id != id);
    others.any(|other| other.state == "serving")
}
