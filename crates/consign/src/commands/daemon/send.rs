//! `consign daemon send TO MESSAGE`

use consign_mesh::ipc::path;
use serde_json::{Map, Value};

use super::{DaemonSelector, lines};
use crate::failure::Exit;
use crate::input;

#[derive(Debug, clap::Args)]
pub(super) struct SendArgs {
    /// A key, the beginning of a key, a name, #topic, @group, queue:NAME or *
    #[arg(value_name = "TO")]
    to: String,

    #[command(flatten)]
    message: MessageArgs,
}

/// A message and what goes with it.
#[derive(Debug, clap::Args)]
pub(crate) struct MessageArgs {
    /// The text; `-` reads standard input, `@FILE` a file
    #[arg(value_name = "MESSAGE")]
    message: String,

    /// now, next or low
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<String>,

    /// A JSON object that travels with the message
    #[arg(long, value_name = "JSON")]
    meta: Option<String>,

    /// The message that is answered, by its id at the broker
    #[arg(long, value_name = "ID")]
    reply_to: Option<String>,

    /// The id of the message; the same id sends it once, also after a failure
    #[arg(long = "id", value_name = "ID")]
    client_message_id: Option<String>,
}

impl SendArgs {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let mut body = self.message.body()?;
        body.insert("to".to_owned(), self.to.into());
        let answer = target.link()?.post(path::SEND, &body.into()).await?;
        target.print(&answer, lines)
    }
}

impl MessageArgs {
    /// The members of a request, without its recipient.
    pub(crate) fn body(&self) -> anyhow::Result<Map<String, Value>> {
        let mut body = Map::new();
        let text = input::text("the message", &self.message)?;
        body.insert("message".to_owned(), text.into());
        if let Some(meta) = &self.meta {
            let meta = input::json("meta", meta)?;
            body.insert("meta".to_owned(), serde_json::from_str(meta.get())?);
        }
        let optional = [
            ("priority", &self.priority),
            ("reply_to_id", &self.reply_to),
            ("client_message_id", &self.client_message_id),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                body.insert(key.to_owned(), value.clone().into());
            }
        }
        Ok(body)
    }
}
