//! `consign mesh key create SLUG`

use clap::builder::PossibleValuesParser;
use consign_mesh::role::ApiCapability;
use serde_json::json;

use crate::commands::beam::cell;
use crate::commands::mesh::OperatorArgs;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  consign mesh key create acme --member 8a88…6f5c --capability send --topic alerts")]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    /// Key of the member that the program acts as, 64 hex digits
    #[arg(long, value_name = "PUBKEY")]
    member: String,

    /// What the program may do; may be repeated
    #[arg(
        long = "capability",
        value_name = "CAPABILITY",
        required = true,
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(ApiCapability::ALL.iter().map(|capability| capability.as_str())),
    )]
    capabilities: Vec<String>,

    /// Topic to which it may post, and nothing else; may be repeated
    #[arg(long = "topic", value_name = "NAME", value_delimiter = ',')]
    topics: Vec<String>,

    /// What the key is for; shown in lists
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let mut key = json!({
            "member": self.member, "capabilities": self.capabilities, "label": self.label,
        });
        if !self.topics.is_empty() {
            key["topics"] = json!(self.topics);
        }
        let client = self.operator.admin.client()?;
        let created = client.mesh_create_key(&self.slug, &key).await?;
        self.operator.print(&created, |created| {
            out::data(&cell(created, "key"))?;
            out::note("this key is shown only now; keep it in a file of mode 600");
            Ok(())
        })
    }
}
