//! `consign agent show BEAM-ID`

use serde_json::Value;

use crate::commands::OutputArgs;
use crate::commands::beam::{BeamLinkArgs, cell, member, rows};
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  consign agent show alice@acme.beam.directory")]
pub(crate) struct Args {
    /// Beam-ID of the agent
    beam_id: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let agent = self.link.client()?.beam_agent(&self.beam_id).await?;
        if self.output.json {
            out::json(&agent)?;
            return Ok(Exit::Done);
        }
        out::data(&render::fields(&[
            ("beam id", member(&agent, "beam_id")),
            ("name", member(&agent, "display_name")),
            (
                "capabilities",
                Some(capabilities(&agent)).filter(|text| !text.is_empty()),
            ),
            ("description", member(&agent, "description")),
            ("visibility", member(&agent, "visibility")),
            ("trust", member(&agent, "trust_score")),
            ("created", member(&agent, "created_at")),
            ("last seen", member(&agent, "last_seen")),
            ("connected", member(&agent, "connected")),
        ]))?;
        let keys: Vec<Vec<String>> = rows(&agent["keyState"], "keys")
            .iter()
            .map(|key| {
                vec![
                    cell(key, "publicKey"),
                    cell(key, "status"),
                    time(key, "createdAt"),
                    time(key, "revokedAt"),
                ]
            })
            .collect();
        out::data(&render::table(
            &["PUBLIC KEY", "STATUS", "CREATED", "REVOKED"],
            &keys,
        ))?;
        Ok(Exit::Done)
    }
}

/// A time in milliseconds.
fn time(key: &Value, name: &str) -> String {
    let seconds = key[name].as_f64().map(|ms| ms / 1_000.0);
    seconds.map(render::time).unwrap_or_default()
}

fn capabilities(agent: &Value) -> String {
    let words = rows(agent, "capabilities").iter().filter_map(Value::as_str);
    render::safe(&words.collect::<Vec<_>>().join(", "))
}
