//! `consign user add NAME --role ROLE [--password-file FILE]`

use consign_client::StatusCode;

use super::{PasswordArgs, RoleArg, show_made};
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Lower-case letters, digits and . _ - @
    #[arg(value_name = "NAME")]
    name: String,

    /// What the user may do
    #[arg(long, value_name = "ROLE", value_enum)]
    role: RoleArg,

    #[command(flatten)]
    password: PasswordArgs,

    /// Show what would be added, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let (name, role) = (render::safe(&self.name), self.role.name());
        let password = self.password.read()?;
        if self.dry_run {
            if self.output.json {
                out::json(&serde_json::json!({"dry_run": true, "name": self.name, "role": role}))?;
            } else {
                out::note(&format!("would add {name} as {role}; nothing was changed"));
            }
            return Ok(Exit::Done);
        }
        let added = client.add_user(&self.name, role, password.as_ref());
        let user = match added.await {
            Err(error) if error.status() == Some(StatusCode::CONFLICT) => {
                let message = format!("there is a user {name} already; nothing was changed");
                let hint = "change it with: consign user set-role, or consign user set-password";
                return Err(Failure::new(Exit::Refused, message).hint(hint).into());
            }
            added => added?,
        };
        if self.output.json {
            out::json(&user)?;
        } else {
            show_made(&user)?;
            out::note(&format!("{name} is added as {role}"));
        }
        Ok(Exit::Done)
    }
}
