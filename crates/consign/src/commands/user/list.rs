//! `consign user list`

use consign_client::UserStatus;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let users = self.admin.client()?.users().await?;
        if self.output.json {
            out::json(&users)?;
        } else if users.is_empty() {
            out::note("no users except admin, whose password is the file keys/dashboard_password");
        } else {
            out::data(&human(&users))?;
        }
        Ok(Exit::Done)
    }
}

fn human(users: &[UserStatus]) -> String {
    let rows: Vec<Vec<String>> = users
        .iter()
        .map(|user| {
            vec![
                render::safe(&user.name),
                render::safe(&user.role),
                render::time(user.created_at),
                render::time(user.changed_at),
            ]
        })
        .collect();
    render::table(&["NAME", "ROLE", "ADDED", "CHANGED"], &rows)
}
