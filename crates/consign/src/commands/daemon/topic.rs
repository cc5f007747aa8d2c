//! `consign daemon topic post|subscribe|unsubscribe|list`

use clap::Subcommand;
use consign_mesh::ipc::path;
use serde_json::json;

use super::send::MessageArgs;
use super::{DaemonTarget, columns, lines};
use crate::failure::Exit;

#[derive(Debug, Subcommand)]
pub(super) enum TopicSubcommand {
    /// Post a message to a topic
    Post {
        topic: String,
        /// A member to notify, by name or key; may be repeated
        #[arg(long = "mention", value_name = "MEMBER")]
        mentions: Vec<String>,
        #[command(flatten)]
        message: MessageArgs,
    },
    /// Receive the messages of a topic
    Subscribe { topic: String },
    /// Stop receiving the messages of a topic
    Unsubscribe { topic: String },
    /// List the topics of the mesh
    List,
}

impl TopicSubcommand {
    pub(super) async fn run(self, target: &DaemonTarget) -> anyhow::Result<Exit> {
        let link = target.link()?;
        let answer = match self {
            Self::Post {
                topic,
                mentions,
                message,
            } => {
                let mut body = message.body()?;
                body.insert("topic".to_owned(), topic.into());
                if !mentions.is_empty() {
                    body.insert("mentions".to_owned(), mentions.into());
                }
                link.post(path::TOPIC_POST, &body.into()).await?
            }
            Self::Subscribe { topic } => {
                let body = json!({"topic": topic});
                link.post(path::TOPIC_SUBSCRIBE, &body).await?
            }
            Self::Unsubscribe { topic } => {
                let body = json!({"topic": topic});
                link.post(path::TOPIC_UNSUBSCRIBE, &body).await?
            }
            Self::List => {
                let answer = link.get(path::TOPIC_LIST).await?;
                return target.print(&answer, |answer| {
                    columns(
                        answer,
                        "topics",
                        &["NAME", "MEMBERS", "SUBSCRIBED", "VISIBILITY", "DESCRIPTION"],
                        &[
                            "name",
                            "memberCount",
                            "subscribed",
                            "visibility",
                            "description",
                        ],
                    )
                });
            }
        };
        target.print(&answer, lines)
    }
}
