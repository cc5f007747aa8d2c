//! Relays of this node that wait for a result.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use consign_kernel::plant::{self, Plant};
use tokio::sync::oneshot;

use crate::directory::records::Agent;
use crate::frame::ResultFrame;
use crate::sockets::ConnectedAgent;

/// By nonce. A nonce has one relay at a time, because the ledger admits it once; a repetition may begin while the relay
/// that has just failed still reports that, and then takes its place.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    last: AtomicU64,
    relays: Mutex<HashMap<String, WaitingRelay>>,
}

#[derive(Debug)]
struct WaitingRelay {
    number: u64,
    recipient: String,
    since_us: i64,
    /// `None` once there was a result: the first one counts, also while it is being stored.
    result: Option<oneshot::Sender<ResultFrame>>,
}

/// Waits for a result until it is dropped, which is after the result was stored.
#[derive(Debug)]
pub(crate) struct ResultTicket<'a> {
    waiters: &'a Waiters,
    number: u64,
    nonce: String,
    result: oneshot::Receiver<ResultFrame>,
}

/// What became of a result that a socket sent.
#[derive(Debug)]
pub(crate) enum ResultDelivery {
    Taken,
    /// The relay has another result already.
    Repeated,
    /// No relay waits for this nonce here.
    Unclaimed(ResultFrame),
    /// The nonce belongs to an intent for another agent.
    NotTheRecipient,
}

impl Waiters {
    pub(crate) fn register(&self, nonce: &str, recipient: &Agent) -> ResultTicket<'_> {
        let (sender, result) = oneshot::channel();
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let waiting = WaitingRelay {
            number,
            recipient: recipient.beam_id.clone(),
            since_us: recipient.since_us,
            result: Some(sender),
        };
        self.relays().insert(nonce.to_owned(), waiting);
        ResultTicket {
            waiters: self,
            number,
            nonce: nonce.to_owned(),
            result,
        }
    }

    /// Hands a result to the relay that waits for it, if the socket belongs to the recipient.
    pub(crate) fn deliver(&self, agent: &ConnectedAgent, result: ResultFrame) -> ResultDelivery {
        let mut relays = self.relays();
        let Some(relay) = relays.get_mut(result.nonce()) else {
            return ResultDelivery::Unclaimed(result);
        };
        let is_recipient = relay.recipient == agent.beam_id && relay.since_us == agent.since_us;
        if !is_recipient && !plant::on(Plant::AnySocketAnswers) {
            return ResultDelivery::NotTheRecipient;
        }
        let Some(waiting) = relay.result.take() else {
            return ResultDelivery::Repeated;
        };
        match waiting.send(result) {
            Ok(()) => ResultDelivery::Taken,
            Err(result) => ResultDelivery::Unclaimed(result),
        }
    }

    fn relays(&self) -> MutexGuard<'_, HashMap<String, WaitingRelay>> {
        self.relays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResultTicket<'_> {
    pub(crate) async fn result(&mut self) -> Option<ResultFrame> {
        (&mut self.result).await.ok()
    }

    /// A result that arrived in the last moment.
    pub(crate) fn try_result(&mut self) -> Option<ResultFrame> {
        self.result.try_recv().ok()
    }
}

impl Drop for ResultTicket<'_> {
    fn drop(&mut self) {
        let mut relays = self.waiters.relays();
        let current = relays.get(&self.nonce);
        if current.is_some_and(|relay| relay.number == self.number) {
            relays.remove(&self.nonce);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::ResultFields;

    fn result(error: &str) -> ResultFrame {
        ResultFrame::new(ResultFields {
            nonce: "n-1",
            error: Some(error),
            ..ResultFields::default()
        })
    }

    fn agent(beam_id: &str, since_us: i64) -> Agent {
        Agent {
            beam_id: beam_id.to_owned(),
            since_us,
            ..Agent::default()
        }
    }

    #[test]
    fn the_first_result_of_the_recipient_counts_until_it_is_stored() {
        let waiters = Waiters::default();
        let mut ticket = waiters.register("n-1", &agent("bob", 1));
        let connected = |id: &str, since_us| ConnectedAgent::of(&agent(id, since_us), false);
        let deliver = |id: &str, error: &str| waiters.deliver(&connected(id, 1), result(error));
        assert!(matches!(
            deliver("eve", "from eve"),
            ResultDelivery::NotTheRecipient
        ));
        let later = waiters.deliver(&connected("bob", 2), result("from another bob"));
        assert!(matches!(later, ResultDelivery::NotTheRecipient));
        assert!(matches!(deliver("bob", "first"), ResultDelivery::Taken));
        assert!(matches!(deliver("bob", "second"), ResultDelivery::Repeated));
        let taken = ticket.try_result().unwrap();
        assert_eq!(taken.error(), Some("first"));
        assert!(matches!(deliver("bob", "third"), ResultDelivery::Repeated));
        drop(ticket);
        assert!(matches!(
            deliver("bob", "late"),
            ResultDelivery::Unclaimed(_)
        ));
    }

    #[test]
    fn a_relay_that_ends_does_not_end_the_next_one_of_its_nonce() {
        let waiters = Waiters::default();
        let bob = agent("bob", 1);
        let ended = waiters.register("n-1", &bob);
        let mut next = waiters.register("n-1", &bob);
        drop(ended);
        let delivered = waiters.deliver(&ConnectedAgent::of(&bob, false), result("late"));
        assert!(matches!(delivered, ResultDelivery::Taken));
        assert!(next.try_result().is_some());
    }
}
