//! What operators see of a mesh: its connections, its latest messages and what waits. Bodies and keys are not among it.

use std::collections::BTreeMap;

use consign_engine::{Error, IntentFilter, Operator};
use consign_kernel::ids::Seq;
use consign_kernel::intent::Intent;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;

use super::counters::BrokerMetric;
use super::{Broker, BrokerError};
use crate::destination::DestinationKind;
use crate::id::BrokerMessageId;
use crate::keys::MeshPublicKey;
use crate::priority::PeerStatus;
use crate::role::PresenceRole;

/// A page may be short because of rows of other kinds; after this many the list is as it is.
const PAGES_MAX: usize = 20;

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerOutline {
    pub presence_id: String,
    pub member_id: String,
    pub pubkey: MeshPublicKey,
    pub session: Option<MeshPublicKey>,
    pub name: String,
    pub role: PresenceRole,
    pub status: PeerStatus,
    pub groups: Vec<String>,
    pub hostname: Option<String>,
    /// Milliseconds since 1970.
    pub connected_at: i64,
}

/// A message without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageOutline {
    pub id: BrokerMessageId,
    pub client_message_id: Option<String>,
    pub destination_kind: String,
    pub destination_ref: String,
    pub sender_member_id: Option<String>,
    /// A recipient has acknowledged it.
    pub is_delivered: bool,
    /// Milliseconds since 1970.
    pub created_at: i64,
    pub expires_at: i64,
}

impl Broker {
    /// The connections of a mesh to all nodes, oldest first.
    pub async fn peers(
        &self,
        _operator: Operator,
        slug: &str,
    ) -> Result<Vec<PeerOutline>, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        self.know_elsewhere(&mesh.id).await?;
        let peers = self.inner.peers.all(&mesh.id).into_iter();
        let peers = peers.map(|peer| PeerOutline {
            groups: peer.groups.iter().map(|group| group.name.clone()).collect(),
            presence_id: peer.presence_id,
            member_id: peer.member_id,
            pubkey: peer.member_key,
            session: peer.session,
            name: peer.display_name,
            role: peer.role,
            status: peer.status,
            hostname: peer.hostname,
            connected_at: peer.connected_at,
        });
        let mut peers: Vec<PeerOutline> = peers.collect();
        peers.sort_by(|a, b| {
            let (a, b) = (
                (a.connected_at, &a.presence_id),
                (b.connected_at, &b.presence_id),
            );
            a.cmp(&b)
        });
        Ok(peers)
    }

    /// The latest messages of a mesh, newest first.
    pub async fn latest_messages(
        &self,
        _operator: Operator,
        slug: &str,
        limit: u32,
    ) -> Result<Vec<MessageOutline>, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let mut found: Vec<(Seq, MessageOutline)> = Vec::new();
        // Rows of deliveries have a priority as their goal.
        for kind in [
            DestinationKind::Topic,
            DestinationKind::Dm,
            DestinationKind::Queue,
        ] {
            found.extend(self.latest_of(&mesh.id, kind, limit).await?);
        }
        found.sort_by_key(|(seq, _)| std::cmp::Reverse(*seq));
        found.truncate(limit as usize);
        Ok(found.into_iter().map(|(_, outline)| outline).collect())
    }

    async fn latest_of(
        &self,
        mesh_id: &str,
        kind: DestinationKind,
        limit: u32,
    ) -> Result<Vec<(Seq, MessageOutline)>, Error> {
        let (mut found, mut before) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let filter = IntentFilter {
                face: Face::Mesh,
                owner: None,
                namespace: Some(mesh_id.to_owned()),
                goal: Some(kind.as_str().to_owned()),
                state: None,
                before,
                limit,
            };
            let page = self.engine().intents(filter).await?;
            let messages = page.intents.into_iter();
            let messages = messages.filter(|row| row.profile == ProfileId::MeshMessage);
            found.extend(messages.map(|row| (row.seq, MessageOutline::of(row))));
            before = page.next;
            if before.is_none() || found.len() >= limit as usize {
                break;
            }
        }
        Ok(found)
    }

    /// How many deliveries of a mesh wait.
    pub async fn waiting_in(&self, operator: Operator, slug: &str) -> Result<u64, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let counts = self.engine().counts(operator, Face::Mesh).await?;
        let waiting = counts
            .iter()
            .filter(|count| count.namespace == mesh.id && count.state == State::Queued);
        Ok(waiting.map(|count| count.count).sum())
    }

    /// How often each member of a mesh used an id for another request, since the start of this node.
    pub async fn conflicts(
        &self,
        _operator: Operator,
        slug: &str,
    ) -> Result<BTreeMap<String, i64>, BrokerError> {
        let mesh = self.mesh_by_slug(slug).await?;
        let counted = self.counters().of(BrokerMetric::FINGERPRINT_MISMATCHES);
        let of_mesh = counted.into_iter().filter_map(|(labels, count)| {
            let [member, mesh_id] = labels.try_into().ok()?;
            (mesh_id == mesh.id).then_some((member, count))
        });
        Ok(of_mesh.collect())
    }
}

impl MessageOutline {
    fn of(row: Intent) -> Self {
        Self {
            id: BrokerMessageId::from_bytes(row.id.0),
            client_message_id: row.capability,
            destination_kind: row.goal,
            destination_ref: row.target.unwrap_or_default(),
            sender_member_id: row.ties.sender,
            is_delivered: row.state == State::Delivered,
            created_at: row.created_at.0 / 1_000,
            expires_at: row.expires_at.0 / 1_000,
        }
    }
}
