//! Retention and consistency of mesh messages: what ends by an instant, its removal, and once-keys without their message.

use consign_kernel::command::{Command, Prune};
use consign_kernel::ids::Micros;
use consign_store::{EndingCount, LostMessagePage, TypedReads as _};

use crate::{Engine, Error, Operator};

/// What one piece of a removal did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    pub messages: u64,
    /// Rows that are no messages, such as deliveries.
    pub others: u64,
    /// The limit cut the work short.
    pub more: bool,
}

impl Engine {
    /// Removes one piece of the rows that end by an instant, also by one that lies ahead.
    pub async fn prune(&self, prune: Prune) -> Result<PruneReport, Error> {
        self.call(Command::Prune(prune)).await
    }

    /// How many messages and how many of their once-keys end by an instant.
    pub async fn mesh_ending(&self, _: Operator, until: Micros) -> Result<EndingCount, Error> {
        Ok(self.inner.store.mesh_ending(until).await?)
    }

    /// One page of once-keys after a mesh and a key, and those of them that say that their message exists although it does
    /// not.
    pub async fn lost_messages(
        &self,
        _: Operator,
        after: (String, String),
        limit: u32,
    ) -> Result<LostMessagePage, Error> {
        Ok(self.inner.store.lost_messages(after, limit).await?)
    }
}
