//! Reserved namespaces: the queues of other protocols that workers may serve with a grant.

use consign_engine::{ExposedItem, ExposedQueue, ExposedQueues, InvalidQueueName};
use consign_kernel::error::Code;
use consign_kernel::intent::Intent;

use super::IntentFace;
use consign_web::reject::Reject;

/// The prefixes of namespaces of other protocols. Publishing there is refused, also if this server does not serve them.
const RESERVED: [&str; 2] = ["beam.", "mesh."];

pub(super) fn is_reserved(namespace: &str) -> bool {
    RESERVED.iter().any(|prefix| namespace.starts_with(prefix))
}

impl IntentFace {
    /// The rows under a reserved namespace.
    pub(super) fn exposed_queue(&self, namespace: &str) -> Result<ExposedQueue, InvalidQueueName> {
        let queues = self.queues_with(|queues| namespace.starts_with(queues.prefix()));
        let unserved = || {
            let all = self.options.queues.iter();
            let prefixes: Vec<&str> = all.map(|queues| queues.prefix()).collect();
            let text = format!(
                "{namespace} is no queue of another protocol; their names begin with: {}",
                prefixes.join(", ")
            );
            InvalidQueueName(text)
        };
        queues.ok_or_else(unserved)?.find(namespace)
    }

    /// How a worker sees a claimed row; `None` for an intent.
    pub(super) fn exposed_item(&self, row: &Intent) -> Option<ExposedItem> {
        let queues = self.queues_with(|queues| queues.owns(row.profile))?;
        Some(queues.item(row))
    }

    fn queues_with(
        &self,
        is_wanted: impl Fn(&dyn ExposedQueues) -> bool,
    ) -> Option<&dyn ExposedQueues> {
        let mut all = self.options.queues.iter().map(AsRef::as_ref);
        all.find(|queues| is_wanted(*queues))
    }
}

/// For operators, who learn why; a worker only learns that it has no grant.
pub(super) fn unknown_queue(error: &InvalidQueueName) -> Reject {
    Reject::new(Code::InvalidNamespace, format!("{error}."))
}
