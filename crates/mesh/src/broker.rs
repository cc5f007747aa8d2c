//! The broker on the ledger: meshes, their members and their invites.
//!
//! Invariant: secrets of a mesh (the owner's key, the root key) are stored encrypted with the seal key of the ledger, and an
//! invite is found by the digest of its token, so the database alone is not enough to join.

mod counters;
mod depth;
mod invites;
mod join;
mod members;
mod meshes;
mod nightly;
mod orphans;
mod records;
mod retention;

use std::sync::Arc;

use consign_engine::{Engine, Error};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, Micros, Seq};

pub use invites::{MeshInvite, NewInvite};
pub use join::{Joined, NewMember};
pub use meshes::NewMesh;
pub use nightly::NightlyRun;
pub use orphans::{OrphanReport, OrphanedId};
pub use records::{DedupeRetention, MeshMember, MeshRecord};
pub use retention::RetentionReport;

pub(crate) use counters::{BrokerCounters, BrokerMetric};

use crate::invite::JoinRefusal;
use crate::limits::{SEND_BURST_DEFAULT, SENDS_PER_MINUTE_DEFAULT};

/// Lists are read in pages of this size.
const PAGE: u32 = 500;

#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// The URL of the WebSocket that invites name.
    pub url: String,
    /// How many messages a member may send per minute.
    pub sends_per_minute: u32,
    /// How many of them at once.
    pub send_burst: u32,
    /// Off to roll back: ids of messages are neither compared nor offered as a feature, and stored ones stay.
    pub dedupe_is_enforced: bool,
}

impl BrokerSettings {
    pub const fn new(url: String) -> Self {
        Self {
            url,
            sends_per_minute: SENDS_PER_MINUTE_DEFAULT,
            send_burst: SEND_BURST_DEFAULT,
            dedupe_is_enforced: true,
        }
    }
}

/// A handle to the broker; clones share it.
#[derive(Clone, Debug)]
pub struct Broker {
    inner: Arc<BrokerState>,
}

#[derive(Debug)]
struct BrokerState {
    engine: Engine,
    settings: BrokerSettings,
    counters: BrokerCounters,
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
                settings,
                counters: BrokerCounters::default(),
            }),
        }
    }

    fn engine(&self) -> &Engine {
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

    fn wall_ms(&self) -> i64 {
        self.engine().wall().0 / 1_000
    }
}

/// Whether a record that must not exist, or must be unchanged, was written by another request.
fn was_changed(error: &Error) -> bool {
    matches!(error, Error::Refused(Refusal::VersionMismatch))
}
