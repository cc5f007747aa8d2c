//! Mail that a connection claims: a lease for each message, ended by its acknowledgement.
//!
//! Invariant: at most [`UNACKED_MAX`] messages of a connection are leased and unacknowledged; the others stay in the ledger.
//! A message whose lease ends is delivered again, in its old place.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Error, Lease};
use consign_kernel::command::{Audience, Claim, Settlement};
use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::intent::Intent;
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::Face;
use tokio::sync::watch;

use super::pushed::LeasedDelivery;
use super::{MailMode, MeshLine};
use crate::broker::accept::{MeshPayload, member_capability, session_capability};
use crate::frame::BrokerFrame;
use crate::keys::MeshPublicKey;
use crate::limits::{PUSHES_AHEAD_MAX, UNACKED_MAX};
use crate::priority::{MeshPriority, PeerStatus};

/// A waiting claim ends and begins anew after this time.
const LANE_WAIT: Duration = Duration::from_mins(10);
/// Deliveries of one claim.
const CLAIMED_MAX: usize = 32;
/// The pause after a failure of the ledger, and between looks for ended leases.
const PAUSE: Duration = Duration::from_secs(1);

impl MeshLine {
    /// Serves the lane of the member: claims its mail, or sends copies of it, as the connection's state says.
    pub(super) async fn serve_member(self: Arc<Self>) {
        let mut state = self.state.subscribe();
        while !self.sender.is_closed() {
            if self.serves_member_lane() {
                self.claim_lane(&member_capability(), &mut state).await;
            } else {
                self.copy_lane(&mut state).await;
            }
        }
    }

    /// Serves the lane of the session until the connection is closed.
    pub(super) async fn serve_session(self: Arc<Self>, session: MeshPublicKey) {
        let mut state = self.state.subscribe();
        while !self.sender.is_closed() {
            self.claim_lane(&session_capability(session), &mut state)
                .await;
        }
    }

    /// Claims once, waiting for mail, and pushes what it gets. Returns early if the state of the connection changes.
    async fn claim_lane(&self, capability: &str, state: &mut watch::Receiver<MailMode>) {
        let seen = *state.borrow_and_update();
        let engine = self.broker.engine();
        let room = self.pushed.room(engine.now());
        if room == 0 {
            tokio::select! {
                () = self.pushed.acked() => {}
                () = self.sender.closed() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
            return;
        }
        let lease = self.broker.inner.settings.delivery_lease;
        let claim = Claim {
            face: Face::Mesh,
            namespace: self.mesh.id.clone(),
            goal: is_busy(seen.status).then(|| MeshPriority::Now.as_str().to_owned()),
            holder: self.broker.holder(),
            audience: Audience::Publisher(self.member_id.clone()),
            worker_id: None,
            capabilities: vec![capability.to_owned()],
            max: u32::try_from(room.min(CLAIMED_MAX)).unwrap_or(1),
            lease_us: i64::try_from(lease.as_micros()).unwrap_or(i64::MAX),
            grant: None,
        };
        let leave = async {
            tokio::select! {
                () = self.sender.closed() => {}
                _ = state.changed() => {}
            }
        };
        let claimed = engine.claim_unless(None, claim, LANE_WAIT, leave).await;
        let pushed = match claimed {
            Ok(rows) => self.push_claimed(rows).await,
            Err(error) => Err(error),
        };
        if let Err(error) = pushed {
            tracing::warn!(%error, member = self.member_id, "the mail of a member cannot be read; trying again");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn push_claimed(&self, rows: Vec<Intent>) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        // First of all: leases that are known are given back when the connection ends.
        let mut deliveries = Vec::with_capacity(rows.len());
        for row in rows {
            let lease = Lease::of(&row);
            let Some(message) = row.ties.parent else {
                continue;
            };
            // The status has changed while the ledger was claiming.
            if is_held_back(self.state.borrow().status, &row.goal) {
                let give_back = lease.settle(Settlement::GiveBack);
                self.broker.engine().settle(give_back).await?;
                continue;
            }
            let until = row.lease_until.unwrap_or(Micros(0));
            let delivery = LeasedDelivery {
                lease: lease.clone(),
                until,
            };
            self.pushed.add_leased(message, delivery);
            deliveries.push((message, lease));
        }
        let messages = self
            .messages(deliveries.iter().map(|(message, _)| *message))
            .await?;
        let own = self.identity.connection.as_deref();
        let mut written = Vec::new();
        for (message, lease) in deliveries {
            let Some((row, stored)) = messages.get(&message) else {
                // Its message has ended first: there is nothing to deliver.
                self.pushed.take_leased(message);
                self.settle(&lease, message).await?;
                continue;
            };
            // Another connection of the member gets it when this lease ends.
            if stored.connection.as_deref() == own {
                continue;
            }
            if !self.push(row, stored).await {
                return Ok(());
            }
            written.push((message, lease));
        }
        let is_settled = self.is_legacy() || plant::on(Plant::PushedIsDelivered);
        if is_settled && self.sender.written_to(0).await {
            for (message, lease) in written {
                if self.pushed.take_leased(message).is_some() {
                    self.settle(&lease, message).await?;
                }
            }
        }
        Ok(())
    }

    /// Pushes a message as soon as few others wait for the client. False if the connection is closed.
    pub(super) async fn push(&self, row: &Intent, stored: &MeshPayload) -> bool {
        if !self.sender.written_to(PUSHES_AHEAD_MAX).await {
            return false;
        }
        let push = stored.to_push(row);
        if let Some(id) = &push.client_message_id {
            self.pushed.name(id, row.id);
        }
        self.send(BrokerFrame::from(push), None);
        !self.sender.is_closed()
    }

    /// The messages of deliveries, with their contents. Missing ones are left out.
    pub(super) async fn messages(
        &self,
        ids: impl Iterator<Item = IntentId>,
    ) -> Result<HashMap<IntentId, (Intent, MeshPayload)>, Error> {
        let rows = self.broker.engine().intents_by_id(ids.collect()).await?;
        let mut messages = HashMap::with_capacity(rows.len());
        for row in rows {
            let stored = MeshPayload::parse(&row.payload)
                .ok_or_else(|| Error::Internal(format!("message {} cannot be read", row.id)))?;
            messages.insert(row.id, (row, stored));
        }
        Ok(messages)
    }
}

/// Whether only urgent messages are delivered.
fn is_busy(status: PeerStatus) -> bool {
    status != PeerStatus::Idle
}

/// Whether a message of this priority waits until the status changes.
fn is_held_back(status: PeerStatus, priority: &str) -> bool {
    is_busy(status) && priority != MeshPriority::Now.as_str()
}

/// A claim never asks for more than a connection may have.
const _: () = assert!(CLAIMED_MAX <= UNACKED_MAX);
