//! `consign receipt list [INTENT]`

use consign_client::AtpTransaction;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The intent; without it, receipts of the site's latest transactions, which needs the admin
    /// token
    #[arg(value_name = "INTENT")]
    intent: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let receipts = if let Some(intent) = &self.intent {
            let client = self.admin.public_client()?;
            let shown = client.transactions().receipts_of(intent).await?;
            shown.body.receipts
        } else {
            let client = self.admin.client()?;
            let mut transactions = Vec::new();
            for state in ["settled", "compensated"] {
                let list = client.transactions().list(Some(state), None, None).await?;
                transactions.extend(list.body.transactions);
            }
            transactions.into_iter().flat_map(both).collect()
        };
        if self.output.json {
            out::json(&receipts)?;
        } else if receipts.is_empty() {
            out::note("no receipts");
        } else {
            out::data(&human(&receipts))?;
        }
        Ok(Exit::Done)
    }
}

fn both(transaction: AtpTransaction) -> impl Iterator<Item = Box<RawValue>> {
    [transaction.receipt, transaction.compensation_receipt]
        .into_iter()
        .flatten()
}

fn human(receipts: &[Box<RawValue>]) -> String {
    let rows: Vec<Vec<String>> = receipts.iter().map(|receipt| row(receipt.get())).collect();
    render::table(&["RECEIPT", "TYPE", "ISSUED", "AMOUNT", "INTENT"], &rows)
}

fn row(receipt: &str) -> Vec<String> {
    let receipt: Value = serde_json::from_str(receipt).unwrap_or_default();
    let word = |value: &Value| value.as_str().map_or_else(|| "-".to_owned(), render::safe);
    vec![
        word(&receipt["receipt_id"]),
        word(&receipt["type"]),
        word(&receipt["issued_at"]),
        super::site::amount_of(&receipt),
        word(&receipt["intent_id"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_receipts_is_a_table() {
        let receipts: Vec<Box<RawValue>> = serde_json::from_str(
            r#"[{"receipt_id":"atp_rcpt_1","type":"atp.receipt.v1","issued_at":"2026-05-25T12:00:05.250Z","intent_id":"int_1",
                 "transaction":{"amount_cents":1500,"currency":"EUR"}},
                {"receipt_id":"atp_comp_1","type":"atp.compensation.v1","issued_at":"2026-05-25T13:00:00.000Z","intent_id":"int_1",
                 "compensated_cents":1500,"currency":"EUR"}]"#,
        )
        .unwrap();
        assert_eq!(
            human(&receipts),
            "RECEIPT     TYPE                 ISSUED                    AMOUNT          INTENT\n\
             atp_rcpt_1  atp.receipt.v1       2026-05-25T12:00:05.250Z  1500 cents EUR  int_1\n\
             atp_comp_1  atp.compensation.v1  2026-05-25T13:00:00.000Z  1500 cents EUR  int_1\n"
        );
    }
}
