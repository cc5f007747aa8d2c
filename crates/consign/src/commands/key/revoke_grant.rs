//! `consign key revoke-grant KEYID NAMESPACE`

use super::granted_namespace::{GrantArgs, GrantReport};
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    grant: GrantArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let (key_id, namespace) = (&*self.grant.key_id, self.grant.namespace.as_str());
        self.admin.client()?.revoke_grant(key_id, namespace).await?;
        if self.output.json {
            out::json(&GrantReport {
                key_id,
                namespace,
                granted: false,
            })?;
        } else {
            let key_id = render::safe(key_id);
            out::note(&format!(
                "{key_id} claims no more in {namespace}; what it holds it may still settle"
            ));
        }
        Ok(Exit::Done)
    }
}
