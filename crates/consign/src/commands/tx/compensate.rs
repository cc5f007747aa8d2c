//! `consign tx compensate INTENT --reason TEXT`

use consign_client::{AtpTransaction, ParsedResponse};
use consign_transactions::envelope::RequestOperation;
use serde_json::{Value, json};

use super::agent_directory::check_id;
use super::request::{RequestArgs, send_signed, transaction_fields};
use crate::failure::{Exit, Failure};
use crate::{out, render};

const PATH: &str = "/api/atp/compensate";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The reason; the receipt repeats it
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// The transaction, if the intent has several
    #[arg(long, value_name = "ID")]
    transaction: Option<String>,

    #[command(flatten)]
    ask: RequestArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let state = self.ask.agent.state()?;
        let intent = state.intent(&self.ask.id)?;
        let signer = self.ask.agent.signer_of(intent.as_ref())?;
        let draft = self
            .ask
            .draft(
                RequestOperation::Compensate,
                intent.as_ref(),
                signer,
                self.members(),
            )
            .await?;
        let request = self.request()?;
        if self.ask.dry_run {
            return self.ask.show_dry_run(PATH, &request, &draft.shown());
        }
        let client = self.ask.server.client()?;
        let key = state.request_key(&self.ask.id, &request)?;
        // A transaction may be compensated long after its intent has expired.
        let until = self.ask.patience.until(None);
        let (client, key) = (&client, &key);
        let answer = send_signed(until, &draft, key, |body| async move {
            client.transactions().compensate(key, &body).await
        })
        .await?;
        if self.ask.output.json {
            out::data(&answer.text)?;
        } else {
            out::data(&transaction_fields(&answer.body))?;
        }
        let ended = outcome(&answer);
        if ended.is_err() && !answer.is_open() {
            // The rail refused under this key; a new request may succeed.
            state.forget_request(&self.ask.id, &request)?;
        }
        ended
    }

    fn members(&self) -> Value {
        let mut members = json!({"intent_id": self.ask.id, "reason": self.reason});
        if let Some(transaction) = &self.transaction {
            members["transaction_id"] = transaction.clone().into();
        }
        members
    }

    fn request(&self) -> Result<String, Failure> {
        match &self.transaction {
            None => Ok("compensate".to_owned()),
            Some(id) => {
                check_id("the transaction", id)?;
                Ok(format!("compensate-{id}"))
            }
        }
    }
}

fn outcome(answer: &ParsedResponse<AtpTransaction>) -> anyhow::Result<Exit> {
    let transaction = &answer.body;
    let id = render::safe(&transaction.transaction_id);
    if answer.is_open() {
        return Err(Failure::failed(format!("{id} is not compensated yet"))
            .hint("run the same command again; it continues with the same key and refunds nothing twice")
            .into());
    }
    if transaction.state == "compensated" {
        return Ok(Exit::Done);
    }
    let why = transaction
        .failure
        .as_ref()
        .map_or_else(String::new, |failure| {
            render::safe(&format!(": {} ({})", failure.message, failure.code))
        });
    Err(
        Failure::failed(format!("the rail did not refund {id}{why}"))
            .hint("its state is unchanged; run the same command again for a new attempt")
            .into(),
    )
}
