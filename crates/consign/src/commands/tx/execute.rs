//! `consign tx execute INTENT`

use consign_client::{AtpTransaction, Client, ParsedResponse};
use consign_kernel::ids::Micros;
use consign_transactions::envelope::RequestOperation;
use consign_transactions::money::Cents;
use serde_json::{Value, json};

use super::request::{RequestArgs, parsed, send_signed, send_with_retries, transaction_fields};
use crate::failure::{Exit, Failure};
use crate::{out, render};

const PATH: &str = "/api/atp/execute";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Amount, if not the intent's; at most that, or what was signed with --max-spend-cents
    #[arg(long, value_name = "CENTS", value_parser = clap::value_parser!(u64).range(..=Cents::MAX.get()))]
    amount_cents: Option<u64>,

    /// The currency, which must be the intent's
    #[arg(long, value_name = "CODE")]
    currency: Option<String>,

    /// The action, if the intent allows several
    #[arg(long, value_name = "WORD")]
    action: Option<String>,

    /// The summary for the receipt
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,

    /// The number of the execution, for an intent that allows several: the same number is the same
    /// execution
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    nth: u16,

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
                RequestOperation::Execute,
                intent.as_ref(),
                signer,
                self.members(),
            )
            .await?;
        let request = format!("execute-{}", self.nth);
        if self.ask.dry_run {
            return self.ask.show_dry_run(PATH, &request, &draft.shown());
        }
        let client = self.ask.server.client()?;
        let expires_at = match intent {
            Some(intent) => Some(intent.expires_at),
            None => self.intent_end(&client).await?,
        };
        let key = state.request_key(&self.ask.id, &request)?;
        let until = self.ask.patience.until(expires_at);
        let (client, key) = (&client, &key);
        let reply = send_signed(until, &draft, key, |body| async move {
            client.transactions().execute(key, &body).await
        })
        .await?;
        self.show_reply(&reply)?;
        outcome(&reply)
    }

    fn members(&self) -> Value {
        let mut members = json!({"intent_id": self.ask.id});
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members[name] = value;
            }
        };
        add("amount_cents", self.amount_cents.map(Into::into));
        add("currency", self.currency.clone().map(Into::into));
        add("action", self.action.clone().map(Into::into));
        add("summary", self.summary.clone().map(Into::into));
        members
    }

    /// The site knows the expiry of an intent that was signed elsewhere.
    async fn intent_end(&self, client: &Client) -> anyhow::Result<Option<Micros>> {
        let until = self.ask.patience.until(None);
        let shown = send_with_retries(until, || client.transactions().intent(&self.ask.id)).await?;
        Ok(shown.body.expires_at.as_deref().and_then(parsed))
    }

    fn show_reply(&self, answer: &ParsedResponse<AtpTransaction>) -> anyhow::Result<()> {
        if self.ask.output.json {
            return out::data(&answer.text);
        }
        out::data(&transaction_fields(&answer.body))
    }
}

/// Only a settled transaction is a success, so that scripts can rely on the exit code.
fn outcome(answer: &ParsedResponse<AtpTransaction>) -> anyhow::Result<Exit> {
    let transaction = &answer.body;
    let id = render::safe(&transaction.transaction_id);
    if answer.is_open() {
        let message = format!(
            "{id} is still in progress: {}",
            render::safe(&transaction.state)
        );
        return Err(Failure::failed(message)
            .hint("run the same command again; it continues with the same key and charges nothing twice")
            .into());
    }
    if transaction.state == "settled" {
        return Ok(Exit::Done);
    }
    let message = match (&transaction.failure, &transaction.receipt) {
        (Some(failure), None) => format!(
            "{id} was not charged: {}",
            render::safe(&format!("{} ({})", failure.message, failure.code))
        ),
        (None, None) => format!("{id} was not charged"),
        (_, Some(_)) => format!("{id} was settled and then compensated"),
    };
    Err(Failure::failed(message)
        .hint("this is final; create a new intent to try again")
        .into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ended(status: u16, state: &str, more: &Value) -> Result<Exit, String> {
        let mut row = json!({
            "intent_id": "i", "transaction_id": "atp_tx_1", "state": state, "amount_cents": 1, "currency": "EUR",
            "rail": {"name": "null", "reference": "r"}, "created_at": "a", "updated_at": "b",
        });
        for (name, value) in more.as_object().unwrap() {
            row[name] = value.clone();
        }
        let answer = ParsedResponse {
            status,
            retry_after: Some(Duration::ZERO),
            replayed: false,
            text: row.to_string(),
            // Receipts keep their text, so they can only be read from text.
            body: serde_json::from_str(&row.to_string()).unwrap(),
        };
        outcome(&answer).map_err(|error| error.to_string())
    }

    #[test]
    fn only_what_is_settled_is_a_success() {
        assert_eq!(
            ended(200, "settled", &json!({"receipt": {}})),
            Ok(Exit::Done)
        );
        assert_eq!(
            ended(202, "executed", &json!({})).unwrap_err(),
            "atp_tx_1 is still in progress: executed"
        );
        let declined = json!({"failure": {"code": "card_declined", "message": "no funds"}});
        assert_eq!(
            ended(200, "compensated", &declined).unwrap_err(),
            "atp_tx_1 was not charged: no funds (card_declined)"
        );
        assert_eq!(
            ended(200, "compensated", &json!({"receipt": {}})).unwrap_err(),
            "atp_tx_1 was settled and then compensated"
        );
    }
}
