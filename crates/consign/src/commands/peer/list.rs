//! `consign peer list`

use super::FederationArgs;
use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, cell, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
From another machine: without the secret, with the session of an administrator (--token-file).

Example:
  consign peer list --secret-file federation_secret")]
pub(crate) struct Args {
    #[command(flatten)]
    federation: FederationArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let secret = self.federation.secret(&self.link)?;
        let found = self.link.client()?.beam_peers(secret.as_ref()).await?;
        if self.output.json {
            out::json(&found)?;
            return Ok(Exit::Done);
        }
        let peers = rows(&found, "peers").iter().map(|peer| {
            vec![
                cell(peer, "directoryUrl"),
                cell(peer, "status"),
                cell(peer, "trustLevel"),
                cell(peer, "lastSeen"),
            ]
        });
        let peers: Vec<Vec<String>> = peers.collect();
        if peers.is_empty() {
            out::note("no peers");
        } else {
            out::data(&render::table(
                &["DIRECTORY", "STATUS", "TRUST", "LAST SEEN"],
                &peers,
            ))?;
        }
        Ok(Exit::Done)
    }
}
