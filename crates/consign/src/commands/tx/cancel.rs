//! `consign tx cancel INTENT`

use consign_transactions::envelope::RequestOperation;
use serde_json::json;

use super::request::{RequestArgs, send_signed};
use crate::failure::Exit;
use crate::{out, render};

const PATH: &str = "/api/atp/cancel";
const REQUEST: &str = "cancel";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    ask: RequestArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let state = self.ask.agent.state()?;
        let intent = state.intent(&self.ask.id)?;
        let mut members = json!({"intent_id": self.ask.id});
        if let Some(reason) = &self.reason {
            members["reason"] = reason.clone().into();
        }
        let signer = self.ask.agent.signer_of(intent.as_ref())?;
        let draft = self
            .ask
            .draft(RequestOperation::Cancel, intent.as_ref(), signer, members)
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
            client.transactions().cancel(key, &body).await
        })
        .await?;
        if self.ask.output.json {
            out::data(&reply.text)?;
        } else {
            let id = render::safe(&reply.body.intent_id);
            out::note(&format!("{id} is withdrawn; nothing was executed"));
        }
        Ok(Exit::Done)
    }
}
