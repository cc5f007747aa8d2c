//! `consign node list`

use consign_client::NodeStatus;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let nodes = self.admin.client()?.nodes().await?;
        if self.output.json {
            out::json(&nodes)?;
        } else if nodes.is_empty() {
            out::note("no node was active in the last 30 s");
        } else {
            out::data(&human(&nodes))?;
        }
        Ok(Exit::Done)
    }
}

fn human(nodes: &[NodeStatus]) -> String {
    let rows: Vec<Vec<String>> = nodes
        .iter()
        .map(|node| {
            vec![
                node.id.to_string(),
                render::safe(&node.name),
                render::safe(&node.state),
                node.leases.to_string(),
                render::safe(&node.address),
                render::safe(&node.version),
                render::time(node.started_at),
                render::time(node.seen_at),
            ]
        })
        .collect();
    let heading = [
        "ID", "NAME", "STATE", "LEASES", "ADDRESS", "VERSION", "STARTED", "SEEN",
    ];
    render::table(&heading, &rows)
}

#[cfg(test)]
mod tests {
    use super::super::tests::node;
    use super::*;

    #[test]
    fn a_list_of_nodes_is_a_table() {
        assert_eq!(
            human(&[node(1, "web\u{1b}1"), node(77, "db")]),
            "ID  NAME        STATE    LEASES  ADDRESS              VERSION  STARTED               SEEN\n\
             1   web\\u{1b}1  serving  3       http://127.0.0.1:1   0.1.0    2023-11-14T22:13:20Z  2023-11-14T22:13:22Z\n\
             77  db          serving  3       http://127.0.0.1:77  0.1.0    2023-11-14T22:13:20Z  2023-11-14T22:13:22Z\n"
        );
    }
}
