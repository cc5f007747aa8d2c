//! Reads of accepted messages: what became of one, and the history of a topic.

use consign_engine::{Error, IntentFilter};
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;
use serde_json::json;

use super::accept::{MeshPayload, MeshSender, member_capability};
use super::time_text::text_of_us;
use super::{Broker, BrokerError};
use crate::frame::{MessageStatusResult, RawJson, TopicHistoryEntry};
use crate::id::BrokerMessageId;

/// Recipients of a message that its status names.
const RECIPIENTS_MAX: u32 = 1_000;

impl Broker {
    /// What became of a message, for its sender and its recipients. `None` for any other.
    pub(crate) async fn message_status(
        &self,
        asking: &MeshSender,
        message_id: &str,
    ) -> Result<Option<MessageStatusResult>, Error> {
        let Ok(id) = BrokerMessageId::parse(message_id) else {
            return Ok(None);
        };
        let id = IntentId(id.to_bytes());
        let Some(row) = self.message(&asking.mesh.id, id).await? else {
            return Ok(None);
        };
        let Some(stored) = MeshPayload::parse(&row.payload) else {
            return Ok(None);
        };
        let children = self.engine().children(id, RECIPIENTS_MAX).await?;
        let deliveries: Vec<&Intent> = children
            .iter()
            .filter(|row| row.profile == ProfileId::MeshDelivery)
            .collect();
        let is_recipient = |row: &&Intent| row.owner == asking.member_id;
        let is_sender = row.ties.sender.as_ref() == Some(&asking.member_id);
        if !is_sender && !deliveries.iter().any(is_recipient) {
            return Ok(None);
        }
        let roster = self.roster(&asking.mesh.id).await?;
        let settled = deliveries.iter().filter(|row| row.state == State::Acked);
        let first = settled.filter_map(|row| row.settled_at).min();
        let lane = member_capability();
        let recipients = deliveries.iter().filter_map(|row| {
            let member = roster.active(&row.owner);
            let session = row.capability.as_ref().filter(|name| **name != lane);
            let entry = json!({
                "memberId": row.owner,
                "pubkey": member.map(|member| member.pubkey),
                "displayName": member.map(|member| &member.display_name),
                "sessionPubkey": session,
                "delivered": row.state == State::Acked,
                "deliveredAt": row.settled_at.map(|at| text_of_us(at.0)),
            });
            RawJson::parse(&entry.to_string())
        });
        Ok(Some(MessageStatusResult {
            message_id: message_id.to_owned(),
            target_spec: stored.target_spec.clone(),
            delivered: row.state == State::Delivered,
            delivered_at: first.map(|at| text_of_us(at.0)),
            recipients: recipients.collect(),
        }))
    }

    async fn message(&self, mesh_id: &str, id: IntentId) -> Result<Option<Intent>, Error> {
        let found = self.engine().stored_intent(id).await?;
        let is_message =
            |row: &Intent| row.profile == ProfileId::MeshMessage && row.namespace == mesh_id;
        Ok(found.filter(is_message))
    }

    /// Posts to a topic, the latest first, before one of them.
    pub(crate) async fn topic_history(
        &self,
        topic_id: &str,
        before_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<TopicHistoryEntry>, BrokerError> {
        let mut before = None;
        if let Some(id) = before_id.and_then(|id| BrokerMessageId::parse(id).ok()) {
            let row = self.engine().stored_intent(IntentId(id.to_bytes())).await?;
            before = row.map(|row| row.seq);
        }
        let mut entries = Vec::new();
        loop {
            let filter = IntentFilter {
                face: Face::Mesh,
                owner: Some(topic_id.to_owned()),
                namespace: None,
                goal: None,
                state: None,
                before,
                limit,
            };
            let page = self.engine().intents(filter).await?;
            let posts = page.intents.iter().filter_map(|row| {
                let stored = MeshPayload::parse(&row.payload)?;
                Some(stored.to_history(row))
            });
            entries.extend(posts);
            before = page.next;
            if before.is_none() || entries.len() >= limit as usize {
                entries.truncate(limit as usize);
                return Ok(entries);
            }
        }
    }
}
