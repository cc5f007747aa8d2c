//! The broker on the ledger: meshes, members and invites, accepted messages and their delivery, topics, connections.
//!
//! Invariant: secrets of a mesh (the owner's key, the root key) are stored encrypted with the seal key of the ledger, and an
//! invite is found by the digest of its token, so the database alone is not enough to join.

mod accept;
mod api_keys;
mod blobs;
mod clones;
mod connection;
mod counters;
mod dead_items;
mod depth;
mod events;
mod invites;
mod join;
mod members;
mod meshes;
mod message_reads;
mod nightly;
mod nodes;
mod orphans;
mod peers;
mod reads;
mod records;
mod retention;
mod roster;
mod shared_state;
mod subscriptions;
mod time_text;
mod told;
mod topics;
mod worker_queue;

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Engine, Error};
use consign_kernel::command::Recover;
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, Micros, Seq};

pub use accept::{MeshSender, message_key, queue_namespace};
pub use dead_items::DeadItem;
pub use invites::{MeshInvite, NewInvite};
pub use join::{Joined, NewMember};
pub use meshes::NewMesh;
pub use nightly::NightlyRun;
pub use orphans::{OrphanReport, OrphanedId};
pub use reads::{MessageOutline, PeerOutline};
pub use records::{
    DedupeRetention, MeshMember, MeshRecord, TopicMemberRecord, TopicQueue, TopicRecord,
};
pub use retention::RetentionReport;
pub use subscriptions::automation_queue;
pub use topics::NewTopic;
pub use worker_queue::{queue_of_namespace, worker_namespace};

pub(crate) use api_keys::KeyHolder;
pub use api_keys::{MeshApiKey, NewMeshApiKey};
pub(crate) use blobs::{BlobName, BlobUpload};
pub use blobs::{BlobRecord, BlobSettings};
pub(crate) use connection::socket_options;
pub(crate) use counters::{BrokerCounters, BrokerMetric};

use accept::{LastMessageId, SendRate};
use peers::Peers;
use roster::Rosters;
use tokio::sync::{Notify, Semaphore};
use told::ToldMeshes;
use topics::KeptTopics;

use crate::invite::JoinRefusal;
use crate::limits::{
    DELIVERY_LEASE_MS, PRESENCE_GRACE_MS, REQUEST_BURST_DEFAULT, REQUESTS_PER_MINUTE_DEFAULT,
    SEND_BURST_DEFAULT, SENDS_PER_MINUTE_DEFAULT, TOPIC_SUBSCRIPTIONS_MAX, TOPICS_PER_MESH_MAX,
};
use crate::rotation::RotationRefusal;

/// Lists are read in pages of this size.
const PAGE: u32 = 500;

#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// The URL of the WebSocket that invites name.
    pub url: String,
    /// How many messages a member may send: in a minute, and at once.
    pub sends_per_minute: u32,
    pub send_burst: u32,
    /// How many other frames it may send.
    pub requests_per_minute: u32,
    pub request_burst: u32,
    /// Off, ids of messages are neither compared nor used up, and the feature is not offered.
    pub dedupe_is_enforced: bool,
    /// How long a recipient may take to acknowledge before a message is delivered again.
    pub delivery_lease: Duration,
    /// How long a closed connection still counts as present.
    pub presence_grace: Duration,
    pub node: BrokerNode,
    /// Without a folder, members cannot share files.
    pub blobs: Option<BlobSettings>,
}

impl BrokerSettings {
    /// The settings of the protocol, for a node that is alone on its ledger.
    pub fn new(url: String) -> Self {
        Self {
            url,
            sends_per_minute: SENDS_PER_MINUTE_DEFAULT,
            send_burst: SEND_BURST_DEFAULT,
            requests_per_minute: REQUESTS_PER_MINUTE_DEFAULT,
            request_burst: REQUEST_BURST_DEFAULT,
            dedupe_is_enforced: true,
            delivery_lease: Duration::from_millis(DELIVERY_LEASE_MS),
            presence_grace: Duration::from_millis(PRESENCE_GRACE_MS),
            node: BrokerNode::default(),
            blobs: None,
        }
    }
}

/// The node that serves: leases under its name from earlier starts are recovered.
#[derive(Clone, Debug, Default)]
pub struct BrokerNode {
    /// Its number on the ledger, new with every start.
    pub id: i64,
    /// Unique on the ledger, and the same after a restart.
    pub name: String,
    /// Unique among the starts of this node.
    pub start: String,
    /// Other nodes may use the ledger.
    pub shared: bool,
}

/// A handle to the broker; clones share it.
#[derive(Clone, Debug)]
pub struct Broker {
    inner: Arc<BrokerState>,
}

#[derive(Debug)]
struct BrokerState {
    engine: Engine,
    send_rate: SendRate,
    request_rate: SendRate,
    settings: BrokerSettings,
    rosters: Rosters,
    topics: KeptTopics,
    last_message_id: LastMessageId,
    counters: BrokerCounters,
    peers: Peers,
    told: ToldMeshes,
    /// Connections that have not said hello.
    greetings: Arc<Semaphore>,
    presence_changed: Notify,
}

/// Why the broker does not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("there is no mesh {0}")]
    NoSuchMesh(String),
    #[error("there is a mesh {0} already")]
    SlugTaken(String),
    #[error("{0} is not a member of this mesh")]
    NoSuchMember(String),
    #[error("this mesh has no invite {0}")]
    NoSuchInvite(String),
    #[error("there is no topic {0} in this mesh")]
    NoSuchTopic(String),
    #[error(
        "topic {topic} does not fill queue {queue}; `consign mesh topics` lists the queues of all topics"
    )]
    NoSuchSubscription { topic: String, queue: String },
    #[error(
        "topic {0} fills {TOPIC_SUBSCRIPTIONS_MAX} queues already; end one of its subscriptions first"
    )]
    TooManySubscriptions(String),
    #[error("no queue of this mesh has a dead item {0}; `consign mesh dead` lists them")]
    NoSuchItem(String),
    #[error("this mesh has no key {0}")]
    NoSuchKey(String),
    #[error("the mesh shares too many values")]
    StateFull,
    #[error("the mesh has {TOPICS_PER_MESH_MAX} topics already")]
    TopicsFull,
    #[error("{0}")]
    Rotation(#[from] RotationRefusal),
    #[error("{}", .0.as_str())]
    Join(JoinRefusal),
    #[error(transparent)]
    Ledger(#[from] Error),
}

impl Broker {
    pub fn new(engine: Engine, settings: BrokerSettings) -> Self {
        Self {
            inner: Arc::new(BrokerState {
                engine,
                send_rate: SendRate::new(settings.sends_per_minute, settings.send_burst),
                request_rate: SendRate::new(settings.requests_per_minute, settings.request_burst),
                settings,
                rosters: Rosters::default(),
                topics: KeptTopics::default(),
                last_message_id: LastMessageId::default(),
                counters: BrokerCounters::default(),
                peers: Peers::default(),
                told: ToldMeshes::default(),
                presence_changed: Notify::new(),
                greetings: Arc::new(Semaphore::new(connection::greetings_max())),
            }),
        }
    }

    /// The holder of this node's leases.
    fn holder(&self) -> String {
        let node = &self.inner.settings.node;
        Recover::holder(&node.name, &node.start)
    }

    /// Whether other nodes may use the ledger.
    fn has_other_nodes(&self) -> bool {
        self.inner.settings.node.shared
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn counters(&self) -> &BrokerCounters {
        &self.inner.counters
    }

    /// A new id, greater than earlier ones.
    fn new_id(&self) -> String {
        let engine = self.engine();
        IntentId::new(engine.now(), Seq(0), engine.entropy().draw()).to_string()
    }

    /// Random bytes for a key.
    fn random<const N: usize>(&self) -> zeroize::Zeroizing<[u8; N]> {
        let mut bytes = zeroize::Zeroizing::new([0; N]);
        let mut entropy = self.engine().entropy();
        for part in bytes.chunks_mut(16) {
            part.copy_from_slice(&entropy.draw().to_le_bytes()[..part.len()]);
        }
        bytes
    }

    /// The time of the wall clock.
    pub fn wall(&self) -> Micros {
        self.engine().wall()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.wall_ms()).unwrap_or(0)
    }

    fn wall_ms(&self) -> i64 {
        self.engine().wall().0 / 1_000
    }
}

/// Whether a record that must not exist, or must be unchanged, was written by another request.
fn was_changed(error: &Error) -> bool {
    matches!(error, Error::Refused(Refusal::VersionMismatch))
}
