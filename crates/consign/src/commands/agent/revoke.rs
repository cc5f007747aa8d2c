//! `consign agent revoke PUBLIC-KEY --key FILE`

use std::path::PathBuf;

use consign_beam::signed_text::BeamSignedText;
use serde_json::json;

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamIdentity, BeamLinkArgs};
use crate::confirm::confirm;
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The current key cannot be revoked; replace it with: consign agent rotate, which revokes it.

Example:
  consign agent revoke MCowBQYDK2VwAyEA... --key alice.beam.json --yes")]
pub(crate) struct Args {
    /// The public key, as `agent show` prints it
    public_key: String,

    /// File of the identity, which signs the request
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Show which key would be revoked, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let identity = BeamIdentity::load(&self.key)?;
        let beam_id = identity.beam_id.as_str();
        let shown = render::safe(&self.public_key);
        if !self.dry_run {
            confirm(&format!("revoke the key {shown} of {beam_id}?"), self.yes)?;
            let timestamp = super::now();
            let text = BeamSignedText::keys_revoke(beam_id, &self.public_key, &timestamp);
            let revocation = json!({
                "public_key": self.public_key,
                "timestamp": timestamp,
                "signature": text.sign(identity.key()),
            });
            let client = self.link.client()?;
            client.beam_revoke_key(beam_id, &revocation).await?;
        }
        if self.output.json {
            out::json(&json!({
                "revoked": !self.dry_run, "beam_id": beam_id, "public_key": self.public_key,
            }))?;
        } else if self.dry_run {
            out::note(&format!("would revoke {shown}; nothing was sent"));
        } else {
            out::note(&format!("the key {shown} of {beam_id} is revoked"));
        }
        Ok(Exit::Done)
    }
}
