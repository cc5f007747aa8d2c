//! `consign site key announce`

use serde::Serialize;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show the announced key, if there is one, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Serialize)]
struct AnnounceReport<'a> {
    /// Whether a key is announced now, by this command or before.
    announced: bool,
    site: &'a str,
    next_public_key: Option<&'a str>,
}

impl Args {
    /// No confirmation is needed: the key signs nothing yet, and an announced key stays.
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let site = client.transactions().keys().await?.body;
        let next = site.keys.iter().find(|key| key.status == "next");
        let mut next = next.map(|key| key.public_key.clone());
        if !self.dry_run {
            let announced = client.transactions().announce_key().await?;
            next = Some(announced.body.next_public_key);
        }
        if self.output.json {
            out::json(&AnnounceReport {
                announced: next.is_some(),
                site: &site.site,
                next_public_key: next.as_deref(),
            })?;
            return Ok(Exit::Done);
        }
        let called = render::safe(&site.site);
        match next.as_deref().map(render::safe) {
            Some(key) if self.dry_run => out::note(&format!(
                "the key {key} of {called} is already announced; nothing was sent"
            )),
            Some(key) => {
                out::data(&key)?;
                out::note(&format!(
                    "will sign for {called}; after verifiers have pinned it, run: consign site key rotate"
                ));
            }
            None => out::note(&format!(
                "would announce a new key of {called}; nothing was sent"
            )),
        }
        Ok(Exit::Done)
    }
}
