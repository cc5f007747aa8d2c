//! The frames about topics.

use super::MeshLine;
use crate::broker::records::TopicRecord;
use crate::broker::time_text::text_of_ms;
use crate::broker::{BrokerError, NewTopic};
use crate::frame::{
    TopicCreate, TopicCreated, TopicCreatedEntry, TopicEntry, TopicHistory, TopicHistoryResponse,
    TopicJoin, TopicLeave, TopicListResponse, TopicMarkRead, TopicMemberEntry, TopicMembers,
    TopicMembersResponse,
};
use crate::limits::{TOPIC_HISTORY_DEFAULT, TOPIC_HISTORY_MAX};
use crate::role::TopicVisibility;

/// A frame about topics.
pub(super) enum TopicRequest {
    Create(TopicCreate),
    List,
    Join(TopicJoin),
    Leave(TopicLeave),
    Members(TopicMembers),
    History(TopicHistory),
    MarkRead(TopicMarkRead),
}

impl MeshLine {
    pub(super) async fn handle_topic(&self, frame: TopicRequest, req_id: Option<&str>) {
        let handled = self.try_handle_topic(frame, req_id).await;
        self.report(handled, req_id);
    }

    async fn try_handle_topic(
        &self,
        frame: TopicRequest,
        req_id: Option<&str>,
    ) -> Result<(), BrokerError> {
        let (mesh, member) = (self.mesh.id.as_str(), self.member_id.as_str());
        match frame {
            TopicRequest::Create(create) => self.create_topic(create, req_id).await,
            TopicRequest::List => {
                let topics = self.broker.topics(mesh).await?.into_iter();
                let seen = topics.filter(|topic| self.sees(topic));
                let topics = seen.map(topic_entry).collect();
                self.send(TopicListResponse { topics }, req_id);
                Ok(())
            }
            TopicRequest::Join(join) => {
                let topic = join.topic.as_str();
                self.broker.join_topic(mesh, topic, member, join.role).await
            }
            TopicRequest::Leave(leave) => {
                let topic = leave.topic.as_str();
                self.broker.leave_topic(mesh, topic, member).await
            }
            TopicRequest::Members(members) => {
                let topic = self.seen_topic(members.topic.as_str()).await?;
                let members = self.topic_members(&topic).await?;
                self.send(members, req_id);
                Ok(())
            }
            TopicRequest::History(history) => self.topic_history(&history, req_id).await,
            TopicRequest::MarkRead(read) => {
                let topic = read.topic.as_str();
                self.broker.mark_topic_read(mesh, topic, member).await
            }
        }
    }

    async fn create_topic(
        &self,
        create: TopicCreate,
        req_id: Option<&str>,
    ) -> Result<(), BrokerError> {
        let new = NewTopic {
            name: create.name,
            description: create.description,
            visibility: create.visibility.unwrap_or(TopicVisibility::Public),
        };
        let created = self
            .broker
            .create_topic(&self.mesh.id, &self.member_id, new);
        let (topic, created) = created.await?;
        let topic = TopicCreatedEntry {
            id: topic.id,
            name: topic.name.to_string(),
            visibility: topic.visibility,
        };
        self.send(TopicCreated { topic, created }, req_id);
        Ok(())
    }

    /// A topic that is not public is seen by its members alone.
    fn sees(&self, topic: &TopicRecord) -> bool {
        topic.visibility == TopicVisibility::Public || topic.role_of(&self.member_id).is_some()
    }

    async fn seen_topic(&self, reference: &str) -> Result<TopicRecord, BrokerError> {
        let topic = self.broker.topic(&self.mesh.id, reference).await?;
        let topic = topic.filter(|topic| self.sees(topic));
        topic.ok_or_else(|| BrokerError::NoSuchTopic(reference.to_owned()))
    }

    async fn topic_members(
        &self,
        topic: &TopicRecord,
    ) -> Result<TopicMembersResponse, BrokerError> {
        let roster = self.broker.current_roster(&self.mesh.id).await?;
        let reads = self.broker.topic_reads(&topic.id).await?;
        let members = topic.members.iter().filter_map(|member| {
            let known = roster.active(&member.member_id)?;
            Some(TopicMemberEntry {
                member_id: known.id.clone(),
                pubkey: known.pubkey.to_string(),
                display_name: known.display_name.clone(),
                role: member.role,
                joined_at: text_of_ms(member.joined_at),
                last_read_at: reads.get(&known.id).copied().map(text_of_ms),
            })
        });
        Ok(TopicMembersResponse {
            topic: topic.name.to_string(),
            members: members.collect(),
        })
    }

    /// The latest posts first.
    async fn topic_history(
        &self,
        history: &TopicHistory,
        req_id: Option<&str>,
    ) -> Result<(), BrokerError> {
        let topic = self.seen_topic(history.topic.as_str()).await?;
        let limit = history.limit.unwrap_or(TOPIC_HISTORY_DEFAULT);
        let messages = self.broker.topic_history(
            &topic.id,
            history.before_id.as_deref(),
            limit.clamp(1, TOPIC_HISTORY_MAX),
        );
        let response = TopicHistoryResponse {
            topic: topic.name.to_string(),
            messages: messages.await?,
        };
        self.send(response, req_id);
        Ok(())
    }
}

fn topic_entry(topic: TopicRecord) -> TopicEntry {
    TopicEntry {
        id: topic.id,
        name: topic.name.to_string(),
        description: topic.description,
        visibility: topic.visibility,
        member_count: topic.members.len() as u64,
        created_at: text_of_ms(topic.created_at),
    }
}
