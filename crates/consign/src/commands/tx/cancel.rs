//! `consign tx cancel INTENT`

use serde_json::json;

use super::request::{RequestArgs, patiently, show_dry};
use crate::failure::Exit;
use crate::{out, render};

const PATH: &str = "/api/atp/cancel";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    ask: RequestArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let intent = self.ask.agent.state()?.intent(&self.ask.id)?;
        let mut members = json!({"intent_id": self.ask.id});
        if let Some(reason) = &self.reason {
            members["reason"] = reason.clone().into();
        }
        let body = self.ask.agent.body(intent.as_ref(), &members)?;
        if self.ask.dry_run {
            return show_dry(self.ask.output, PATH, None, &body);
        }
        let client = self.ask.server.client()?;
        let until = self
            .ask
            .patience
            .until(intent.map(|intent| intent.expires_at));
        let told = patiently(until, || client.transactions().cancel(&body)).await?;
        if self.ask.output.json {
            out::data(&told.text)?;
        } else {
            let id = render::safe(&told.body.intent_id);
            out::note(&format!("{id} is withdrawn; nothing was done"));
        }
        Ok(Exit::Done)
    }
}
