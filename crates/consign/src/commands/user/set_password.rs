//! `consign user set-password NAME [--password-file FILE]`

use super::{PasswordArgs, show_made};
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name of the user
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    password: PasswordArgs,

    /// Say what would be set, and stop
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
        let name = render::safe(&self.name);
        let password = self.password.read()?;
        if self.dry_run {
            out::note(&format!(
                "would set a new password of {name}; nothing was changed"
            ));
            return Ok(Exit::Done);
        }
        let user = client
            .set_user_password(&self.name, password.as_ref())
            .await?;
        if self.output.json {
            out::json(&user)?;
        } else {
            show_made(&user)?;
            out::note(&format!(
                "the password of {name} is set; the one before is refused"
            ));
        }
        Ok(Exit::Done)
    }
}
