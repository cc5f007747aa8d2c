//! Relays of this node that wait for a result.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use consign_kernel::plant::{self, Plant};
use tokio::sync::oneshot;

use crate::frame::ResultFrame;

/// By nonce. A nonce has one relay at a time, because the ledger admits it once.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<HashMap<String, WaitingRelay>>);

#[derive(Debug)]
struct WaitingRelay {
    recipient: String,
    result: oneshot::Sender<ResultFrame>,
}

/// Waits for a result until it is dropped.
#[derive(Debug)]
pub(crate) struct ResultTicket<'a> {
    waiters: &'a Waiters,
    nonce: String,
    result: oneshot::Receiver<ResultFrame>,
}

/// What became of a result that a socket sent.
#[derive(Debug)]
pub(crate) enum ResultDelivery {
    Taken,
    /// No relay waits for this nonce here.
    Unclaimed(ResultFrame),
    /// The nonce belongs to an intent for another agent.
    NotTheRecipient,
}

impl Waiters {
    pub(crate) fn register(&self, nonce: &str, recipient: &str) -> ResultTicket<'_> {
        let (sender, result) = oneshot::channel();
        let waiting = WaitingRelay {
            recipient: recipient.to_owned(),
            result: sender,
        };
        self.waiting().insert(nonce.to_owned(), waiting);
        ResultTicket {
            waiters: self,
            nonce: nonce.to_owned(),
            result,
        }
    }

    /// Hands a result to the relay that waits for it, if the socket belongs to the recipient.
    pub(crate) fn deliver(&self, socket: &str, result: ResultFrame) -> ResultDelivery {
        let mut waiting = self.waiting();
        let Some(relay) = waiting.get(result.nonce()) else {
            return ResultDelivery::Unclaimed(result);
        };
        if relay.recipient != socket && !plant::on(Plant::AnySocketAnswers) {
            return ResultDelivery::NotTheRecipient;
        }
        let Some(relay) = waiting.remove(result.nonce()) else {
            return ResultDelivery::Unclaimed(result);
        };
        drop(waiting);
        match relay.result.send(result) {
            Ok(()) => ResultDelivery::Taken,
            Err(result) => ResultDelivery::Unclaimed(result),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, WaitingRelay>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.waiters.waiting().remove(&self.nonce);
    }
}
