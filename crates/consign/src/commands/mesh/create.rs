//! `consign mesh create SLUG`

use clap::builder::PossibleValuesParser;
use clap::value_parser;
use consign_mesh::limits::{DEDUPE_DAYS_MIN, RETENTION_DAYS_MAX};
use consign_mesh::role::{ClonePolicy, DedupeMode};
use serde_json::json;

use super::OperatorArgs;
use crate::commands::beam::cell;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  consign mesh create acme --dedupe-days 365 --message-days 90")]
pub(crate) struct Args {
    /// Short name of the mesh: a-z, 0-9 and -
    slug: String,

    /// Name to show; default is the short name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// How long ids of messages are remembered, in days
    #[arg(
        long,
        value_name = "DAYS",
        value_parser = value_parser!(u32).range(i64::from(DEDUPE_DAYS_MIN)..=i64::from(RETENTION_DAYS_MAX)),
    )]
    dedupe_days: Option<u32>,

    /// Whether ids are forgotten at all
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(DedupeMode::ALL.iter().map(|mode| mode.as_str())))]
    dedupe_mode: Option<String>,

    /// How long messages are kept, in days
    #[arg(
        long,
        value_name = "DAYS",
        value_parser = value_parser!(u32).range(1..=i64::from(RETENTION_DAYS_MAX)),
    )]
    message_days: Option<u32>,

    /// What happens when a member connects twice
    #[arg(long, value_name = "POLICY", value_parser = PossibleValuesParser::new(ClonePolicy::ALL.iter().map(|policy| policy.as_str())))]
    clone_policy: Option<String>,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let mut mesh = json!({"slug": self.slug});
        for (name, value) in [
            ("name", self.name.map(serde_json::Value::from)),
            ("dedupe_days", self.dedupe_days.map(Into::into)),
            ("dedupe_mode", self.dedupe_mode.map(Into::into)),
            ("message_days", self.message_days.map(Into::into)),
            ("clone_policy", self.clone_policy.map(Into::into)),
        ] {
            if let Some(value) = value {
                mesh[name] = value;
            }
        }
        let created = self.operator.admin.client()?.mesh_create(&mesh).await?;
        self.operator.print(&created, |created| {
            out::data(&cell(created, "mesh_id"))?;
            let slug = cell(created, "slug");
            out::note(&format!(
                "created; invite members with: consign mesh invite {slug}"
            ));
            Ok(())
        })
    }
}
