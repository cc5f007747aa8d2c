//! How much waits in the broker, and whether its ledger can be used.

use consign_engine::{Error, Operator};
use consign_kernel::profile::Face;
use consign_kernel::state::State;

use super::Broker;

impl Broker {
    /// Deliveries and items of queues that wait, and messages that no recipient has acknowledged.
    pub(crate) async fn queue_depth(&self, operator: Operator) -> Result<u64, Error> {
        let counts = self.engine().counts(operator, Face::Mesh).await?;
        let waiting = counts.iter().filter(|count| count.state == State::Queued);
        Ok(waiting.map(|count| count.count).sum())
    }

    pub(crate) async fn is_healthy(&self) -> bool {
        self.engine().ledger_is_healthy().await
    }
}
