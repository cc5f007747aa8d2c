//! `consign user remove NAME`

use serde::Serialize;

use crate::commands::OutputArgs;
use crate::confirm::confirm;
use crate::failure::{Exit, Failure};
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name of the user
    #[arg(value_name = "NAME")]
    name: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Check that there is such a user, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Serialize)]
struct RemovedUser<'a> {
    name: &'a str,
    removed: bool,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let name = render::safe(&self.name);
        if self.dry_run {
            let users = client.users().await?;
            if !users.iter().any(|user| user.name == self.name) {
                let message = format!("there is no user {name}");
                let hint = "consign user list shows the names";
                return Err(Failure::new(Exit::Nothing, message).hint(hint).into());
            }
        } else {
            confirm(&format!("remove the user {name}?"), self.yes)?;
            client.remove_user(&self.name).await?;
        }
        if self.output.json {
            out::json(&RemovedUser {
                name: &self.name,
                removed: !self.dry_run,
            })?;
        } else if self.dry_run {
            out::note(&format!("would remove {name}; nothing was changed"));
        } else {
            out::note(&format!("{name} is removed"));
        }
        Ok(Exit::Done)
    }
}
