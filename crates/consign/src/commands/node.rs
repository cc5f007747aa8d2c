//! List the nodes of a ledger, and drain them. All commands need the admin token.

mod drain;
mod list;
mod resume;

use clap::Subcommand;
use consign_client::NodeStatus;

use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::AdminArgs;
use crate::render;

#[derive(Debug, Subcommand)]
pub(crate) enum NodeSubcommand {
    /// List the nodes of the ledger, their status and the number of their leases
    List(Box<list::Args>),
    /// Stop a node from handing out work, so that it can be stopped when its workers are done
    Drain(Box<drain::Args>),
    /// Let a drained node hand out work again
    Resume(Box<resume::Args>),
}

impl NodeSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run().await,
            Self::Drain(args) => args.run().await,
            Self::Resume(args) => args.run().await,
        }
    }
}

/// The node of a command, and the output format.
#[derive(Debug, clap::Args)]
struct OneArgs {
    /// Its id, or its name if that is unique
    #[arg(value_name = "NODE")]
    node: String,

    /// Show the node and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl OneArgs {
    fn find<'a>(&self, nodes: &'a [NodeStatus]) -> Result<&'a NodeStatus, Failure> {
        find(nodes, &self.node)
    }
}

/// The node with this id or this name.
fn find<'a>(nodes: &'a [NodeStatus], wanted: &str) -> Result<&'a NodeStatus, Failure> {
    if let Some(node) = nodes.iter().find(|node| node.id.to_string() == wanted) {
        return Ok(node);
    }
    let mut named = nodes.iter().filter(|node| node.name == wanted);
    match (named.next(), named.next()) {
        (Some(node), None) => Ok(node),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "several nodes are named {}",
            render::safe(wanted)
        ))
        .hint("name it by its id; consign node list shows them")),
        (None, _) => Err(Failure::new(
            Exit::Nothing,
            format!("no node has the id or name {}", render::safe(wanted)),
        )
        .hint("consign node list shows ids and names; a stopped node disappears after 30 s")),
    }
}

/// Name and id, for messages.
fn called(node: &NodeStatus) -> String {
    format!("{} ({})", render::safe(&node.name), node.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn node(id: i64, name: &str) -> NodeStatus {
        NodeStatus {
            id,
            name: name.to_owned(),
            address: format!("http://127.0.0.1:{id}"),
            version: "0.1.0".to_owned(),
            started_at: 1_700_000_000.25,
            seen_at: 1_700_000_002.5,
            state: "serving".to_owned(),
            leases: 3,
            here: id == 1,
        }
    }

    #[test]
    fn a_node_is_found_by_its_id_or_by_a_name_that_is_its_alone() {
        let nodes = [node(1, "web"), node(2, "db"), node(3, "db"), node(4, "2")];
        let found = |wanted| find(&nodes, wanted).map(|node| node.id).ok();
        assert_eq!(found("web"), Some(1));
        assert_eq!(found("2"), Some(2), "an id comes before a name");
        assert_eq!(found("db"), None);
        assert_eq!(found("nobody"), None);
    }
}
