//! The topics and named queues of meshes for automations. The two protocols do not know each other.

use consign_automation::config::model::{MeshFeed, MeshSource};
use consign_automation::runtime::{MeshFuture, MeshWork, MessageInbox};
use consign_engine::ExposedQueues as _;
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_mesh::broker::{Broker, automation_queue, queue_namespace, worker_namespace};
use consign_mesh::id::{MeshSlug, QueueName, TopicName};
use serde_json::Value;

#[derive(Debug)]
pub(super) struct BrokerWork(pub(super) Broker);

impl MeshWork for BrokerWork {
    fn inbox(&self, source: &MeshSource) -> Option<MessageInbox> {
        let slug = MeshSlug::parse(&source.mesh).ok()?;
        let queue = match &source.feed {
            MeshFeed::Topic(topic) => automation_queue(&TopicName::parse(topic).ok()?),
            MeshFeed::Queue(queue) => QueueName::parse(queue).ok()?,
        };
        Some(MessageInbox {
            face: Face::Mesh,
            namespace: queue_namespace(queue.as_str()),
            owner: slug.to_string(),
            granted: worker_namespace(&slug, &queue),
        })
    }

    fn open<'a>(&'a self, source: &'a MeshSource) -> MeshFuture<'a> {
        Box::pin(open(&self.0, source))
    }

    fn close_others<'a>(&'a self, sources: &'a [MeshSource]) -> MeshFuture<'a> {
        Box::pin(async move {
            let is_wanted = |mesh: &str, topic: &TopicName| {
                let is_this = |source: &MeshSource| {
                    let named = MeshFeed::Topic(topic.to_string());
                    source.mesh == mesh && source.feed == named
                };
                sources.iter().any(is_this)
            };
            let ended = self.0.end_automatic_subscriptions(is_wanted).await;
            ended.map(drop).map_err(|error| error.to_string())
        })
    }

    fn read(&self, row: &Intent, source: &MeshSource) -> Option<Value> {
        let mut item: Value = serde_json::from_str(&self.0.item(row).payload).ok()?;
        let members = item.as_object_mut()?;
        // Members may send to any queue; only posts that the topic accepted are its posts.
        if let MeshFeed::Topic(topic) = &source.feed
            && members.get("topic").and_then(Value::as_str) != Some(topic.as_str())
        {
            return None;
        }
        members.insert("mesh".to_owned(), source.mesh.clone().into());
        Some(item)
    }
}

/// A queue needs nothing: it keeps what is sent to it.
async fn open(broker: &Broker, source: &MeshSource) -> Result<(), String> {
    let MeshFeed::Topic(topic) = &source.feed else {
        return Ok(());
    };
    let topic = TopicName::parse(topic).map_err(|error| error.to_string())?;
    let subscribed = broker.subscribe_automation(&source.mesh, &topic).await;
    subscribed.map_err(|error| error.to_string())
}
