//! `consign tx authorize INTENT`

use serde_json::json;

use super::agent::{AgentArgs, no_key, sign};
use super::request::{PatienceArgs, patiently, show_dry};
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::ServerArgs;
use crate::{out, render};

const PATH: &str = "/api/atp/authorize";
const REQUEST: &str = "authorize";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The intent
    #[arg(value_name = "INTENT")]
    id: String,

    /// The nonce of an intent that was signed elsewhere
    #[arg(long, value_name = "TEXT")]
    nonce: Option<String>,

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
        let state = self.agent.state()?;
        let intent = state.intent(&self.id)?;
        let kept = intent.as_ref().map(|intent| intent.nonce.clone());
        let Some(nonce) = self.nonce.clone().or(kept) else {
            let message = format!("{} was not signed here", render::safe(&self.id));
            return Err(Failure::usage(message)
                .hint("give its nonce with --nonce, or the agent's directory with --state")
                .into());
        };
        let path = self.agent.key_file()?;
        let signer = self.agent.signer()?;
        let signer = signer.ok_or_else(|| no_key(&path.display().to_string()))?;
        let body = sign(&signer, &json!({"intent_id": self.id, "nonce": nonce}))?;
        if self.dry_run {
            let begun = state.is_begun(&self.id, REQUEST)?;
            return show_dry(self.output, PATH, Some(begun), &body);
        }
        let client = self.server.client()?;
        let until = self.patience.until(intent.map(|intent| intent.expires_at));
        let key = state.request_key(&self.id, REQUEST)?;
        let told = patiently(until, || client.transactions().authorize(&key, &body)).await?;
        if self.output.json {
            out::data(&told.text)?;
            return Ok(Exit::Done);
        }
        let (id, until) = (
            render::safe(&told.body.intent_id),
            render::safe(&told.body.expires_at),
        );
        out::note(&format!(
            "{id} is {}; carry it out before {until} with: consign tx execute {id}",
            render::safe(&told.body.state)
        ));
        Ok(Exit::Done)
    }
}
