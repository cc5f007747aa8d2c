//! Nodes: each one that shares a ledger tells every two seconds that it is there, whoever asks is told of all, and an operator may drain one.
//!
//! A node is a record that expires. Its heartbeat and an operator both write it, each only on the version it knows, so
//! neither undoes the other: a heartbeat that finds another version reads what is wished, and then writes again.
//! Invariant: a node counts as drained only when it has refused claims since the heartbeat before, no request for a lease waits
//! for the ledger any more, and no lease of its own is left, of whatever face: what its automation runs and what its site
//! carries out counts as what its workers hold. So a claim that was on its way when it stopped is not overlooked.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use consign_kernel::command::{Answer, Command};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::record::{Key, Kind, Put, Record};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{Engine, Error, Operator};

/// How often a node tells that it is there.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A node that was not heard of for so long has missed three heartbeats.
const SILENT_AFTER_US: i64 = 6 * SECOND_US;
/// A node that was not heard of for so long is forgotten.
const LIFE_US: i64 = 30 * SECOND_US;
/// How long a node that ends may take to say so.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// A wish meets a heartbeat at most now and then.
const WISH_TRIES: u32 = 10;
const PAGE: u32 = 500;

/// Who a node is, as it tells the others.
#[derive(Clone, Debug)]
pub struct Identity {
    /// No other node that runs has the same number; leases are known by it.
    pub id: i64,
    pub name: String,
    /// Where it is reached, such as `http://10.0.0.7:7070`.
    pub address: String,
    pub version: String,
    /// The ledger has room for one node, so another one in the list is one that died.
    pub alone: bool,
}

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    Serving,
    /// It gives out nothing any more, or will not as soon as it hears of the wish; leases are left.
    Draining,
    /// No lease is left that it gave out.
    Drained,
    /// Its clock differs from the database's, and it gives out nothing until it is set.
    WrongClock,
    /// It was not heard of for a while, whatever it was doing.
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

/// One node, as far as the ledger knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    pub id: i64,
    pub name: String,
    pub address: String,
    pub version: String,
    pub started_at: Micros,
    pub seen_at: Micros,
    pub state: NodeState,
    /// Leases that it gave, and that are still out.
    pub leases: u64,
    /// It is the one that was asked.
    pub here: bool,
}

/// The value of a [`Kind::Node`] record.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Told {
    name: String,
    address: String,
    version: String,
    started_at: i64,
    seen_at: i64,
    /// An operator wants it to stop giving out work.
    drain: bool,
    /// It did not give out work since the heartbeat before, and will not.
    stopped: bool,
    /// Nodes of before this was told have a right one, as far as anybody knows.
    #[serde(default)]
    wrong_clock: bool,
}

/// What this process knows of being a node.
#[derive(Debug, Default)]
pub(crate) struct Duty {
    id: OnceLock<i64>,
    reasons: watch::Sender<Reasons>,
    /// Requests for leases that were given to the ledger, which has not answered.
    asked: AtomicUsize,
}

impl Duty {
    /// To be kept until the ledger has answered.
    pub(crate) fn lease_begins(&self) -> InFlight<'_> {
        self.asked.fetch_add(1, Ordering::AcqRel);
        InFlight(&self.asked)
    }

    /// Marked as changed whenever there is another reason to give out no work, or one less.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Reasons> {
        self.reasons.subscribe()
    }
}

#[derive(Debug)]
pub(crate) struct InFlight<'d>(&'d AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why a node gives out no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffDuty {
    /// An operator wishes so.
    Draining,
    /// Its clock differs from the database's, by which leases are measured.
    WrongClock,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reasons {
    drain: bool,
    wrong_clock: bool,
}

impl Reasons {
    fn first(self) -> Option<OffDuty> {
        let drain = self.drain.then_some(OffDuty::Draining);
        drain.or(self.wrong_clock.then_some(OffDuty::WrongClock))
    }
}

/// The loop that keeps this node's record alive.
#[derive(Debug)]
pub struct Heartbeat {
    engine: Engine,
    identity: Identity,
    started_at: Micros,
    /// Of the record as it was written last; zero when there is none.
    version: u64,
}

impl Heartbeat {
    /// From now on the engine is this node.
    pub fn new(engine: Engine, identity: Identity) -> Self {
        // An engine is one node for good; a second identity would only be seen by tests.
        let _ = engine.inner.duty.id.set(identity.id);
        let started_at = engine.now();
        Self {
            engine,
            identity,
            started_at,
            version: 0,
        }
    }

    /// Beats again every two seconds until `shutdown` ends; let it [`leave`](Self::leave) when nothing is served any
    /// more.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> Self {
        tokio::pin!(shutdown);
        let mut heard = true;
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => return self,
                () = tokio::time::sleep(HEARTBEAT) => {}
            }
            match self.beat().await {
                Ok(()) => heard = true,
                // A ledger that is away for an hour is worth one line, not thousands.
                Err(error) if heard => {
                    heard = false;
                    tracing::warn!(%error, "this node could not tell that it is there; it tries again");
                }
                Err(_) => {}
            }
        }
    }

    /// Tells that this node is there, and hears whether it shall drain.
    pub async fn beat(&mut self) -> Result<(), Error> {
        if self.version == 0 && self.identity.alone {
            self.engine.forget_all_records(Kind::Node).await?;
        }
        let refusing = self.engine.is_draining();
        let duty = &self.engine.inner.duty;
        let stopped = refusing && duty.asked.load(Ordering::Acquire) == 0;
        if self.identity.alone && self.is_told(refusing, stopped).await? {
            return Ok(());
        }
        match self.put(refusing, stopped).await {
            Err(Error::Refused(Refusal::VersionMismatch)) => {}
            done => return done,
        }
        // An operator wrote meanwhile, or the record is gone: this node was stopped for too long.
        let found = self.engine.record(key(self.identity.id)).await?;
        self.version = found.as_ref().map_or(0, |record| record.version);
        let drain = match &found {
            Some(record) => parse(record)?.drain,
            // Nobody took back what was wished.
            None => refusing,
        };
        if drain != refusing {
            tracing::info!(
                drain,
                "an operator decides whether this node gives out work"
            );
            let reasons = &self.engine.inner.duty.reasons;
            reasons.send_modify(|reasons| reasons.drain = drain);
        }
        self.put(drain, drain && stopped).await
    }

    /// Whether the record says already what would be written. Nobody else asks after a node that is alone, so it need not
    /// write for the sake of being seen: an idle disk may sleep.
    async fn is_told(&self, drain: bool, stopped: bool) -> Result<bool, Error> {
        let found = self.engine.record(key(self.identity.id)).await?;
        let same = found.filter(|record| record.version == self.version);
        let told = same.as_ref().map(parse).transpose()?;
        Ok(told.is_some_and(|told| told.drain == drain && told.stopped == stopped))
    }

    /// Removes the record: whoever lists nodes sees this one no more.
    pub async fn leave(self) {
        let gone = self
            .engine
            .apply(None, Command::Delete(key(self.identity.id)));
        match tokio::time::timeout(LEAVE_LIMIT, gone).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "this node's record stays until it expires");
            }
            Err(_) => tracing::debug!("this node's record stays until it expires"),
        }
    }

    async fn put(&mut self, drain: bool, stopped: bool) -> Result<(), Error> {
        let now = self.engine.now();
        let told = Told {
            name: self.identity.name.clone(),
            address: self.identity.address.clone(),
            version: self.identity.version.clone(),
            started_at: self.started_at.0,
            seen_at: now.0,
            drain,
            stopped,
            wrong_clock: self.engine.has_wrong_clock(),
        };
        let expires_at = (!self.identity.alone).then(|| now.plus(LIFE_US));
        let put = written(self.identity.id, &told, expires_at, self.version)?;
        let Answer::Put { version } = self.engine.apply(None, Command::Put(put)).await? else {
            return Err(Error::Internal("a put answered something else".to_owned()));
        };
        self.version = version;
        Ok(())
    }
}

impl Engine {
    /// Whether this node was told to give out no more work.
    pub fn is_draining(&self) -> bool {
        self.inner.duty.reasons.borrow().drain
    }

    /// Why this node gives out no work; `None` when it does.
    pub fn off_duty(&self) -> Option<OffDuty> {
        self.inner.duty.reasons.borrow().first()
    }

    /// What is over by a wrong clock may not be over.
    pub fn has_wrong_clock(&self) -> bool {
        self.inner.duty.reasons.borrow().wrong_clock
    }

    /// Returns when this node gives out no more work.
    pub async fn until_off_duty(&self) {
        let mut reasons = self.inner.duty.reasons.subscribe();
        // The sender lives as long as the engine.
        let _ = reasons.wait_for(|reasons| reasons.first().is_some()).await;
    }

    /// Tells whether this node's clock can be trusted.
    pub fn clock_is_wrong(&self, wrong_clock: bool) {
        let reasons = &self.inner.duty.reasons;
        reasons.send_modify(|reasons| reasons.wrong_clock = wrong_clock);
    }

    /// Every node that was heard of in the last half minute, in the order of their start.
    pub async fn nodes(&self, _: Operator) -> Result<Vec<NodeInfo>, Error> {
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
        let held = self.held().await?;
        let mut nodes = Vec::with_capacity(records.len());
        for record in &records {
            nodes.push(self.shown(record, &held)?);
        }
        nodes.sort_by_key(|node| (node.started_at, node.id));
        Ok(nodes)
    }

    /// Wishes that a node stops giving out work, or that it does so again. `None`: there is no such node.
    pub async fn drain_node(
        &self,
        _: Operator,
        id: i64,
        drain: bool,
    ) -> Result<Option<NodeInfo>, Error> {
        for _ in 0..WISH_TRIES {
            let Some(mut record) = self.record(key(id)).await? else {
                return Ok(None);
            };
            let mut told = parse(&record)?;
            if told.drain != drain {
                told.drain = drain;
                // Only the node itself may make its record live longer.
                let put = written(id, &told, record.expires_at, record.version)?;
                record.value.clone_from(&put.value);
                match self.apply(None, Command::Put(put)).await {
                    Ok(_) => {}
                    Err(Error::Refused(Refusal::VersionMismatch)) => continue,
                    Err(error) => return Err(error),
                }
            }
            return Ok(Some(self.shown(&record, &self.held().await?)?));
        }
        Err(Error::Internal(
            "a node changes faster than it can be written".to_owned(),
        ))
    }

    /// Leases by node. A ledger that knows no nodes has one, which is this.
    async fn held(&self) -> Result<HashMap<i64, u64>, Error> {
        let here = self.inner.duty.id.get().copied();
        let mut leases = HashMap::new();
        for held in self.inner.store.lease_counts().await? {
            if let Some(node) = held.node.or(here) {
                *leases.entry(node).or_default() += held.leases;
            }
        }
        Ok(leases)
    }

    fn shown(&self, record: &Record, held: &HashMap<i64, u64>) -> Result<NodeInfo, Error> {
        let told = parse(record)?;
        let id = record.key.name.parse().map_err(|_| unreadable(record))?;
        let leases = held.get(&id).copied().unwrap_or(0);
        let here = self.inner.duty.id.get() == Some(&id);
        // Whoever answers is there, and knows of its own clock.
        let (seen_at, wrong_clock) = if here {
            (self.now(), self.has_wrong_clock())
        } else {
            (Micros(told.seen_at), told.wrong_clock)
        };
        let state = if seen_at.plus(SILENT_AFTER_US) < self.now() {
            NodeState::Silent
        } else if !told.drain && wrong_clock {
            NodeState::WrongClock
        } else if !told.drain {
            NodeState::Serving
        } else if told.stopped && leases == 0 {
            NodeState::Drained
        } else {
            NodeState::Draining
        };
        Ok(NodeInfo {
            id,
            name: told.name,
            address: told.address,
            version: told.version,
            started_at: Micros(told.started_at),
            seen_at,
            state,
            leases,
            here,
        })
    }
}

fn key(id: i64) -> Key {
    Key {
        kind: Kind::Node,
        owner: String::new(),
        name: id.to_string(),
    }
}

fn written(id: i64, told: &Told, expires_at: Option<Micros>, expect: u64) -> Result<Put, Error> {
    let value = serde_json::to_string(told).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(Put {
        key: key(id),
        value,
        expires_at,
        expect: Some(expect),
    })
}

fn parse(record: &Record) -> Result<Told, Error> {
    serde_json::from_str(&record.value).map_err(|_| unreadable(record))
}

fn unreadable(record: &Record) -> Error {
    Error::Internal(format!("the node record {} is unreadable", record.key.name))
}
