//! `consign agent rotate --key FILE`

use std::path::PathBuf;

use consign_beam::signed_text::BeamSignedText;
use serde_json::json;

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamIdentity, BeamLinkArgs};
use crate::failure::{Exit, Failure};
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The new key is written to FILE.next first, and replaces FILE when the directory has accepted it.

Example:
  consign agent rotate --key alice.beam.json")]
pub(crate) struct Args {
    /// File of the identity
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// Show what would be replaced, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let current = BeamIdentity::load(&self.key)?;
        let old_key = current.public_key();
        if self.dry_run {
            return self.show(&current, &old_key, None);
        }
        let mut aside = self.key.clone().into_os_string();
        aside.push(".next");
        let aside = PathBuf::from(aside);
        // A rotation whose outcome is unknown is repeated with the same key.
        let mut next = match BeamIdentity::read(&aside)? {
            Some(next) if next.beam_id == current.beam_id => next,
            Some(_) => {
                let message = format!("{} belongs to another agent", aside.display());
                return Err(Failure::usage(message).into());
            }
            None => {
                let next = BeamIdentity::new(current.beam_id.clone(), &aside)?;
                next.create()?;
                next
            }
        };
        let beam_id = current.beam_id.as_str();
        let new_key = next.public_key();
        let client = self.link.client()?;
        let active = client.beam_agent(beam_id).await?;
        if active["keyState"]["active"]["publicKey"] != new_key.as_str() {
            let timestamp = super::now();
            let text = BeamSignedText::keys_rotate(beam_id, &new_key, &timestamp);
            let rotation = json!({
                "new_public_key": new_key,
                "timestamp": timestamp,
                "signature": text.sign(current.key()),
            });
            client.beam_rotate_key(beam_id, &rotation).await?;
        }
        next.path.clone_from(&self.key);
        next.replace()?;
        std::fs::remove_file(&aside)?;
        self.show(&next, &old_key, Some(&new_key))
    }

    fn show(
        &self,
        identity: &BeamIdentity,
        old_key: &str,
        new_key: Option<&str>,
    ) -> anyhow::Result<Exit> {
        if self.output.json {
            out::json(&json!({
                "rotated": new_key.is_some(),
                "beam_id": identity.beam_id.as_str(),
                "previous_key": old_key,
                "public_key": new_key,
                "identity_file": self.key.display().to_string(),
            }))?;
            return Ok(Exit::Done);
        }
        out::data(&render::fields(&[
            ("beam id", Some(identity.beam_id.to_string())),
            ("previous key", Some(old_key.to_owned())),
            ("public key", new_key.map(str::to_owned)),
        ]))?;
        if self.dry_run {
            out::note("nothing was changed");
        }
        Ok(Exit::Done)
    }
}
