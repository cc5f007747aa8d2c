//! `consign daemon topic post|subscribe|unsubscribe|list`

use clap::Subcommand;
use consign_mesh::daemon::cold_path::ColdPath;
use consign_mesh::id::TopicName;
use consign_mesh::ipc::path;
use serde_json::{Value, json};

use super::send::MessageArgs;
use super::{DaemonSelector, columns, lines};
use crate::commands::mesh::send::cold_failure;
use crate::failure::{Exit, Failure};
use crate::mesh_member::home::broker_override;

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
    /// Create a topic; this member becomes its lead
    Create { topic: String },
    /// List the topics of the mesh
    List,
}

impl TopicSubcommand {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
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
            Self::Create { topic } => create(target, &topic).await?,
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

/// The daemon's interface has no request for this, so the command asks the broker itself, as a session of the member.
async fn create(target: &DaemonSelector, topic: &str) -> anyhow::Result<Value> {
    let (home, slug) = target.place()?;
    let name = TopicName::parse(topic.strip_prefix('#').unwrap_or(topic))
        .map_err(|error| Failure::usage(error.to_string()))?;
    let mesh = home.membership(&slug)?;
    let named = broker_override();
    let cold = ColdPath {
        mesh: &mesh,
        broker_url: named.as_deref().unwrap_or(&mesh.broker_url),
        display_name: home.display_name()?,
    };
    let created = cold.create_topic(name).await;
    let created = created.map_err(|error| cold_failure(&error))?;
    Ok(json!({
        "id": created.topic.id,
        "topic": created.topic.name,
        "created": created.created,
    }))
}
