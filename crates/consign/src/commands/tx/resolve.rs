//! `consign tx resolve TRANSACTION`

use serde_json::{Value, json};

use super::request::{amount, show_dry_run};
use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

const PATH: &str = "/api/atp/admin/transactions/{transaction_id}/resolve";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The transaction, which must have an alert; see `consign tx list`
    #[arg(value_name = "TRANSACTION")]
    id: String,

    /// The outcome of the effect, or of the pending refund
    #[arg(value_name = "OUTCOME", value_parser = ["charged", "not_charged", "refunded", "not_refunded"])]
    outcome: String,

    /// The evidence
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Show what would be sent and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let body = self.body().to_string();
        if self.dry_run {
            return show_dry_run(self.output, PATH, None, &body);
        }
        let client = self.admin.client()?;
        let reply = client.transactions().resolve(&self.id, &body).await?;
        if self.output.json {
            out::data(&reply.text)?;
            return Ok(Exit::Done);
        }
        let one = &reply.body.transaction;
        out::note(&format!(
            "{} of {} is {}",
            render::safe(&one.transaction_id),
            amount(one.amount_cents, &one.currency),
            render::safe(&one.state),
        ));
        Ok(Exit::Done)
    }

    fn body(&self) -> Value {
        json!({"outcome": self.outcome, "reason": self.reason})
    }
}
