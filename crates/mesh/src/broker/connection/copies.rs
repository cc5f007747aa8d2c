//! Copies of a member's mail for its sessions: each message at most once per connection, without a lease.
//!
//! Invariant: a copy of a direct message settles nothing, so a session that passes by does not take the mail of its daemon.
//! A copy of a post to a topic, a group or all is settled when it was written to a session that never acknowledges, unless
//! another connection of the member claims its mail.

use std::collections::HashSet;
use std::time::Duration;

use consign_engine::{Error, IntentFilter};
use consign_kernel::ids::{IntentId, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;
use tokio::sync::watch;

use super::{MailMode, MeshLine};
use crate::audience::{AddressedMessage, MeshConnection};
use crate::broker::accept::{MeshPayload, member_capability};
use crate::destination::Destination;
use crate::id::TopicName;
use crate::keys::MeshPublicKey;

/// Rows of one read.
const PAGE: u32 = 100;
/// The oldest mail of a member beyond this number is not copied: a connection that claims gets it.
const COPIED_MAX: usize = 1_000;
/// News of the ledger are a hint; without one, the mail is read this often.
const POLL: Duration = Duration::from_secs(10);
/// The pause after a failure of the ledger.
const PAUSE: Duration = Duration::from_secs(1);

/// What a connection has seen of its member's mail.
#[derive(Default)]
struct CopyPosition {
    /// Everything up to here was looked at.
    seen: Seq,
    /// Mail that waits until the peer is idle, oldest first.
    held: Vec<Intent>,
    copied: HashSet<IntentId>,
}

impl MeshLine {
    /// Sends copies until the connection is closed or begins to claim.
    pub(super) async fn copy_lane(&self, state: &mut watch::Receiver<MailMode>) {
        let mut news = self.broker.engine().follow_publisher(&self.member_id);
        let mut position = CopyPosition::default();
        let mut is_first = true;
        while !self.sender.is_closed() && !self.serves_member_lane() {
            state.borrow_and_update();
            news.borrow_and_update();
            if let Err(error) = self.copy_new(&mut position, is_first).await {
                tracing::warn!(%error, member = self.member_id, "the mail of a member cannot be read; trying again");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            is_first = false;
            tokio::select! {
                () = self.sender.closed() => {}
                _ = state.changed() => {}
                _ = tokio::time::timeout(POLL, news.changed()) => {}
            }
        }
    }

    /// Sends what came since the last look. The first time, what waits.
    async fn copy_new(&self, position: &mut CopyPosition, is_first: bool) -> Result<(), Error> {
        let mut rows = std::mem::take(&mut position.held);
        for row in self.mail_after(position.seen).await? {
            position.seen = position.seen.max(row.seq);
            let waits = matches!(row.state, State::Queued | State::Dispatched);
            if !is_first || waits {
                rows.push(row);
            }
        }
        let parents = rows.iter().filter_map(|row| row.ties.parent);
        let messages = self.messages(parents).await?;
        let mut written = Vec::new();
        for row in rows {
            let Some((message, stored)) = row.ties.parent.and_then(|id| messages.get(&id)) else {
                continue;
            };
            if !self.gets_copy(message, stored).await? || position.copied.contains(&row.id) {
                continue;
            }
            if !stored.priority.reaches(self.current_state().status) {
                position.held.push(row);
                continue;
            }
            position.copied.insert(row.id);
            self.pushed.add_copy(message.id, row.id);
            if !self.push(message, stored).await {
                return Ok(());
            }
            written.push((row.id, message.id, MeshPayload::destination(message)));
        }
        let is_served = || {
            let peers = &self.broker.inner.peers;
            peers.is_served(&self.mesh.id, &self.member_id)
        };
        if written.is_empty() || !self.is_legacy() || is_served() {
            return Ok(());
        }
        if self.sender.written_to(0).await {
            for (delivery, message, destination) in written {
                let is_direct = matches!(destination, Some(Destination::Member(_)) | None);
                if !is_direct {
                    self.settle_unleased(delivery, message).await?;
                }
            }
        }
        Ok(())
    }

    /// The member's deliveries after a row, oldest first.
    async fn mail_after(&self, seen: Seq) -> Result<Vec<Intent>, Error> {
        let (mut found, mut before) = (Vec::new(), None);
        let lane = member_capability();
        loop {
            let filter = IntentFilter {
                face: Face::Mesh,
                owner: Some(self.member_id.clone()),
                namespace: Some(self.mesh.id.clone()),
                goal: None,
                state: None,
                before,
                limit: PAGE,
            };
            let page = self.broker.engine().intents(filter).await?;
            let is_seen = page.intents.iter().any(|row| row.seq <= seen);
            let rows = page.intents.into_iter().filter(|row| {
                row.seq > seen
                    && row.profile == ProfileId::MeshDelivery
                    && row.capability.as_ref() == Some(&lane)
            });
            found.extend(rows);
            before = page.next;
            if is_seen || before.is_none() || found.len() >= COPIED_MAX {
                break;
            }
        }
        found.reverse();
        Ok(found)
    }

    /// Whether a message of the member is also for this session.
    async fn gets_copy(&self, row: &Intent, stored: &MeshPayload) -> Result<bool, Error> {
        let Some(destination) = MeshPayload::destination(row) else {
            return Ok(false);
        };
        let engine_roster = self.broker.roster(&self.mesh.id).await?;
        let Some(member) = engine_roster.active(&self.member_id) else {
            return Ok(false);
        };
        let groups = self.broker.groups_of(&self.mesh.id, &self.presence_id);
        let of_member = member.groups.iter();
        let of_member = of_member.filter_map(|group| crate::id::GroupName::parse(&group.name).ok());
        // The row exists because the member is in the topic; a former key still names the member.
        let topics: Vec<TopicName> = match &destination {
            Destination::Topic(name) => vec![name.clone()],
            Destination::Member(_)
            | Destination::Group(_)
            | Destination::Everyone
            | Destination::Queue(_) => Vec::new(),
        };
        let is_direct = matches!(destination, Destination::Member(_));
        let destination = if is_direct {
            Destination::Member(member.pubkey)
        } else {
            destination
        };
        let connection = MeshConnection {
            member: member.pubkey,
            session: self.session,
            groups: groups.into_iter().chain(of_member).collect(),
            topics,
            has_negotiated: false,
            has_acked: self.current_state().has_acked,
        };
        let is_sending = stored.connection == self.identity.connection;
        let message = AddressedMessage {
            sender: stored.sender_pubkey,
            destination: &destination,
            target: None::<MeshPublicKey>,
        };
        Ok(connection.receives(&message, is_sending))
    }
}
