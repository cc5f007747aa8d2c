//! `consign key change KEYID [--name …] [--scope …]… [--namespace …]… [--rate …] [--open-max …] [--expires …]`

use consign_client::KeyOptions;

use super::settings::{self, SettingsArgs};
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The id of the key, as in consign key list
    #[arg(value_name = "KEYID")]
    id: String,

    #[command(flatten)]
    settings: SettingsArgs,

    /// Check that the server has the key, show what would be changed, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let options = self.settings.options();
        if options == KeyOptions::default() {
            let hint =
                "name a setting, for example: --rate 600; consign key change --help lists them";
            return Err(Failure::usage("nothing to change").hint(hint).into());
        }
        let client = self.admin.client()?;
        let id = render::safe(&self.id);
        if self.dry_run {
            let key = client.key(&self.id).await?;
            if self.output.json {
                out::json(&serde_json::json!({
                    "dry_run": true, "id": key.id, "change": options,
                }))?;
            } else {
                let change = serde_json::to_string(&options)?;
                out::note(&format!("would change {id}: {change}; nothing was changed"));
            }
            return Ok(Exit::Done);
        }
        let key = client.change_key(&self.id, &options).await?;
        if self.output.json {
            out::json(&key)?;
        } else {
            out::data(&settings::human(&key))?;
            out::note(&format!("{id} is changed, from its next request on"));
        }
        Ok(Exit::Done)
    }
}
