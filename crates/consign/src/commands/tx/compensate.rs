//! `consign tx compensate INTENT --reason TEXT`

use consign_client::{Told, Transaction};
use serde_json::{Value, json};

use super::agent::AgentArgs;
use super::request::{PatienceArgs, patiently, show_dry, told};
use super::state::check_id;
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::ServerArgs;
use crate::{out, render};

const PATH: &str = "/api/atp/compensate";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The intent
    #[arg(value_name = "INTENT")]
    id: String,

    /// Why; the receipt repeats it
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Which transaction, if there are several under the intent
    #[arg(long, value_name = "ID")]
    transaction: Option<String>,

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
        let body = self.agent.body(intent.as_ref(), &self.members())?;
        let request = self.request()?;
        if self.dry_run {
            let begun = state.is_begun(&self.id, &request)?;
            return show_dry(self.output, PATH, Some(begun), &body);
        }
        let client = self.server.client()?;
        let key = state.request_key(&self.id, &request)?;
        // What was done may be undone long after the intent has expired.
        let until = self.patience.until(None);
        let answer = patiently(until, || client.transactions().compensate(&key, &body)).await?;
        if self.output.json {
            out::data(&answer.text)?;
        } else {
            out::data(&told(&answer.body))?;
        }
        let ended = outcome(&answer);
        if ended.is_err() && !answer.is_open() {
            // The rail will not do it under this key, but perhaps when it is asked anew.
            state.forget_request(&self.id, &request)?;
        }
        ended
    }

    fn members(&self) -> Value {
        let mut members = json!({"intent_id": self.id, "reason": self.reason});
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

fn outcome(answer: &Told<Transaction>) -> anyhow::Result<Exit> {
    let transaction = &answer.body;
    let id = render::safe(&transaction.transaction_id);
    if answer.is_open() {
        return Err(Failure::failed(format!("{id} is not undone yet"))
            .hint("type the same again; it goes on under the same key and refunds nothing twice")
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
    Err(Failure::failed(format!("the rail did not undo {id}{why}"))
        .hint("it stays as it is; type the same again to ask anew")
        .into())
}
