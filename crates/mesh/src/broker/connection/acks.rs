//! Acknowledgements: a delivery is settled with the lease of its push, or without one if that has ended.
//!
//! Invariant: a connection settles deliveries of its member and of its own session alone.

use consign_engine::{Error, Lease};
use consign_kernel::command::{Advance, Command, Settle, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::{State, Verb};

use super::MeshLine;
use crate::broker::accept::{member_capability, message_key, session_capability};
use crate::client_message_id::ClientMessageId;
use crate::frame::ClientAck;
use crate::id::BrokerMessageId;

/// Deliveries of one message that are searched for one that was not pushed here. One that is not among them is pushed again, and
/// acknowledged then.
const DELIVERIES_MAX: u32 = 1_000;
/// Leases that one commit gives back.
const GIVEN_BACK_MAX: usize = 256;
/// An acknowledgement meets a lease that ends at the same time.
const TRIES: usize = 3;

impl MeshLine {
    /// Settles what the client says it has. An id that is unknown is ignored.
    pub(super) async fn acknowledge(&self, ack: &ClientAck) -> Result<(), Error> {
        let message = match &ack.broker_message_id {
            Some(id) => BrokerMessageId::parse(id)
                .ok()
                .map(|id| IntentId(id.to_bytes())),
            None => None,
        };
        let message = match (message, &ack.client_message_id) {
            (Some(message), _) => Some(message),
            (None, Some(id)) => match self.pushed.named(id) {
                Some(message) => Some(message),
                None if self.charge_request().is_err() => None,
                None => self.message_named(id).await?,
            },
            (None, None) => None,
        };
        let Some(message) = message else {
            return Ok(());
        };
        if let Some(delivery) = self.pushed.take_leased(message)
            && self.settle(&delivery.lease, message).await?
        {
            return Ok(());
        }
        match self.pushed.take_copy(message) {
            Some(copy) => self.settle_unleased(copy, message).await,
            // A message that is not looked for is delivered again.
            None if self.charge_request().is_err() => Ok(()),
            None => self.settle_found(message).await,
        }
    }

    async fn message_named(&self, id: &str) -> Result<Option<IntentId>, Error> {
        let Ok(id) = ClientMessageId::parse(id) else {
            return Ok(None);
        };
        let key = message_key(&self.mesh.id, &id);
        let used = self.broker.engine().first_use(key).await?;
        Ok(used.and_then(|used| used.intent))
    }

    /// Completes a delivery with its lease, and notes with its message that it was delivered. False if the lease has ended.
    pub(super) async fn settle(&self, lease: &Lease, message: IntentId) -> Result<bool, Error> {
        let complete = Settlement::Complete { result: None };
        let steps = vec![Command::Settle(lease.settle(complete)), delivered(message)];
        let answers = self.broker.engine().execute(None, steps).await?;
        Ok(answers.first().is_some_and(Result::is_ok))
    }

    /// Completes a delivery of which this connection has no running lease.
    pub(super) async fn settle_unleased(
        &self,
        delivery: IntentId,
        message: IntentId,
    ) -> Result<(), Error> {
        for _ in 0..TRIES {
            let Some(row) = self.broker.engine().observe(delivery).await? else {
                return Ok(());
            };
            if row.state == State::Acked || self.complete(&row, message).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn settle_found(&self, message: IntentId) -> Result<(), Error> {
        let engine = self.broker.engine();
        let rows = engine.children(message, DELIVERIES_MAX).await?;
        for row in rows.iter().filter(|row| self.is_own(row)) {
            self.settle_unleased(row.id, message).await?;
        }
        Ok(())
    }

    fn is_own(&self, row: &Intent) -> bool {
        let capability = row.capability.as_deref();
        let of_session = self.session.map(session_capability);
        row.profile == ProfileId::MeshDelivery
            && row.owner == self.member_id
            && (capability == Some(&member_capability()) || capability == of_session.as_deref())
    }

    /// Takes the step as the holder of the lease does, if another connection of the member has one.
    async fn complete(&self, row: &Intent, message: IntentId) -> Result<bool, Error> {
        let engine = self.broker.engine();
        let step = if let Some(token) = row.token.filter(|_| row.is_leased(engine.now())) {
            Command::Settle(Settle {
                detail: None,
                id: row.id,
                holder: row.holder.clone().unwrap_or_default(),
                token,
                how: Settlement::Complete { result: None },
            })
        } else {
            let advance = Advance::by_system(row.id, Face::Mesh, Verb::Complete);
            Command::Advance(Box::new(advance))
        };
        let answers = engine.execute(None, vec![step, delivered(message)]).await?;
        Ok(match answers.first() {
            Some(Ok(_) | Err(Refusal::NotFound)) => true,
            Some(Err(_)) | None => false,
        })
    }

    /// Gives back all leases, so that another connection gets the messages at once.
    pub(super) async fn give_back_all(&self) {
        let leased = self.pushed.take_all();
        for leases in leased.chunks(GIVEN_BACK_MAX) {
            let steps = leases.iter().map(|delivery| {
                let settle = delivery.lease.settle(Settlement::GiveBack);
                Command::Settle(settle)
            });
            let given_back = self.broker.engine().execute(None, steps.collect()).await;
            if let Err(error) = given_back {
                tracing::debug!(%error, "deliveries wait for the end of their leases");
            }
        }
    }
}

/// The first acknowledgement of a message; later ones are refused, which changes nothing.
fn delivered(message: IntentId) -> Command {
    Command::Advance(Box::new(Advance::by_system(
        message,
        Face::Mesh,
        Verb::Deliver,
    )))
}
