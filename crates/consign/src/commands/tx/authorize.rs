//! `consign tx authorize INTENT`

use consign_transactions::envelope::RequestOperation;
use serde_json::json;

use super::agent::no_key;
use super::request::{RequestArgs, send_signed};
use crate::failure::{Exit, Failure};
use crate::{out, render};

const PATH: &str = "/api/atp/authorize";
const REQUEST: &str = "authorize";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The nonce of an intent that was signed elsewhere
    #[arg(long, value_name = "TEXT")]
    nonce: Option<String>,

    #[command(flatten)]
    ask: RequestArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let state = self.ask.agent.state()?;
        let intent = state.intent(&self.ask.id)?;
        let kept = intent.as_ref().map(|intent| intent.nonce.clone());
        let Some(nonce) = self.nonce.clone().or(kept) else {
            let message = format!("{} was not signed here", render::safe(&self.ask.id));
            return Err(Failure::usage(message)
                .hint("give its nonce with --nonce, or the agent's directory with --state")
                .into());
        };
        let path = self.ask.agent.key_file()?;
        let signer = self.ask.agent.signer()?;
        let signer = signer.ok_or_else(|| no_key(&path.display().to_string()))?;
        let members = json!({"intent_id": self.ask.id, "nonce": nonce});
        let draft = self
            .ask
            .draft(
                RequestOperation::Authorize,
                intent.as_ref(),
                Some(signer),
                members,
            )
            .await?;
        if self.ask.dry_run {
            return self.ask.show_dry_run(PATH, REQUEST, &draft.shown());
        }
        let client = self.ask.server.client()?;
        let until = self
            .ask
            .patience
            .until(intent.map(|intent| intent.expires_at));
        let key = state.request_key(&self.ask.id, REQUEST)?;
        let (client, key) = (&client, &key);
        let reply = send_signed(until, &draft, key, |body| async move {
            client.transactions().authorize(key, &body).await
        })
        .await?;
        if self.ask.output.json {
            out::data(&reply.text)?;
            return Ok(Exit::Done);
        }
        let (id, until) = (
            render::safe(&reply.body.intent_id),
            render::safe(&reply.body.expires_at),
        );
        out::note(&format!(
            "{id} is {}; carry it out before {until} with: consign tx execute {id}",
            render::safe(&reply.body.state)
        ));
        Ok(Exit::Done)
    }
}
