//! Items of named queues as work for workers of another protocol: each queue of a mesh is under a reserved namespace.
//!
//! The queue `builds` of the mesh `acme` has the namespace `mesh.acme.builds`. Short names of meshes contain no dot, so each
//! namespace belongs to one queue. A queue whose namespace has more than [`NAMESPACE_CHARS_MAX`] characters, or others than
//! namespaces may have, has none.

use consign_engine::{ExposedItem, ExposedQueue, ExposedQueues, InvalidQueueName};
use consign_kernel::intent::Intent;
use consign_kernel::limits::NAMESPACE_CHARS_MAX;
use consign_kernel::profile::{Face, ProfileId};
use serde_json::Value;

use super::{Broker, queue_namespace};
use crate::id::{MeshSlug, QueueName};

const PREFIX: &str = "mesh.";

/// The mesh and the queue of a reserved namespace.
pub fn queue_of_namespace(namespace: &str) -> Result<(MeshSlug, QueueName), InvalidQueueName> {
    let invalid = || {
        let text = format!(
            "{namespace} names no queue: the queue QUEUE of the mesh SLUG has {PREFIX}SLUG.QUEUE, at most {NAMESPACE_CHARS_MAX} characters"
        );
        InvalidQueueName(text)
    };
    if namespace.len() > NAMESPACE_CHARS_MAX {
        return Err(invalid());
    }
    let name = namespace.strip_prefix(PREFIX).ok_or_else(invalid)?;
    let (slug, queue) = name.split_once('.').ok_or_else(invalid)?;
    let slug = MeshSlug::parse(slug).map_err(|_| invalid())?;
    let queue = QueueName::parse(queue).map_err(|_| invalid())?;
    Ok((slug, queue))
}

/// The reserved namespace of a queue, also if it is too long for a worker.
pub fn worker_namespace(slug: &MeshSlug, queue: &QueueName) -> String {
    format!("{PREFIX}{slug}.{queue}")
}

impl ExposedQueues for Broker {
    fn prefix(&self) -> &'static str {
        PREFIX
    }

    /// Rows have the short name of their mesh as owner.
    fn find(&self, namespace: &str) -> Result<ExposedQueue, InvalidQueueName> {
        let (slug, queue) = queue_of_namespace(namespace)?;
        Ok(ExposedQueue {
            face: Face::Mesh,
            namespace: queue_namespace(queue.as_str()),
            owner: slug.to_string(),
        })
    }

    fn owns(&self, profile: ProfileId) -> bool {
        profile == ProfileId::MeshQueue
    }

    fn item(&self, row: &Intent) -> ExposedItem {
        let work: Value = serde_json::from_str(&row.payload).unwrap_or_default();
        let text = |name: &str| work[name].as_str().map(str::to_owned);
        let queue = row.namespace.strip_prefix(PREFIX);
        ExposedItem {
            namespace: format!("{PREFIX}{}.{}", row.owner, queue.unwrap_or_default()),
            payload: row.payload.clone(),
            source: vec![
                ("mesh", Some(row.owner.clone())),
                ("topic", text("topic")),
                ("message_id", text("message_id")),
                ("client_message_id", text("client_message_id")),
                ("sender", text("sender_pubkey")),
                ("sender_name", text("sender_name")),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_names_one_queue_of_one_mesh() {
        for (namespace, slug, queue) in [
            ("mesh.acme.builds", "acme", "builds"),
            ("mesh.acme.builds.linux", "acme", "builds.linux"),
            ("mesh.a-1.q_2", "a-1", "q_2"),
        ] {
            let (found, name) = queue_of_namespace(namespace).unwrap();
            assert_eq!((found.as_str(), name.as_str()), (slug, queue));
        }
        let long = format!("mesh.acme.{}", "q".repeat(60));
        for namespace in [
            "mesh.",
            "mesh.builds",
            "mesh..builds",
            "mesh.acme.",
            "mesh.Acme.builds",
            "beam.bob.acme",
            "default",
            &long,
        ] {
            let error = queue_of_namespace(namespace).unwrap_err();
            assert!(error.0.contains("names no queue"), "{namespace}: {error}");
        }
    }
}
