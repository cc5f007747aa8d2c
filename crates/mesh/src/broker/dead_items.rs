//! Items of queues that no worker finished: list them, and give one to the workers again.

use consign_engine::{IntentFilter, Operator};
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;
use serde_json::Value;

use super::{Broker, BrokerError};

/// A page may be short because of rows of other kinds; after this many the list is as it is.
const PAGES_MAX: usize = 20;

/// An item of a queue that is dead, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadItem {
    pub id: String,
    pub queue: String,
    /// The topic to which it was posted; `None` if it was sent to the queue.
    pub topic: Option<String>,
    pub client_message_id: Option<String>,
    pub sender_name: Option<String>,
    pub attempts: u32,
    /// Why it was not finished.
    pub reason: String,
    /// Milliseconds since 1970.
    pub created_at: i64,
    pub dead_at: Option<i64>,
}

impl Broker {
    /// The dead items of all queues of a mesh, newest first.
    pub async fn dead_items(
        &self,
        _operator: Operator,
        slug: &str,
        limit: u32,
    ) -> Result<Vec<DeadItem>, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let (mut found, mut before) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let filter = IntentFilter {
                face: Face::Mesh,
                owner: Some(mesh.slug.clone()),
                namespace: None,
                goal: None,
                state: Some(State::DeadLetter),
                before,
                limit,
            };
            let page = self.engine().intents(filter).await?;
            let items = page.intents.iter().filter(|row| is_item(row, &mesh.slug));
            found.extend(items.map(DeadItem::of));
            before = page.next;
            if before.is_none() || found.len() >= limit as usize {
                break;
            }
        }
        found.truncate(limit as usize);
        Ok(found)
    }

    /// Lets workers claim a dead item again, with all of its attempts.
    pub async fn requeue_item(
        &self,
        operator: Operator,
        slug: &str,
        id: &str,
    ) -> Result<(), BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let missing = || BrokerError::NoSuchItem(id.to_owned());
        let item: IntentId = id.parse().map_err(|_| missing())?;
        let row = self.engine().observe(item).await?;
        let row = row.filter(|row| row.state == State::DeadLetter && is_item(row, &mesh.slug));
        let row = row.ok_or_else(missing)?;
        let requeued =
            self.engine()
                .requeue(operator, Face::Mesh, row.id, "requeued by an operator");
        Ok(requeued.await?)
    }
}

fn is_item(row: &Intent, slug: &str) -> bool {
    row.profile == ProfileId::MeshQueue && row.owner == slug
}

impl DeadItem {
    fn of(row: &Intent) -> Self {
        let work: Value = serde_json::from_str(&row.payload).unwrap_or_default();
        let text = |name: &str| work[name].as_str().map(str::to_owned);
        Self {
            id: row.id.to_string(),
            queue: row.goal.clone(),
            topic: text("topic"),
            client_message_id: text("client_message_id"),
            sender_name: text("sender_name"),
            attempts: row.attempts,
            reason: row.last_error.clone().unwrap_or_default(),
            created_at: row.created_at.0 / 1_000,
            dead_at: row.settled_at.map(|at| at.0 / 1_000),
        }
    }
}
