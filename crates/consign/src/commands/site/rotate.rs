//! `consign site key rotate`

use serde::Serialize;

use crate::commands::OutputArgs;
use crate::confirm::confirm;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The reason; it is published with the replaced key
    #[arg(long, value_name = "TEXT", default_value = "scheduled")]
    reason: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Show the key that would be replaced, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Serialize)]
struct RotateReport<'a> {
    rotated: bool,
    site: &'a str,
    /// The current key.
    public_key: &'a str,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let site = client.transactions().keys().await?.body;
        let current = site.keys.iter().find(|key| key.status == "current");
        let mut key = current.map_or_else(String::new, |key| key.public_key.clone());
        let called = render::safe(&site.site);
        if !self.dry_run {
            confirm(
                &format!("replace the key {} of {called}?", render::safe(&key)),
                self.yes,
            )?;
            key = client
                .transactions()
                .rotate_key(&self.reason)
                .await?
                .body
                .public_key;
        }
        if self.output.json {
            out::json(&RotateReport {
                rotated: !self.dry_run,
                site: &site.site,
                public_key: &key,
            })?;
        } else if self.dry_run {
            let key = render::safe(&key);
            out::note(&format!(
                "would replace the key {key} of {called}; nothing was sent"
            ));
        } else {
            out::data(&render::safe(&key))?;
            out::note(&format!(
                "signs for {called} from now on; verifiers that pin its keys need: consign site key show --json"
            ));
        }
        Ok(Exit::Done)
    }
}
