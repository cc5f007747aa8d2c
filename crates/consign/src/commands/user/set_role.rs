//! `consign user set-role NAME ROLE`

use super::RoleArg;
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name of the user
    #[arg(value_name = "NAME")]
    name: String,

    /// What the user may do from now on
    #[arg(value_name = "ROLE", value_enum)]
    role: RoleArg,

    /// Check that there is such a user, show the role, and stop
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
        if self.dry_run {
            let users = client.users().await?;
            let Some(user) = users.into_iter().find(|user| user.name == self.name) else {
                let message = format!("there is no user {name}");
                let hint = "consign user list shows the names";
                return Err(Failure::new(Exit::Nothing, message).hint(hint).into());
            };
            if self.output.json {
                out::json(&user)?;
            } else {
                let now = render::safe(&user.role);
                out::note(&format!(
                    "{name} is {now} and would be {role}; nothing was changed"
                ));
            }
            return Ok(Exit::Done);
        }
        let user = client.set_user_role(&self.name, role).await?;
        if self.output.json {
            out::json(&user)?;
        } else {
            out::note(&format!("{name} is {role}, from the next request on"));
        }
        Ok(Exit::Done)
    }
}
