//! `consign peer add URL`

use serde_json::json;

use super::FederationArgs;
use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, cell};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Both directories need the same BEAM_FEDERATION_SHARED_SECRET, and each registers the other one. A URL that is
not public or not https must be listed in BEAM_ALLOW_TARGETS of the server.
From another machine: without the secret, with the session of an administrator (--token-file).

Example:
  consign peer add https://peer.example --secret-file federation_secret")]
pub(crate) struct Args {
    /// URL of the directory
    url: String,

    /// Public key of the directory
    #[arg(long, value_name = "KEY", default_value = "")]
    public_key: String,

    /// Trust in the directory, from 0 to 1
    #[arg(long, value_name = "NUMBER")]
    trust_level: Option<f64>,

    /// Show what would be registered, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    federation: FederationArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        if self.dry_run {
            let url = render::safe(&self.url);
            out::note(&format!("would register {url}; nothing was sent"));
            return Ok(Exit::Done);
        }
        let mut peer = json!({"directoryUrl": self.url, "publicKey": self.public_key});
        if let Some(trust_level) = self.trust_level {
            peer["trustLevel"] = json!(trust_level);
        }
        let secret = self.federation.secret(&self.link)?;
        let client = self.link.client()?;
        let added = client.beam_add_peer(secret.as_ref(), &peer).await?;
        if self.output.json {
            out::json(&added)?;
        } else {
            let (url, trust) = (cell(&added, "directoryUrl"), cell(&added, "trustLevel"));
            out::note(&format!("{url} is registered with trust level {trust}"));
        }
        Ok(Exit::Done)
    }
}
