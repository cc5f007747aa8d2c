//! Steps of an operator on several intents: one result for each, and an exit code for all.

use consign_client::{Client, Error, StatusCode};
use serde::Serialize;

use crate::commands::OutputArgs;
use crate::commands::bulk::BulkBegin;
use crate::confirm::confirm;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

/// What is done with each intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperatorStep {
    Retry,
    Cancel,
    Delete,
}

impl OperatorStep {
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
        }
    }

    pub(crate) const fn done(self) -> &'static str {
        match self {
            Self::Retry => "retried",
            Self::Cancel => "cancelled",
            Self::Delete => "deleted",
        }
    }
}

/// Some intents, and how to ask and answer.
#[derive(Debug, clap::Args)]
pub(crate) struct IdsArgs {
    /// The intents
    #[arg(value_name = "ID", required_unless_present = "filter")]
    ids: Vec<String>,

    #[command(flatten)]
    bulk: BulkBegin,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Show the intents and what would happen, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Serialize)]
struct ItemReport {
    id: String,
    ok: bool,
    /// What was done, or why not.
    result: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

#[derive(Serialize)]
struct OperateReport<'a> {
    action: &'static str,
    dry_run: bool,
    items: &'a [ItemReport],
}

impl IdsArgs {
    /// `among` narrows a filter to the rows that the command is about.
    pub(crate) async fn run(
        self,
        step: OperatorStep,
        force: bool,
        among: fn(&str) -> String,
    ) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        if let Some(filter) = &self.bulk.filter {
            let filter = among(filter);
            let flags = (self.yes, self.dry_run);
            let work = (step.verb(), filter.as_str());
            return self.bulk.run(&client, work, flags, self.output).await;
        }
        if !self.dry_run && step != OperatorStep::Retry {
            let count = self.ids.len();
            let (verb, s) = (step.verb(), if count == 1 { "" } else { "s" });
            confirm(&format!("{verb} {count} intent{s}?"), self.yes)?;
        }
        let (mut items, mut missing, mut refused) = (Vec::new(), 0, 0);
        for id in &self.ids {
            let result = if self.dry_run {
                preview(&client, step, id).await
            } else {
                take(&client, step, id, force).await
            };
            let (ok, result, code) = match result {
                Ok(result) => (true, result, None),
                Err(error) => match item_error(error)? {
                    (StatusCode::NOT_FOUND, code, message) => {
                        missing += 1;
                        (false, message, Some(code))
                    }
                    (_, code, message) => {
                        refused += 1;
                        (false, message, Some(code))
                    }
                },
            };
            items.push(ItemReport {
                id: id.clone(),
                ok,
                result,
                code,
            });
        }
        self.show(step, &items)?;
        Ok(match (refused, missing) {
            (0, 0) => Exit::Done,
            (0, _) => Exit::Nothing,
            (_, _) => Exit::Refused,
        })
    }

    fn show(&self, step: OperatorStep, items: &[ItemReport]) -> anyhow::Result<()> {
        if self.output.json {
            return out::json(&OperateReport {
                action: step.verb(),
                dry_run: self.dry_run,
                items,
            });
        }
        let rows: Vec<Vec<String>> = items
            .iter()
            .map(|item| vec![render::safe(&item.id), render::safe(&item.result)])
            .collect();
        out::data(&render::table(&["ID", "RESULT"], &rows))?;
        if self.dry_run {
            out::note("nothing was changed");
        }
        Ok(())
    }
}

/// Status, code and message of a refusal that concerns one item; every other error ends the command.
fn item_error(error: Error) -> Result<(StatusCode, String, String), Error> {
    let of_item = matches!(
        error.status(),
        Some(StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::BAD_REQUEST)
    );
    if let Error::Refused {
        status,
        code,
        message,
        ..
    } = &error
        && of_item
    {
        return Ok((*status, code.clone(), message.clone()));
    }
    Err(error)
}

async fn take(client: &Client, step: OperatorStep, id: &str, force: bool) -> Result<String, Error> {
    match step {
        OperatorStep::Retry => {
            let now = client.retry_intent(id, force).await?.status;
            Ok(format!("{}, now {now}", step.done()))
        }
        OperatorStep::Cancel => {
            let now = client.cancel_intent(id, force).await?.status;
            Ok(format!("{}, now {now}", step.done()))
        }
        OperatorStep::Delete => {
            client.delete_intent(id).await?;
            Ok(step.done().to_owned())
        }
    }
}

async fn preview(client: &Client, step: OperatorStep, id: &str) -> Result<String, Error> {
    let request = consign_client::SearchRequest {
        filter: format!("id:{}", quoted(id)),
        ..consign_client::SearchRequest::default()
    };
    let found = client.search(&request).await?;
    match found.intents.first() {
        Some(row) => Ok(format!("would {} it; it is {}", step.verb(), row.state)),
        None => Err(Error::Refused {
            status: StatusCode::NOT_FOUND,
            code: "not_found".to_owned(),
            message: "Intent not found.".to_owned(),
            retry_after_s: None,
        }),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
