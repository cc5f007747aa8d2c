//! `consign dead show ID`

use consign_client::DeadLetter;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The intent
    id: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let letter = self.admin.client()?.dead_letter(&self.id).await?;
        if self.output.json {
            out::json(&letter)?;
        } else {
            out::data(&human(&letter))?;
        }
        Ok(Exit::Done)
    }
}

fn human(letter: &DeadLetter) -> String {
    let payload = letter.payload.as_deref();
    render::fields(&[
        ("id", Some(letter.intent_id.clone())),
        ("goal", Some(render::safe(&letter.goal))),
        ("namespace", Some(render::safe(&letter.namespace))),
        ("publisher", letter.publisher.as_deref().map(render::safe)),
        ("attempts", Some(letter.attempts.to_string())),
        ("died", letter.created_at.map(render::time)),
        (
            "payload",
            payload.map(|payload| render::safe(payload.get())),
        ),
        ("reason", Some(render::block(&letter.reason, 4))),
    ])
}
