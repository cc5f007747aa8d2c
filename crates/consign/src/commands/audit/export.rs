//! `consign audit export [--since 2d] [--actor A] [--action A]`

use super::{FilterArgs, PAGE};
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let mut query = self.filter.query(PAGE);
        loop {
            let page = client.audit(&query).await?;
            for entry in &page.entries {
                out::json(entry)?;
            }
            query.after = page.next;
            if query.after.is_none() {
                return Ok(Exit::Done);
            }
        }
    }
}
