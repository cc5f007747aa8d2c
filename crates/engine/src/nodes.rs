//! Nodes: each node of a shared ledger writes a heartbeat every two seconds; operators list nodes and drain them.
//!
//! A node is a record that expires. Heartbeat and operator both write it, each only on the version that it has read,
//! so neither overwrites the other: a heartbeat that meets another version reads the `drain` flag and writes again.
//! Invariant: a node counts as drained only when it has refused claims since the previous heartbeat, no lease request
//! waits for the ledger, and none of its leases is left, of whatever face. So a claim that was in progress when the
//! drain began is not overlooked.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use consign_kernel::command::Command;
use consign_kernel::error::Refusal;
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::record::{Key, Kind, Record};
use consign_store::TypedReads as _;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::records::Versioned;
use crate::{Engine, Error, Operator};

/// The interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A node without a heartbeat for this long has missed three of them.
const SILENT_AFTER_US: i64 = 6 * SECOND_US;
/// The record of a node without a heartbeat expires after this time.
const RECORD_LIFE_US: i64 = 30 * SECOND_US;
/// How long a node may take to remove its record at the end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
const PAGE: u32 = 500;

/// The identity of a node, as other nodes see it.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    /// Unique among running nodes; leases refer to it.
    pub id: i64,
    pub name: String,
    /// Its base URL, such as `http://10.0.0.7:7070`.
    pub address: String,
    pub version: String,
    /// The ledger has one node only, so the record of any other node is stale.
    pub alone: bool,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    Serving,
    /// An operator drains it; leases are left.
    Draining,
    /// It is draining, and none of its leases is left.
    Drained,
    /// Its clock differs from the database's clock, so it grants no leases.
    WrongClock,
    /// Its heartbeat is missing.
    Silent,
}

impl NodeState {
    pub const ALL: &[Self] = &[
        Self::Serving,
        Self::Draining,
        Self::Drained,
        Self::WrongClock,
        Self::Silent,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::WrongClock => "wrong-clock",
            Self::Silent => "silent",
        }
    }
}

/// One node, as recorded in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    pub id: i64,
    pub name: String,
    pub address: String,
    pub version: String,
    pub started_at: Micros,
    pub seen_at: Micros,
    pub state: NodeState,
    /// Live leases that it granted.
    pub leases: u64,
    /// It is the node that answers this request.
    pub here: bool,
}

/// The value of a [`Kind::Node`] record.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct NodeRecord {
    name: String,
    address: String,
    version: String,
    started_at: i64,
    seen_at: i64,
    /// An operator drains this node.
    drain: bool,
    /// It has granted no lease since the previous heartbeat and will grant none.
    stopped: bool,
    /// Records of older versions do not have this field.
    #[serde(default)]
    wrong_clock: bool,
}

/// Why this process grants no leases, and how many lease requests are in flight.
#[derive(Debug, Default)]
pub(crate) struct ClaimPause {
    id: OnceLock<i64>,
    reasons: watch::Sender<PauseReasons>,
    /// Lease requests that the ledger has not answered.
    lease_requests: AtomicUsize,
}

impl ClaimPause {
    /// To be held until the ledger has answered.
    pub(crate) fn begin_lease_request(&self) -> LeaseRequestInFlight<'_> {
        self.lease_requests.fetch_add(1, Ordering::AcqRel);
        LeaseRequestInFlight(&self.lease_requests)
    }

    /// Changes whenever a pause reason is added or removed.
    pub(crate) fn subscribe(&self) -> watch::Receiver<PauseReasons> {
        self.reasons.subscribe()
    }
}

#[derive(Debug)]
pub(crate) struct LeaseRequestInFlight<'d>(&'d AtomicUsize);

impl Drop for LeaseRequestInFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why a node grants no leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// An operator drains it.
    Draining,
    /// Its clock differs from the database's clock, which measures leases.
    WrongClock,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PauseReasons {
    drain: bool,
    wrong_clock: bool,
}

impl PauseReasons {
    fn first(self) -> Option<PauseReason> {
        let drain = self.drain.then_some(PauseReason::Draining);
        drain.or(self.wrong_clock.then_some(PauseReason::WrongClock))
    }
}

/// The loop that keeps this node's record alive.
#[derive(Debug)]
pub struct Heartbeat {
    engine: Engine,
    identity: NodeIdentity,
    started_at: Micros,
    /// The version of the record as last written; zero if there is none.
    version: u64,
}

impl Heartbeat {
    /// The engine is this node from now on.
    pub fn new(engine: Engine, identity: NodeIdentity) -> Self {
        // An engine has one identity; only tests set a second one.
        let _ = engine.inner.claim_pause.id.set(identity.id);
        let started_at = engine.now();
        Self {
            engine,
            identity,
            started_at,
            version: 0,
        }
    }

    /// Writes a heartbeat every two seconds until `shutdown` ends. Call [`leave`](Self::leave) when serving has
    /// stopped.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> Self {
        tokio::pin!(shutdown);
        let mut last_beat_succeeded = true;
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => return self,
                () = tokio::time::sleep(HEARTBEAT) => {}
            }
            match self.beat().await {
                Ok(()) => last_beat_succeeded = true,
                // A long outage is logged once.
                Err(error) if last_beat_succeeded => {
                    last_beat_succeeded = false;
                    tracing::warn!(%error, "cannot write the heartbeat of this node; trying again");
                }
                Err(_) => {}
            }
        }
    }

    /// Writes a heartbeat, and reads whether an operator drains this node.
    pub async fn beat(&mut self) -> Result<(), Error> {
        if self.version == 0 && self.identity.alone {
            self.engine.forget_all_records(Kind::Node).await?;
        }
        let refusing = self.engine.is_draining();
        let claim_pause = &self.engine.inner.claim_pause;
        let stopped = refusing && claim_pause.lease_requests.load(Ordering::Acquire) == 0;
        if self.identity.alone && self.is_recorded(refusing, stopped).await? {
            return Ok(());
        }
        if self.put(refusing, stopped).await? {
            return Ok(());
        }
        // An operator wrote meanwhile, or the record expired because this node was stopped for too long.
        let found = self.load().await?;
        self.version = found.as_ref().map_or(0, |record| record.version);
        // Without a record, the drain was not revoked.
        let drain = found.map_or(refusing, |record| record.value.drain);
        if drain != refusing {
            tracing::info!(drain, "an operator changed whether this node is draining");
            let reasons = &self.engine.inner.claim_pause.reasons;
            reasons.send_modify(|reasons| reasons.drain = drain);
        }
        if self.put(drain, drain && stopped).await? {
            return Ok(());
        }
        Err(Refusal::VersionMismatch.into())
    }

    async fn load(&self) -> Result<Option<Versioned<NodeRecord>>, Error> {
        self.engine.load(key(self.identity.id)).await
    }

    /// Whether the record already has these values. On a ledger of its own a node is not watched by others, so it
    /// does not write every two seconds, and an idle disk can sleep.
    async fn is_recorded(&self, drain: bool, stopped: bool) -> Result<bool, Error> {
        let found = self.load().await?;
        let same = found.filter(|record| record.version == self.version);
        Ok(same.is_some_and(|node| node.value.drain == drain && node.value.stopped == stopped))
    }

    /// Removes the record, so that this node is not listed any more.
    pub async fn leave(self) {
        let gone = self
            .engine
            .apply(None, Command::Delete(key(self.identity.id)));
        match tokio::time::timeout(LEAVE_TIMEOUT, gone).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot remove this node's record; it expires by itself");
            }
            Err(_) => tracing::debug!("cannot remove this node's record; it expires by itself"),
        }
    }

    /// Returns false if another process has written the record.
    async fn put(&mut self, drain: bool, stopped: bool) -> Result<bool, Error> {
        let now = self.engine.now();
        let node = NodeRecord {
            name: self.identity.name.clone(),
            address: self.identity.address.clone(),
            version: self.identity.version.clone(),
            started_at: self.started_at.0,
            seen_at: now.0,
            drain,
            stopped,
            wrong_clock: self.engine.has_wrong_clock(),
        };
        let record = Versioned {
            version: self.version,
            expires_at: (!self.identity.alone).then(|| now.plus(RECORD_LIFE_US)),
            ..Versioned::new(key(self.identity.id), node)
        };
        let written = self.engine.put_if_unchanged(record.put()).await?;
        self.version = written.unwrap_or(self.version);
        Ok(written.is_some())
    }
}

impl Engine {
    /// Whether an operator drains this node.
    pub fn is_draining(&self) -> bool {
        self.inner.claim_pause.reasons.borrow().drain
    }

    /// Why this node grants no leases; `None` when it does.
    pub fn claims_paused(&self) -> Option<PauseReason> {
        self.inner.claim_pause.reasons.borrow().first()
    }

    /// With a wrong clock this node cannot decide what has expired.
    pub fn has_wrong_clock(&self) -> bool {
        self.inner.claim_pause.reasons.borrow().wrong_clock
    }

    /// Returns when this node stops granting leases.
    pub async fn until_claims_paused(&self) {
        let mut reasons = self.inner.claim_pause.reasons.subscribe();
        // The sender lives as long as the engine.
        let _ = reasons.wait_for(|reasons| reasons.first().is_some()).await;
    }

    /// Sets whether this node's clock is wrong.
    pub fn set_wrong_clock(&self, wrong_clock: bool) {
        let reasons = &self.inner.claim_pause.reasons;
        reasons.send_modify(|reasons| reasons.wrong_clock = wrong_clock);
    }

    /// Whether a node has had a heartbeat in the last 30 seconds.
    pub async fn is_node_alive(&self, id: i64) -> Result<bool, Error> {
        Ok(self.record(key(id)).await?.is_some())
    }

    /// Whether a node has a current heartbeat: it has not missed three of them.
    pub async fn is_node_beating(&self, id: i64) -> Result<bool, Error> {
        let node = self.load::<NodeRecord>(key(id)).await?;
        Ok(node.is_some_and(|node| !is_silent(node.value.seen_at, self.now())))
    }

    /// The nodes with a current heartbeat, and this one.
    pub async fn live_nodes(&self) -> Result<HashSet<i64>, Error> {
        let records = self.node_records().await?.into_iter();
        let live = records.filter(|(_, node)| !is_silent(node.seen_at, self.now()));
        let here = self.inner.claim_pause.id.get().copied();
        Ok(live.map(|(id, _)| id).chain(here).collect())
    }

    async fn node_records(&self) -> Result<Vec<(i64, NodeRecord)>, Error> {
        let (mut records, mut after) = (Vec::new(), String::new());
        loop {
            let store = &self.inner.store;
            let page = store
                .records(Kind::Node, String::new(), after, PAGE)
                .await?;
            let full = page.len() == PAGE as usize;
            records.extend(page);
            match records.last().filter(|_| full) {
                Some(last) => after = last.key.name.clone(),
                None => break,
            }
        }
        let read = |record: Record| -> Result<(i64, NodeRecord), Error> {
            let record: Versioned<NodeRecord> = Versioned::read(record)?;
            let id = record.key.name.parse().map_err(|_| {
                Error::Internal(format!("the node record {} is unreadable", record.key.name))
            })?;
            Ok((id, record.value))
        };
        records.into_iter().map(read).collect()
    }

    /// Every node with a heartbeat in the last 30 seconds, in the order of their start.
    pub async fn nodes(&self, _: Operator) -> Result<Vec<NodeInfo>, Error> {
        let records = self.node_records().await?;
        let leases_by_node = self.leases_by_node().await?;
        let mut nodes = Vec::with_capacity(records.len());
        for (id, record) in records {
            nodes.push(self.node_info(id, record, &leases_by_node));
        }
        nodes.sort_by_key(|node| (node.started_at, node.id));
        Ok(nodes)
    }

    /// Drains a node or ends its drain. `None` if there is no such node.
    pub async fn drain_node(
        &self,
        _: Operator,
        id: i64,
        drain: bool,
    ) -> Result<Option<NodeInfo>, Error> {
        // The expiry stays: only the node itself extends the life of its record.
        let set_drain = |node: &mut Option<NodeRecord>| {
            if let Some(node) = node {
                node.drain = drain;
            }
            Ok::<_, Error>(node.clone())
        };
        let Some(node) = self.update(key(id), set_drain).await? else {
            return Ok(None);
        };
        Ok(Some(self.node_info(
            id,
            node,
            &self.leases_by_node().await?,
        )))
    }

    /// Live leases by node. Leases without a node belong to this one.
    async fn leases_by_node(&self) -> Result<HashMap<i64, u64>, Error> {
        let here = self.inner.claim_pause.id.get().copied();
        let mut leases = HashMap::new();
        for held in self.inner.store.lease_counts().await? {
            if let Some(node) = held.node.or(here) {
                *leases.entry(node).or_default() += held.leases;
            }
        }
        Ok(leases)
    }

    fn node_info(&self, id: i64, node: NodeRecord, leases_by_node: &HashMap<i64, u64>) -> NodeInfo {
        let leases = leases_by_node.get(&id).copied().unwrap_or(0);
        let here = self.inner.claim_pause.id.get() == Some(&id);
        // This node is alive and knows its own clock.
        let (seen_at, wrong_clock) = if here {
            (self.now(), self.has_wrong_clock())
        } else {
            (Micros(node.seen_at), node.wrong_clock)
        };
        let state = if is_silent(seen_at.0, self.now()) {
            NodeState::Silent
        } else if !node.drain && wrong_clock {
            NodeState::WrongClock
        } else if !node.drain {
            NodeState::Serving
        } else if node.stopped && leases == 0 {
            NodeState::Drained
        } else {
            NodeState::Draining
        };
        NodeInfo {
            id,
            name: node.name,
            address: node.address,
            version: node.version,
            started_at: Micros(node.started_at),
            seen_at,
            state,
            leases,
            here,
        }
    }
}

/// Whether a heartbeat is too long ago.
fn is_silent(seen_at: i64, now: Micros) -> bool {
    Micros(seen_at).plus(SILENT_AFTER_US) < now
}

fn key(id: i64) -> Key {
    Key {
        kind: Kind::Node,
        owner: String::new(),
        name: id.to_string(),
    }
}
