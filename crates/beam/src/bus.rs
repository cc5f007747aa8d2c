//! The message bus: a message is stored, delivered to the directory, retried until the directory accepts it, and kept for
//! its recipient until that, or a worker in its name, acknowledges it.
//!
//! Invariant: a message is stored before its first delivery attempt, and every attempt has the nonce of the message, so
//! the directory relays it once. A message is a row of the ledger: its recipient is the owner, its intent the goal.

mod ack;
mod attempt;
mod delivery;
mod events;
mod message;
mod poll;
mod reads;
mod requeue;
mod scan;
mod send;
mod stats;
mod test_messages;
mod worker;
mod worker_queue;

use std::collections::HashMap;

use consign_engine::Slots;
use consign_kernel::error::Code;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::Intent;
use consign_kernel::profile::ProfileId;
use tokio::sync::{Notify, Semaphore, watch};

pub use ack::{AckedMessage, Acknowledgement};
pub use attempt::DeliveryOutcome;
pub use delivery::DeliveryFailure;
pub use events::{MessageEvent, MessageEventReader};
pub(crate) use message::RECOVERED;
pub use message::{BusMessage, MessageContent};
pub use poll::PollFilter;
pub use reads::HistoryFilter;
pub use requeue::RequeuedMessage;
pub(crate) use send::NONCE_LIFETIME_US;
pub use send::{NAME_BYTES_MAX, NewMessage, SentMessage, content_fingerprint, nonce_key};
pub use stats::{AgentTraffic, BusStats};
pub use worker_queue::{agent_of_namespace, worker_namespace};

use crate::keys::BeamPrivateKey;
use crate::problem::BeamProblem;
use crate::sender_rate::SenderRate;
use crate::service::Beam;
use crate::settings::BusSettings;

/// The namespace of the rows of the bus; the directory has another one.
pub const NAMESPACE: &str = "bus";
/// Attempts of one message, unless an operator requeues it.
pub const ATTEMPTS_MAX: u32 = 5;
/// The longest delivery attempt.
const ATTEMPT_TIMEOUT_S: u64 = 30;
/// The lease of one attempt: longer than the attempt, with time to store its outcome.
const ATTEMPT_LEASE_US: i64 = 45 * SECOND_US;

/// What the bus of this process keeps in memory.
pub(crate) struct BusState {
    /// The keys of the senders for which the bus signs.
    identities: HashMap<String, BeamPrivateKey>,
    rate: SenderRate,
    /// Requests that wait for a message, by recipient.
    waits: Slots<String>,
    /// Event streams, by recipient.
    streams: Slots<String>,
    /// One computation of statistics at a time: it reads the counters of all agents, and messages that are about a day old.
    stats: Semaphore,
    /// Messages of a node that no longer runs are due: the retry worker does not wait for its next tick.
    pub(crate) due: Notify,
    /// True when the process stops; waiting requests and event streams end then.
    stopping: watch::Sender<bool>,
}

impl BusState {
    pub(crate) fn new(settings: &BusSettings) -> Self {
        let mut identities = HashMap::new();
        for identity in &settings.identities {
            match BeamPrivateKey::parse(identity.private_key.reveal()) {
                Ok(key) => drop(identities.insert(identity.beam_id.clone(), key)),
                Err(error) => {
                    let beam_id = &identity.beam_id;
                    tracing::warn!(%error, beam_id, "the bus cannot sign for this identity");
                }
            }
        }
        Self {
            identities,
            rate: SenderRate::new(settings.rate_per_minute),
            waits: Slots::default(),
            streams: Slots::default(),
            stats: Semaphore::new(1),
            due: Notify::new(),
            stopping: watch::channel(false).0,
        }
    }
}

impl Beam {
    /// A row of the bus by the text of its id.
    async fn message_row(&self, id: &str) -> Result<Intent, BeamProblem> {
        let missing = || {
            let text = format!("Message {id} not found");
            BeamProblem::new(Code::MessageNotFound, text)
        };
        let parsed: IntentId = id.parse().map_err(|_| missing())?;
        let row = self.engine().observe(parsed).await?;
        row.filter(|row| row.profile == ProfileId::BeamBus)
            .ok_or_else(missing)
    }

    /// Becomes true when the process stops.
    pub(crate) fn bus_stopping(&self) -> watch::Receiver<bool> {
        self.inner.bus.stopping.subscribe()
    }
}
