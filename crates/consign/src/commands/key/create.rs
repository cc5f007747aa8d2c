//! `consign key create --owner NAME [--grant NAMESPACE]…`

use consign_kernel::limits::OWNER_CHARS_MAX;
use serde::Serialize;

use super::granted_namespace::GrantedNamespace;
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The owner of the key; shown in lists
    #[arg(long, value_name = "NAME")]
    owner: String,

    /// Let the key claim in this namespace: beam.AGENT.ORG, beam.AGENT, the Beam-ID of the agent, or mesh.SLUG.QUEUE;
    /// may be repeated
    #[arg(long = "grant", value_name = "NAMESPACE")]
    grants: Vec<GrantedNamespace>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Serialize)]
struct CreatedKey<'a> {
    api_key: &'a str,
    owner: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    grants: &'a [String],
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        if self.owner.trim().is_empty() || self.owner.chars().count() > OWNER_CHARS_MAX {
            let message = format!("owner must have 1 to {OWNER_CHARS_MAX} characters");
            return Err(Failure::usage(message).into());
        }
        let client = self.admin.client()?;
        let grants: Vec<String> = self
            .grants
            .iter()
            .map(|namespace| namespace.as_str().to_owned())
            .collect();
        let made = client.generate_key(Some(&self.owner), &grants).await?;
        if self.output.json {
            out::json(&CreatedKey {
                api_key: made.key.reveal(),
                owner: &made.owner,
                grants: &made.grants,
            })?;
        } else {
            out::data(made.key.reveal())?;
            let owner = render::safe(&made.owner);
            out::note(&format!(
                "this key of {owner} is shown only now; keep it in a file of mode 600"
            ));
        }
        Ok(Exit::Done)
    }
}
