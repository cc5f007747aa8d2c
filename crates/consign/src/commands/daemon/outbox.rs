//! `consign daemon outbox [requeue|drop|prune|inspect]`

use std::collections::HashSet;

use clap::Subcommand;
use consign_mesh::ipc::path;
use consign_mesh::outbox::OutboxStatus;
use consign_mesh::requeue::RequeueCommand;
use serde_json::{Map, Value, json};

use super::inbox::with_query;
use super::{DaemonSelector, columns, lines};
use crate::confirm::confirm;
use crate::failure::{Exit, Failure};
use crate::mesh_member::daemon_link::DaemonLink;

#[derive(Debug, clap::Args)]
pub(super) struct OutboxArgs {
    #[command(flatten)]
    status: OutboxStatusArgs,

    /// The number of rows, at most 500
    #[arg(long, value_name = "N")]
    limit: Option<u32>,

    #[command(subcommand)]
    action: Option<OutboxSubcommand>,
}

/// At most one of them.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the protocol, and clap refuses two of them"
)]
struct OutboxStatusArgs {
    /// Rows that will not be sent any more; their receiver or their age refused them
    #[arg(long, alias = "dead")]
    failed: bool,

    /// Rows that wait to be sent
    #[arg(long)]
    pending: bool,

    /// Rows that were sent and are not acknowledged yet
    #[arg(long)]
    inflight: bool,

    /// Rows that the broker, or the server of intents, accepted
    #[arg(long)]
    done: bool,

    /// Rows that an operator retired
    #[arg(long)]
    aborted: bool,
}

#[derive(Debug, Subcommand)]
enum OutboxSubcommand {
    /// Send a row again under a new id; the old row is retired
    Requeue(RequeueArgs),
    /// Retire a row without sending it
    Drop {
        /// The row
        row_id: String,
    },
    /// Remove delivered rows that are older than the retention
    Prune {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Show a row and the rows that took its place
    Inspect {
        /// The row
        row_id: String,
    },
}

/// The words of the protocol for the row and its new id.
#[derive(Debug, clap::Args)]
struct RequeueArgs {
    /// The row
    row_id: Option<String>,

    /// The row, as a flag
    #[arg(long, value_name = "ROW_ID")]
    id: Option<String>,

    /// Alone, the row; beside a row, the id of the new one
    #[arg(long, value_name = "ID")]
    new_id: Option<String>,

    /// The id of the new row; without it the daemon chooses one
    #[arg(long, value_name = "ID")]
    new_client_id: Option<String>,

    /// Let the daemon choose the new id
    #[arg(long)]
    auto: bool,

    /// Another text for the new row; for an intent another payload, as JSON
    #[arg(long, value_name = "TEXT")]
    patch_payload: Option<String>,
}

impl OutboxArgs {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let link = target.link()?;
        match self.action {
            None => {
                let limit = self.limit.map(|limit| limit.to_string());
                let status = self.status.word();
                let pairs = [("status", status), ("limit", limit.as_deref())];
                let answer = link.get(&with_query(path::OUTBOX, &pairs)).await?;
                target.print(&answer, table)
            }
            Some(OutboxSubcommand::Requeue(args)) => {
                let answer = link.post(path::OUTBOX_REQUEUE, &args.body()?).await?;
                target.print(&answer, lines)
            }
            Some(OutboxSubcommand::Drop { row_id }) => {
                let answer = link.post(path::OUTBOX_DROP, &json!({"id": row_id})).await?;
                target.print(&answer, lines)
            }
            Some(OutboxSubcommand::Prune { yes }) => {
                confirm("Remove delivered rows past their retention?", yes)?;
                let body = json!({"confirm": true});
                let answer = link.post(path::OUTBOX_PRUNE, &body).await?;
                target.print(&answer, lines)
            }
            Some(OutboxSubcommand::Inspect { row_id }) => {
                let items = inspect(&link, &row_id).await?;
                target.print(&json!({"items": items}), table)
            }
        }
    }
}

impl OutboxStatusArgs {
    fn word(&self) -> Option<&'static str> {
        let flags = [
            (self.failed, OutboxStatus::Dead),
            (self.pending, OutboxStatus::Pending),
            (self.inflight, OutboxStatus::Inflight),
            (self.done, OutboxStatus::Done),
            (self.aborted, OutboxStatus::Aborted),
        ];
        let given = flags.into_iter().find(|(is_given, _)| *is_given);
        given.map(|(_, status)| status.as_str())
    }
}

impl RequeueArgs {
    /// The words as they were given, for the rules of the protocol.
    fn words(&self) -> Vec<&str> {
        let mut words: Vec<&str> = self.row_id.as_deref().into_iter().collect();
        let flags = [
            ("--id", &self.id),
            ("--new-id", &self.new_id),
            ("--new-client-id", &self.new_client_id),
            ("--patch-payload", &self.patch_payload),
        ];
        for (flag, value) in flags {
            if let Some(value) = value {
                words.extend([flag, value.as_str()]);
            }
        }
        if self.auto {
            words.push("--auto");
        }
        words
    }

    fn body(&self) -> anyhow::Result<Value> {
        let command = RequeueCommand::parse(&self.words())
            .map_err(|error| Failure::usage(error.to_string()))?;
        let mut body = Map::new();
        body.insert("id".to_owned(), command.row_id.into());
        body.insert("aborted_by".to_owned(), "operator".into());
        if let Some(id) = command.new_client_message_id {
            body.insert("new_client_message_id".to_owned(), id.to_string().into());
        }
        if let Some(message) = command.patch_payload {
            body.insert("message".to_owned(), message.into());
        }
        Ok(body.into())
    }
}

/// The row and those that superseded it, in this order.
async fn inspect(link: &DaemonLink, row_id: &str) -> anyhow::Result<Vec<Value>> {
    let mut chain = Vec::new();
    let mut seen = HashSet::new();
    let mut next = Some(row_id.to_owned());
    while let Some(id) = next.filter(|id| seen.insert(id.clone())) {
        let one = with_query(path::OUTBOX, &[("id", Some(&id))]);
        let answer = link.get(&one).await?;
        let Some(row) = answer["items"].get(0).cloned() else {
            break;
        };
        next = row["superseded_by"].as_str().map(str::to_owned);
        chain.push(row);
    }
    if chain.is_empty() {
        let message = format!("the outbox has no row {row_id}");
        return Err(Failure::new(Exit::Nothing, message).into());
    }
    Ok(chain)
}

fn table(answer: &Value) -> String {
    columns(
        answer,
        "items",
        &[
            "ROW",
            "ID",
            "KIND",
            "TO",
            "STATUS",
            "ENQUEUED",
            "ATTEMPTS",
            "ACCEPTED AS",
            "SUPERSEDED BY",
            "ERROR",
        ],
        &[
            "id",
            "client_message_id",
            "destination_kind",
            "destination_ref",
            "status",
            "enqueued_at",
            "attempts",
            "broker_message_id",
            "superseded_by",
            "last_error",
        ],
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        requeue: RequeueArgs,
    }

    fn body(line: &str) -> Result<Value, String> {
        let words = std::iter::once("requeue").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.kind().to_string())?;
        line.requeue.body().map_err(|error| error.to_string())
    }

    #[test]
    fn cm_081_every_form_of_requeue_names_one_row() {
        let auto = json!({"id": "r1", "aborted_by": "operator"});
        for line in [
            "r1",
            "--id r1",
            "--new-id r1",
            "r1 --auto",
            "--auto --id r1",
        ] {
            assert_eq!(body(line), Ok(auto.clone()), "{line}");
        }
        let named = json!({"id": "r1", "aborted_by": "operator", "new_client_message_id": "c2"});
        for line in [
            "r1 --new-client-id c2",
            "r1 --new-id c2",
            "--id r1 --new-client-id c2",
        ] {
            assert_eq!(body(line), Ok(named.clone()), "{line}");
        }
        let patched = json!({"id": "r1", "aborted_by": "operator", "message": "hi"});
        assert_eq!(body("r1 --patch-payload hi"), Ok(patched));
        assert!(body("").is_err());
        assert!(body("r1 --id r2").is_err());
        assert!(body("r1 --auto --new-client-id c2").is_err());
    }
}
