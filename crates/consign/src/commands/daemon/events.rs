//! `consign daemon events`: follows the event stream until the daemon ends or the command is interrupted.

use serde_json::{Value, json};

use super::DaemonSelector;
use crate::failure::{Exit, Failure};
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(super) struct EventsArgs {
    /// Only events of this kind, such as message; may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,

    /// End after so many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

impl EventsArgs {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let mut events = target.link()?.events(None).await?;
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            let Some(event) = events.next().await? else {
                return Err(Failure::new(Exit::Unreachable, "the daemon ended the stream").into());
            };
            if !self.kinds.is_empty() && !self.kinds.contains(&event.event) {
                continue;
            }
            if target.json {
                let data = serde_json::from_str(&event.data).unwrap_or(Value::Null);
                out::json(&json!({"id": event.id, "event": event.event, "data": data}))?;
            } else {
                let (kind, data) = (render::safe(&event.event), render::safe(&event.data));
                out::data(&format!("{kind}  {data}"))?;
            }
            left -= 1;
        }
        Ok(Exit::Done)
    }
}
