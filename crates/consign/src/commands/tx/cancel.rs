//! `consign tx cancel INTENT`

use serde_json::json;

use super::agent::AgentArgs;
use super::request::{PatienceArgs, patiently, show_dry};
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::ServerArgs;
use crate::{out, render};

const PATH: &str = "/api/atp/cancel";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The intent
    #[arg(value_name = "INTENT")]
    id: String,

    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Show the request instead of sending it
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    patience: PatienceArgs,

    #[command(flatten)]
    agent: AgentArgs,

    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let intent = self.agent.state()?.intent(&self.id)?;
        let mut members = json!({"intent_id": self.id});
        if let Some(reason) = &self.reason {
            members["reason"] = reason.clone().into();
        }
        let body = self.agent.body(intent.as_ref(), &members)?;
        if self.dry_run {
            return show_dry(self.output, PATH, None, &body);
        }
        let client = self.server.client()?;
        let until = self.patience.until(intent.map(|intent| intent.expires_at));
        let told = patiently(until, || client.transactions().cancel(&body)).await?;
        if self.output.json {
            out::data(&told.text)?;
        } else {
            let id = render::safe(&told.body.intent_id);
            out::note(&format!("{id} is withdrawn; nothing was done"));
        }
        Ok(Exit::Done)
    }
}
