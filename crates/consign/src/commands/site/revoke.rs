//! `consign site key revoke KEY_ID`

use serde::Serialize;

use crate::commands::OutputArgs;
use crate::confirm::confirm;
use crate::failure::{Exit, Failure};
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The id of the key, as `site key show` lists it; the current key must be rotated first
    #[arg(value_name = "KEY_ID")]
    id: String,

    /// The reason; it is published with the revocation
    #[arg(long, value_name = "TEXT", default_value = "key_compromise")]
    reason: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Show the key that would be revoked, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Serialize)]
struct KeyRevokeReport<'a> {
    revoked: bool,
    site: &'a str,
    key_id: &'a str,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let site = client.transactions().keys().await?.body;
        let (called, id) = (render::safe(&site.site), render::safe(&self.id));
        let Some(key) = site.keys.iter().find(|key| key.key_id == self.id) else {
            let message = format!("{called} has no key {id}");
            return Err(Failure::new(Exit::Nothing, message)
                .hint("list its keys with: consign site key show")
                .into());
        };
        if key.status == "current" {
            let message = format!("{id} is the current key of {called}");
            return Err(Failure::usage(message)
                .hint("replace it first with: consign site key rotate")
                .into());
        }
        if !self.dry_run {
            let question = format!(
                "revoke the key {id} of {called}? All receipts that it signed become invalid"
            );
            confirm(&question, self.yes)?;
            client
                .transactions()
                .revoke_key(&self.id, &self.reason)
                .await?;
        }
        if self.output.json {
            out::json(&KeyRevokeReport {
                revoked: !self.dry_run,
                site: &site.site,
                key_id: &self.id,
            })?;
        } else if self.dry_run {
            out::note(&format!(
                "would revoke the key {id} of {called}; nothing was sent"
            ));
        } else {
            out::note(&format!(
                "the key {id} of {called} is revoked; verifiers that pin its keys need: consign site key show --json"
            ));
        }
        Ok(Exit::Done)
    }
}
