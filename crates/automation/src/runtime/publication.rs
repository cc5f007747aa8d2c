//! Publishes the payloads of webhooks as intents.

use consign_engine::{Error, Publication, PublicationKey};
use consign_kernel::ids::SECOND_US;
use consign_kernel::limits;
use serde_json::Value;

use super::lifecycle::Runtime;
use super::trigger::Enqueued;
use crate::config::model;

/// The retry delay of published intents.
pub(super) const BACKOFF_US: i64 = 5 * SECOND_US;

/// Refuses a payload that is too large for an intent.
pub(super) fn check_size(payload: &str) -> Result<(), String> {
    let (bytes, max) = (payload.len(), limits::PAYLOAD_BYTES_MAX);
    if bytes > max {
        return Err(format!(
            "the payload has {bytes} bytes; an intent may carry {max}"
        ));
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("{0}")]
    TooLarge(String),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Runtime {
    /// Publishes the payload of a webhook. `delivery` is the sender's id of this delivery, which makes repeated deliveries
    /// idempotent.
    pub async fn publish(
        &self,
        path: &str,
        publication: &model::IntentTemplate,
        payload: &Value,
        delivery: Option<&str>,
    ) -> Result<Enqueued, PublishError> {
        let payload = payload.to_string();
        check_size(&payload).map_err(PublishError::TooLarge)?;
        // Hashed, because the sender's id may have any length.
        let key = |delivery: &str| {
            let text = [path, delivery].join("\n");
            format!("webhook:{}", blake3::hash(text.as_bytes()).to_hex())
        };
        let published = self.engine().publish(Publication {
            goal: publication.goal.clone(),
            namespace: publication.namespace.clone(),
            once: delivery.map(|delivery| PublicationKey {
                key: key(delivery),
                fingerprint: *blake3::hash(payload.as_bytes()).as_bytes(),
                lifetime_us: limits::IDEMPOTENCY_US,
            }),
            payload,
            attempts_max: publication.attempts_max,
            backoff_us: BACKOFF_US,
            ttl_us: limits::INTENT_TTL_US,
            parent: None,
        });
        let admitted = published.await?;
        Ok(Enqueued {
            id: admitted.id,
            duplicate: admitted.replayed,
        })
    }
}
