//! `consign key rotate KEYID [--overlap 24h]`

use serde::Serialize;

use super::span::Span;
use crate::commands::OutputArgs;
use crate::confirm::confirm;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The id of the key, as in consign key list
    #[arg(value_name = "KEYID")]
    id: String,

    /// How long the present secret is still accepted; 0 ends it at once
    #[arg(long, value_name = "TIME", default_value = "24h")]
    overlap: Span,

    /// Do not ask for confirmation before a present secret ends at once
    #[arg(long)]
    yes: bool,

    /// Check that the server has the key, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Serialize)]
struct RotatedApiKey<'a> {
    id: &'a str,
    api_key: &'a str,
    /// Seconds.
    overlap: u64,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let (id, overlap) = (render::safe(&self.id), self.overlap.seconds);
        if self.dry_run {
            let key = client.key(&self.id).await?;
            if self.output.json {
                out::json(&serde_json::json!({"dry_run": true, "id": key.id, "overlap": overlap}))?;
            } else {
                out::note(&format!(
                    "would give {id} a new secret; nothing was changed"
                ));
            }
            return Ok(Exit::Done);
        }
        if overlap == 0 {
            confirm(
                &format!("end the present secret of {id} at once?"),
                self.yes,
            )?;
        }
        let made = client.rotate_key(&self.id, overlap).await?;
        if self.output.json {
            out::json(&RotatedApiKey {
                id: &made.id,
                api_key: made.key.reveal(),
                overlap,
            })?;
        } else {
            out::data(made.key.reveal())?;
            let past = match overlap {
                0 => "the one before is refused from now on".to_owned(),
                seconds => format!("the one before is accepted for {seconds} s longer"),
            };
            out::note(&format!("this secret of {id} is shown only now; {past}"));
        }
        Ok(Exit::Done)
    }
}
