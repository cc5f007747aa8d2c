//! The queues that a topic fills: each post is also an item of every queue that is subscribed.
//!
//! Invariant: the subscriptions are part of the record of the topic, whose version each post expects. So a post fills exactly
//! the queues that are subscribed at its commit.

use consign_engine::Operator;

use super::records::{TopicQueue, TopicRecord};
use super::topics::bare;
use super::{Broker, BrokerError};
use crate::id::{QueueName, TopicName};
use crate::limits::TOPIC_SUBSCRIPTIONS_MAX;

/// Begins the names of the queues that automations work. No namespace of a worker contains a colon.
const AUTOMATION: &str = "automation:";

/// The queue through which a topic reaches an automation.
pub fn automation_queue(topic: &TopicName) -> QueueName {
    let name = format!("{AUTOMATION}{topic}");
    QueueName::parse(&name).expect("a topic is shorter than a queue, and has the same characters")
}

impl Broker {
    /// Lets a topic fill a queue, by the word of an operator. A queue that it fills already is the operator's from now on.
    pub async fn subscribe(
        &self,
        _operator: Operator,
        slug: &str,
        topic: &str,
        queue: &QueueName,
    ) -> Result<TopicRecord, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        self.change_topic(&mesh.id, topic, |topic| {
            match topic.subscription_of(queue) {
                Some(known) => known.by_automation = false,
                None => add(topic, queue.clone(), false)?,
            }
            Ok(())
        })
        .await?;
        self.present_topic(&mesh.id, topic).await
    }

    /// Ends a subscription. The items that are in the queue stay.
    pub async fn unsubscribe(
        &self,
        _operator: Operator,
        slug: &str,
        topic: &str,
        queue: &QueueName,
    ) -> Result<TopicRecord, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        self.change_topic(&mesh.id, topic, |topic| {
            let before = topic.subscriptions.len();
            topic.subscriptions.retain(|known| known.queue != *queue);
            if topic.subscriptions.len() == before {
                return Err(BrokerError::NoSuchSubscription {
                    topic: topic.name.to_string(),
                    queue: queue.to_string(),
                });
            }
            Ok(())
        })
        .await?;
        self.present_topic(&mesh.id, topic).await
    }

    /// Lets a topic fill the queue of automations, unless it does.
    pub async fn subscribe_automation(
        &self,
        slug: &str,
        topic: &TopicName,
    ) -> Result<(), BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        self.change_topic(&mesh.id, topic.as_str(), |topic| {
            let queue = automation_queue(&topic.name);
            if topic.subscription_of(&queue).is_none() {
                add(topic, queue, true)?;
            }
            Ok(())
        })
        .await
    }

    /// Ends all subscriptions of automations except those of the topics that `is_wanted` accepts, by the short name of
    /// their mesh. Returns how many.
    pub async fn end_automatic_subscriptions(
        &self,
        is_wanted: impl Fn(&str, &TopicName) -> bool,
    ) -> Result<u32, BrokerError> {
        let mut ended = 0;
        for mesh in self.meshes(Operator::vouched()).await? {
            for topic in self.topics(&mesh.id).await? {
                let has_one = topic.subscriptions.iter().any(|known| known.by_automation);
                if !has_one || is_wanted(&mesh.slug, &topic.name) {
                    continue;
                }
                self.change_topic(&mesh.id, &topic.id, |topic| {
                    topic.subscriptions.retain(|known| !known.by_automation);
                    Ok(())
                })
                .await?;
                ended += 1;
            }
        }
        Ok(ended)
    }

    async fn present_topic(
        &self,
        mesh_id: &str,
        reference: &str,
    ) -> Result<TopicRecord, BrokerError> {
        let found = self.topic(mesh_id, reference).await?;
        found.ok_or_else(|| BrokerError::NoSuchTopic(bare(reference).to_owned()))
    }
}

fn add(topic: &mut TopicRecord, queue: QueueName, by_automation: bool) -> Result<(), BrokerError> {
    if topic.subscriptions.len() >= TOPIC_SUBSCRIPTIONS_MAX {
        return Err(BrokerError::TooManySubscriptions(topic.name.to_string()));
    }
    topic.subscriptions.push(TopicQueue {
        queue,
        by_automation,
    });
    Ok(())
}

impl TopicRecord {
    fn subscription_of(&mut self, queue: &QueueName) -> Option<&mut TopicQueue> {
        let mut known = self.subscriptions.iter_mut();
        known.find(|known| known.queue == *queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TOPIC_NAME_CHARS_MAX;

    #[test]
    fn every_topic_has_a_queue_for_automations() {
        let longest = "t".repeat(TOPIC_NAME_CHARS_MAX);
        for name in ["alerts", "a/b:c", &longest] {
            let topic = TopicName::parse(name).unwrap();
            assert_eq!(
                automation_queue(&topic).as_str(),
                format!("automation:{name}")
            );
        }
    }
}
