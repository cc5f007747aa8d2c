//! `consign daemon publish GOAL JSON`

use consign_client::Publish;
use consign_mesh::ipc::path;
use serde::Serialize;

use super::{DaemonSelector, lines};
use crate::commands::intent::IntentArgs;
use crate::failure::Exit;

pub(super) const AFTER_HELP: &str = "\
The daemon answers when the intent is on disk, and publishes it as soon as the server can be reached.
It needs an API key of the server: api_key_file in [intents] of config.toml; without url there, the server
is the one of the broker. See what became of it with: consign daemon outbox";

#[derive(Debug, clap::Args)]
pub(super) struct PublishArgs {
    #[command(flatten)]
    intent: IntentArgs,

    /// The id of the request; the same id publishes once, also after a failure
    #[arg(long = "id", value_name = "ID")]
    client_message_id: Option<String>,
}

#[derive(Serialize)]
struct PublishBody<'a> {
    #[serde(flatten)]
    publish: &'a Publish,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_message_id: Option<&'a str>,
}

impl PublishArgs {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let publish = self.intent.request()?;
        let body = PublishBody {
            publish: &publish,
            client_message_id: self.client_message_id.as_deref(),
        };
        let body = serde_json::to_string(&body)?;
        let answer = target.link()?.post_text(path::INTENTS, body).await?;
        target.print(&answer, lines)
    }
}
