//! `consign intent fulfil ID --token T`

use consign_client::{Output, SecretKey};
use serde::Serialize;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::LinkArgs;
use crate::{input, out};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The claimed intent
    id: String,

    /// Token from the claim
    #[arg(long)]
    token: SecretKey,

    /// Result: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", conflicts_with = "text")]
    result: Option<String>,

    /// Result as plain text: TEXT, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

/// What it prints with `--json`.
#[derive(Serialize)]
struct SettledOutput<'a> {
    ok: bool,
    id: &'a str,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let output = match (&self.result, &self.text) {
            (Some(json), _) => Some(Output::Json(input::json("result", json)?)),
            (None, Some(text)) => Some(Output::Text(input::text("result", text)?)),
            (None, None) => None,
        };
        let client = self.link.client()?;
        client
            .fulfil(&self.id, self.token.reveal(), output.as_ref())
            .await?;
        if self.output.json {
            out::json(&SettledOutput {
                ok: true,
                id: &self.id,
            })?;
        } else {
            out::note(&format!("{} is fulfilled", self.id));
        }
        Ok(Exit::Done)
    }
}
