//! Where the messages come from that start pipelines: an agent of the message bus, or a topic or queue of a mesh.

use std::fmt;
use std::sync::Arc;

use consign_kernel::intent::Intent;
use serde_json::{Value, json};

use super::message_bus::{IncomingMessage, MeshWork, MessageBus, MessageInbox};
use crate::config::model::{MeshSource, ReceivedMessages};
use crate::nesting::is_too_deep;

/// The member of an item whose nesting its sender chooses.
const META: &str = "meta";

pub(super) enum MessageSource {
    Agent {
        bus: Arc<dyn MessageBus>,
        agent: String,
        intent: String,
    },
    Mesh {
        mesh: Arc<dyn MeshWork>,
        source: MeshSource,
    },
}

impl MessageSource {
    pub(super) fn agent(bus: &Arc<dyn MessageBus>, received: &ReceivedMessages) -> Self {
        Self::Agent {
            bus: Arc::clone(bus),
            agent: received.agent.clone(),
            intent: received.intent.clone(),
        }
    }

    pub(super) fn mesh(mesh: &Arc<dyn MeshWork>, source: &MeshSource) -> Self {
        Self::Mesh {
            mesh: Arc::clone(mesh),
            source: source.clone(),
        }
    }

    pub(super) fn inbox(&self) -> Option<MessageInbox> {
        match self {
            Self::Agent { bus, agent, .. } => bus.inbox(agent),
            Self::Mesh { mesh, source } => mesh.inbox(source),
        }
    }

    /// The goal of the rows; `None` if the inbox has no others.
    pub(super) fn goal(&self) -> Option<String> {
        match self {
            Self::Agent { intent, .. } => Some(intent.clone()),
            Self::Mesh { .. } => None,
        }
    }

    /// The grant alone opens the inbox of an agent.
    pub(super) async fn open(&self) -> Result<(), String> {
        match self {
            Self::Agent { .. } => Ok(()),
            Self::Mesh { mesh, source } => mesh.open(source).await,
        }
    }

    /// The payload of the event; `None` if the row is no message of this source.
    pub(super) fn payload(&self, row: &Intent) -> Option<Value> {
        match self {
            Self::Agent { bus, .. } => bus.read(row).map(|message| of_agent(row, message)),
            Self::Mesh { mesh, source } => mesh.read(row, source).map(of_mesh),
        }
    }
}

impl fmt::Display for MessageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent { agent, intent, .. } => write!(f, "{intent} for {agent}"),
            Self::Mesh { source, .. } => source.fmt(f),
        }
    }
}

fn of_agent(row: &Intent, message: IncomingMessage) -> Value {
    let sent = serde_json::from_str(&message.payload).ok();
    let sent: Option<Value> = sent.filter(|sent| !is_too_deep(sent));
    json!({
        "message_id": row.id.to_string(),
        "from": message.sender,
        "to": row.owner,
        "intent": row.goal,
        "nonce": message.nonce,
        "trace_id": message.trace_id,
        "payload": sent.unwrap_or_else(|| Value::from(message.payload)),
    })
}

/// A nesting that steps could not read stays as text.
fn of_mesh(mut item: Value) -> Value {
    if is_too_deep(&item)
        && let Some(meta) = item.get_mut(META)
    {
        *meta = Value::from(meta.to_string());
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nesting::LEVELS_MAX;

    #[test]
    fn a_meta_that_is_nested_too_deeply_becomes_text() {
        let nested = |levels| (0..levels).fold(Value::Null, |inner, _| json!([inner]));
        let fits = json!({"meta": nested(LEVELS_MAX - 1)});
        assert_eq!(of_mesh(fits.clone()), fits);
        let deep = of_mesh(json!({"meta": nested(LEVELS_MAX)}));
        assert!(deep["meta"].is_string(), "{deep}");
    }
}
