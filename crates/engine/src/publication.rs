//! Intents that this server publishes for its operator, whose workers hold the main key: published once per key, and
//! watched until they end.

use std::time::Duration;

use consign_kernel::command::{Admitted, NewIntent, OnceGuard};
use consign_kernel::ids::IntentId;
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::limits;
use consign_kernel::once;
use consign_kernel::profile::{Face, ProfileId};

use crate::unit_of_work::{Handle, UnitOfWork};
use crate::{Engine, Error, Operator};

/// The key id of the main key: the publisher of these intents, and the holder of leases that this server takes as the
/// operator's worker.
pub const MAIN_KEY_ID: &str = "main";

/// How often an intent is read without a wake.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct Publication {
    pub goal: String,
    pub namespace: String,
    /// Compact JSON.
    pub payload: String,
    pub attempts_max: u32,
    pub backoff_us: i64,
    pub ttl_us: i64,
    pub once: Option<PublicationKey>,
    /// The row that publishes the intent.
    pub parent: Option<IntentId>,
}

/// The idempotency key of a publication.
#[derive(Clone, Debug)]
pub struct PublicationKey {
    pub key: String,
    /// Of the payload. It is stored, so a publisher must not change how it is computed.
    pub fingerprint: [u8; 32],
    pub lifetime_us: i64,
}

impl Publication {
    fn intent(self) -> NewIntent {
        let once = self.once.map(|once| OnceGuard {
            key: once::OnceKey {
                scope: once::Scope::IntentIdempotency,
                owner: MAIN_KEY_ID.to_owned(),
                key: once.key,
            },
            fingerprint: once.fingerprint,
            lifetime_us: once.lifetime_us,
        });
        NewIntent {
            profile: ProfileId::Intent,
            namespace: self.namespace,
            goal: self.goal,
            owner: MAIN_KEY_ID.to_owned(),
            public: false,
            target: None,
            capability: None,
            priority: limits::PRIORITY_DEFAULT,
            payload: self.payload,
            traceparent: None,
            delay_us: 0,
            ttl_us: self.ttl_us,
            attempts_max: self.attempts_max,
            backoff_us: self.backoff_us,
            once,
            ties: Ties {
                parent: self.parent,
                series: None,
                sender: None,
            },
            unless: None,
        }
    }
}

impl UnitOfWork {
    /// Must not share the unit with writes, because the key may be in use.
    pub fn publish(&mut self, publication: Publication) -> Handle<Vec<Admitted>> {
        self.admit(vec![publication.intent()])
    }
}

impl Engine {
    pub async fn publish(&self, publication: Publication) -> Result<Admitted, Error> {
        let mut unit = UnitOfWork::default();
        let published = unit.publish(publication);
        let admitted = self.commit(unit).await?.get(published)?;
        let first = admitted.into_iter().next();
        first.ok_or_else(|| Error::Internal("an admission returned no result".to_owned()))
    }

    /// Waits for the end of a published intent; `None` if it was deleted. Every intent of the main key causes wakes, so
    /// there are at least `pause` between two reads.
    pub async fn until_settled(
        &self,
        id: IntentId,
        pause: Duration,
    ) -> Result<Option<Intent>, Error> {
        let is_settled = |intent: &Intent| intent.settled_at.is_some();
        self.until_row(id, MAIN_KEY_ID, pause, is_settled).await
    }

    /// Waits until the row of this owner satisfies the condition; `None` if it was deleted. There are at least `pause`
    /// between two reads.
    pub async fn until_row(
        &self,
        id: IntentId,
        owner: &str,
        pause: Duration,
        condition: impl Fn(&Intent) -> bool + Send,
    ) -> Result<Option<Intent>, Error> {
        let mut changes = self.follow_publisher(owner);
        loop {
            changes.mark_unchanged();
            let Some(row) = self.observe(id).await? else {
                return Ok(None);
            };
            if condition(&row) {
                return Ok(Some(row));
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            // A wake is only a hint; the poll makes the wait reliable.
            let _ = tokio::time::timeout(POLL_INTERVAL, changes.changed()).await;
        }
    }

    /// Cancels a published intent unless it is settled. A worker that has claimed it loses its lease.
    pub async fn withdraw(&self, id: IntentId, reason: &str) -> Result<(), Error> {
        let intent = self.observe(id).await?;
        if intent.is_some_and(|intent| intent.settled_at.is_none()) {
            let operator = Operator::vouched();
            self.cancel(operator, Face::Intent, id, reason).await?;
        }
        Ok(())
    }
}
