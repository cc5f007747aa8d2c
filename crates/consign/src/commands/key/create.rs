//! `consign key create [--owner NAME] [--name TEXT] [--scope SCOPE]… [--namespace NAMESPACE]… [--grant NAMESPACE]…`

use consign_kernel::limits::OWNER_CHARS_MAX;
use serde::Serialize;

use super::granted_namespace::GrantedNamespace;
use super::settings::SettingsArgs;
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The owner of the key; shown in lists [default: the name]
    #[arg(long, value_name = "NAME", required_unless_present = "name")]
    owner: Option<String>,

    #[command(flatten)]
    settings: SettingsArgs,

    /// Let the key claim in this namespace: beam.AGENT.ORG, beam.AGENT, the Beam-ID of the agent, or mesh.SLUG.QUEUE;
    /// may be repeated
    #[arg(long = "grant", value_name = "NAMESPACE")]
    grants: Vec<GrantedNamespace>,

    /// Show the key that would be created, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Serialize)]
struct CreatedKey<'a> {
    api_key: &'a str,
    id: &'a str,
    owner: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    grants: &'a [String],
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let options = self.settings.options();
        let owner = self.owner.as_ref().or(options.name.as_ref());
        let owner = owner.cloned().unwrap_or_default();
        if owner.trim().is_empty() || owner.chars().count() > OWNER_CHARS_MAX {
            let message = format!("owner must have 1 to {OWNER_CHARS_MAX} characters");
            return Err(Failure::usage(message).into());
        }
        let client = self.admin.client()?;
        let grants: Vec<String> = self
            .grants
            .iter()
            .map(|namespace| namespace.as_str().to_owned())
            .collect();
        if self.dry_run {
            let asked = serde_json::json!({"owner": owner, "grants": grants, "settings": options});
            if self.output.json {
                out::json(&serde_json::json!({"dry_run": true, "key": asked}))?;
            } else {
                out::note(&format!("would create a key: {asked}; nothing was changed"));
            }
            return Ok(Exit::Done);
        }
        let made = client.generate_key(Some(&owner), &grants, &options).await?;
        if self.output.json {
            out::json(&CreatedKey {
                api_key: made.key.reveal(),
                id: &made.id,
                owner: &made.owner,
                grants: &made.grants,
            })?;
        } else {
            out::data(made.key.reveal())?;
            let owner = render::safe(&made.owner);
            out::note(&format!(
                "this key of {owner} is shown only now; keep it in a file of mode 600"
            ));
            let id = render::safe(&made.id);
            out::note(&format!(
                "its id is {id}; see it with: consign key show {id}"
            ));
        }
        Ok(Exit::Done)
    }
}
