//! `consign tx list`

use consign_client::AtpTransaction;
use consign_kernel::ids::{Micros, SECOND_US};

use super::request::{amount, now, parsed};
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only transactions in this state
    #[arg(long, value_parser = ["executing", "executed", "settled", "compensated"])]
    state: Option<String>,

    /// Maximal number, up to 200
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: Option<u32>,

    /// Continue after a page: the number it printed
    #[arg(long, value_name = "NEXT", requires = "state")]
    from: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let list = client
            .transactions()
            .list(self.state.as_deref(), self.limit, self.from)
            .await?;
        if self.output.json {
            out::data(&list.text)?;
        } else if list.body.transactions.is_empty() {
            out::note("no transactions");
        } else {
            out::data(&human(&list.body.transactions, now()))?;
            if let (Some(state), Some(next)) = (&self.state, list.body.next) {
                out::note(&format!(
                    "more: consign tx list --state {state} --from {next}"
                ));
            }
        }
        Ok(Exit::Done)
    }
}

fn human(transactions: &[AtpTransaction], now: Micros) -> String {
    let rows: Vec<Vec<String>> = transactions.iter().map(|one| row(one, now)).collect();
    let heading = [
        "TRANSACTION",
        "STATE",
        "AGE",
        "TRIES",
        "AMOUNT",
        "RAIL",
        "REFERENCE",
        "INTENT",
        "ALERT",
    ];
    render::table(&heading, &rows)
}

fn row(transaction: &AtpTransaction, now: Micros) -> Vec<String> {
    let begun = parsed(&transaction.created_at);
    let tries = transaction.attempts.map(|tries| tries.to_string());
    vec![
        render::safe(&transaction.transaction_id),
        render::safe(&transaction.state),
        begun.map_or_else(
            || "-".to_owned(),
            |begun| age(now.0.saturating_sub(begun.0)),
        ),
        tries.unwrap_or_else(|| "-".to_owned()),
        amount(transaction.amount_cents, &transaction.currency),
        render::safe(&transaction.rail.name),
        render::safe(&transaction.rail.reference),
        render::safe(&transaction.intent_id),
        transaction
            .alert
            .as_deref()
            .map(render::safe)
            .unwrap_or_default(),
    ]
}

/// In the largest unit that gives a useful number.
fn age(us: i64) -> String {
    let seconds = us.max(0) / SECOND_US;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_transactions_is_a_table_with_ages() {
        let json = r#"[{"intent_id":"int_1","transaction_id":"atp_tx_1","state":"executing","amount_cents":1500,"currency":"EUR",
            "rail":{"name":"stripe","reference":"atp_5d"},"created_at":"2026-05-25T12:00:00.000Z","updated_at":"2026-05-25T12:00:00.000Z",
            "attempts":3,"alert":"amount\u001bdiffers"}]"#;
        let transactions: Vec<AtpTransaction> = serde_json::from_str(json).unwrap();
        let now = parsed("2026-05-25T12:05:00.000Z").unwrap();
        assert_eq!(
            human(&transactions, now),
            "TRANSACTION  STATE      AGE    TRIES  AMOUNT          RAIL    REFERENCE  INTENT  ALERT\n\
             atp_tx_1     executing  5 min  3      1500 cents EUR  stripe  atp_5d     int_1   amount\\u{1b}differs\n"
        );
    }

    #[test]
    fn an_age_is_told_in_the_unit_that_fits() {
        let ages: Vec<String> = [-1, 119, 120, 7_199, 7_200, 172_799, 172_800]
            .map(|seconds| age(seconds * SECOND_US))
            .to_vec();
        assert_eq!(
            ages,
            ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]
        );
    }
}
