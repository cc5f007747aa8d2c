//! `consign tx show ID`

use consign_client::AtpIntent;

use super::request::{amount, transaction_fields};
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::ServerArgs;
use crate::{out, render};

/// The prefix of transaction ids; agents choose the ids of intents.
const TRANSACTION: &str = "atp_tx_";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The intent, or a transaction (`atp_tx_…`)
    id: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.server.client()?;
        let (text, human) = if self.id.starts_with(TRANSACTION) {
            let shown = client.transactions().transaction(&self.id).await?;
            (shown.text, transaction_fields(&shown.body))
        } else {
            let shown = client.transactions().intent(&self.id).await?;
            (shown.text, summary(&shown.body))
        };
        out::data(if self.output.json { &text } else { &human })?;
        Ok(Exit::Done)
    }
}

fn summary(intent: &AtpIntent) -> String {
    let safe = |text: &Option<String>| text.as_deref().map(render::safe);
    let allowed = intent.data.as_ref();
    let mut text = render::fields(&[
        ("intent", Some(render::safe(&intent.intent_id))),
        ("state", Some(render::safe(&intent.state))),
        ("why", safe(&intent.expired_reason)),
        ("purpose", allowed.map(|data| render::safe(&data.purpose))),
        (
            "executions",
            allowed.map(|data| format!("{} of {}", data.executions, data.max_executions)),
        ),
        (
            "spent",
            allowed.map(|data| amount(data.spent_cents, &data.currency)),
        ),
        (
            "at most",
            allowed
                .filter(|data| data.spend_cap_cents > 0)
                .map(|data| amount(data.spend_cap_cents, &data.currency)),
        ),
        ("created at", safe(&intent.created_at)),
        ("authorized at", safe(&intent.authorized_at)),
        ("expires at", safe(&intent.expires_at)),
    ]);
    for transaction in &intent.transactions {
        text.push('\n');
        text.push_str(&transaction_fields(transaction));
    }
    if intent.more {
        text.push_str("\nthere are more transactions\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_is_shown_with_what_was_done_under_it() {
        let json = r#"{"ok":true,"intent_id":"int_1","state":"settled","created_at":"2026-05-25T12:00:00.000Z",
            "authorized_at":"2026-05-25T12:00:01.000Z","expires_at":"2026-05-25T12:10:00.000Z","more":false,
            "data":{"purpose":"a book\u001b","spend_cap_cents":3000,"spent_cents":1500,"currency":"EUR","max_executions":1,"executions":1},
            "transactions":[{"intent_id":"int_1","transaction_id":"atp_tx_1","state":"settled","amount_cents":1500,"currency":"EUR",
            "rail":{"name":"null","reference":"atp_5d"},"receipt":{"receipt_id":"atp_rcpt_1"},
            "created_at":"2026-05-25T12:00:02.000Z","updated_at":"2026-05-25T12:00:05.000Z"}]}"#;
        let intent: AtpIntent = serde_json::from_str(json).unwrap();
        assert_eq!(
            summary(&intent),
            "intent         int_1\n\
             state          settled\n\
             purpose        a book\\u{1b}\n\
             executions     1 of 1\n\
             spent          1500 cents EUR\n\
             at most        3000 cents EUR\n\
             created at     2026-05-25T12:00:00.000Z\n\
             authorized at  2026-05-25T12:00:01.000Z\n\
             expires at     2026-05-25T12:10:00.000Z\n\
             \n\
             transaction   atp_tx_1\n\
             intent        int_1\n\
             state         settled\n\
             amount        1500 cents EUR\n\
             rail          null\n\
             reference     atp_5d\n\
             begun at      2026-05-25T12:00:02.000Z\n\
             changed at    2026-05-25T12:00:05.000Z\n\
             receipt       atp_rcpt_1\n"
        );
    }
}
