//! Publishes intents for pipeline steps and webhooks.
//!
//! The publisher is the operator, whose workers hold the main key; such intents are private to them.

use consign_engine::{Engine, Error};
use consign_kernel::command::{Admit, Admitted, Answer, Command, NewIntent, OnceGuard};
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::Ties;
use consign_kernel::profile::ProfileId;
use consign_kernel::{limits, once};
use serde_json::Value;

use super::lifecycle::Runtime;
use super::trigger::Enqueued;
use crate::config::model;

/// The key id of the publisher, and of the goal workers.
pub(super) const OPERATOR: &str = "main";

pub(super) struct Publication {
    pub(super) goal: String,
    pub(super) namespace: String,
    /// Compact JSON.
    pub(super) payload: String,
    pub(super) attempts_max: u32,
    pub(super) ttl_us: i64,
    pub(super) once: Option<PublicationKey>,
    /// The job that publishes the intent.
    pub(super) parent: Option<IntentId>,
}

/// The idempotency key of a publication and its lifetime.
pub(super) struct PublicationKey {
    pub(super) key: String,
    pub(super) lifetime_us: i64,
}

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

pub(super) async fn admit(engine: &Engine, publication: Publication) -> Result<Admitted, Error> {
    let payload = publication.payload;
    let once = publication.once.map(|once| OnceGuard {
        key: once::Key {
            scope: once::Scope::IntentIdempotency,
            owner: OPERATOR.to_owned(),
            key: once.key,
        },
        fingerprint: *blake3::hash(payload.as_bytes()).as_bytes(),
        lifetime_us: once.lifetime_us,
    });
    let item = NewIntent {
        profile: ProfileId::Intent,
        namespace: publication.namespace,
        goal: publication.goal,
        owner: OPERATOR.to_owned(),
        public: false,
        target: None,
        capability: None,
        priority: limits::PRIORITY_DEFAULT,
        payload,
        traceparent: None,
        delay_us: 0,
        ttl_us: publication.ttl_us,
        attempts_max: publication.attempts_max,
        backoff_us: 5 * SECOND_US,
        once,
        ties: Ties {
            parent: publication.parent,
            series: None,
        },
        unless: None,
    };
    let admit = Admit {
        items: vec![item],
        cap: None,
    };
    let answer = engine.apply(None, Command::Admit(admit)).await?;
    let Answer::Admitted(admitted) = answer else {
        return Err(Error::Internal(
            "unexpected answer to an admission".to_owned(),
        ));
    };
    let first = admitted.into_iter().next();
    first.ok_or_else(|| Error::Internal("an admission returned no result".to_owned()))
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
        let admitted = admit(
            self.engine(),
            Publication {
                goal: publication.goal.clone(),
                namespace: publication.namespace.clone(),
                payload,
                attempts_max: publication.attempts_max,
                ttl_us: limits::INTENT_TTL_US,
                once: delivery.map(|delivery| PublicationKey {
                    key: key(delivery),
                    lifetime_us: limits::IDEMPOTENCY_US,
                }),
                parent: None,
            },
        )
        .await?;
        Ok(Enqueued {
            id: admitted.id,
            duplicate: admitted.replayed,
        })
    }
}
