//! Leases that this process holds, and the task that extends them.
//!
//! A [`Lease`] is the proof that a holder shows to extend or settle a row. [`Leases`] extends all leases that are kept
//! for a long time, and reports those that are lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use consign_kernel::command::{Extend, Settle, Settlement};
use consign_kernel::ids::{IntentId, SECOND_US, Token};
use consign_kernel::intent::Intent;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{Engine, Error};

/// The length of a lease that [`Leases`] keeps.
pub const KEPT_LEASE_US: i64 = 60 * SECOND_US;
/// Three tries fit into the length of a lease.
const EXTEND_EVERY: Duration = Duration::from_secs(20);
/// Extensions in progress, so that they do not fill the queue of the writer.
const LEASES_AT_ONCE_MAX: usize = 1_000;
/// The delay between tries while the ledger is unavailable.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A leased row and its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: IntentId,
    pub holder: String,
    pub token: Token,
}

impl Lease {
    /// The lease of a claimed row. The ledger refuses every command of a row that was not claimed.
    pub fn of(row: &Intent) -> Self {
        Self {
            id: row.id,
            holder: row.holder.clone().unwrap_or_default(),
            token: row.token.unwrap_or(Token([0; 16])),
        }
    }

    pub fn extend(&self, lease_us: i64) -> Extend {
        Extend {
            detail: None,
            id: self.id,
            holder: self.holder.clone(),
            token: self.token,
            lease_us,
        }
    }

    pub fn settle(&self, how: Settlement) -> Settle {
        Settle {
            detail: None,
            id: self.id,
            holder: self.holder.clone(),
            token: self.token,
            how,
        }
    }
}

/// The leases that this process extends until they are dropped. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leases {
    inner: Arc<LeasesInner>,
}

#[derive(Debug)]
struct LeasesInner {
    engine: Engine,
    kept: Mutex<KeptLeases>,
}

#[derive(Debug, Default)]
struct KeptLeases {
    next: u64,
    leases: HashMap<u64, (Lease, watch::Sender<bool>)>,
}

impl LeasesInner {
    fn kept(&self) -> MutexGuard<'_, KeptLeases> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease that is extended until this is dropped. Dropping it changes nothing in the ledger.
#[derive(Debug)]
pub struct KeptLease {
    leases: Weak<LeasesInner>,
    number: u64,
    lost: watch::Receiver<bool>,
}

impl KeptLease {
    /// Returns true when the lease is lost, and false when the [`KeptLease`] is dropped before.
    pub fn lost(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut lost = self.lost.clone();
        async move { lost.wait_for(|lost| *lost).await.is_ok() }
    }
}

impl Drop for KeptLease {
    fn drop(&mut self) {
        if let Some(leases) = self.leases.upgrade() {
            leases.kept().leases.remove(&self.number);
        }
    }
}

impl Leases {
    pub fn new(engine: Engine) -> Self {
        Self {
            inner: Arc::new(LeasesInner {
                engine,
                kept: Mutex::default(),
            }),
        }
    }

    /// Keeps a lease of [`KEPT_LEASE_US`] that was just granted or extended.
    pub fn keep(&self, lease: Lease) -> KeptLease {
        let (sender, lost) = watch::channel(false);
        let mut kept = self.inner.kept();
        kept.next += 1;
        let number = kept.next;
        kept.leases.insert(number, (lease, sender));
        KeptLease {
            leases: Arc::downgrade(&self.inner),
            number,
            lost,
        }
    }

    /// Extends all kept leases, as long as a [`Leases`] exists. One task of the process runs it, until the process ends:
    /// work that continues during a stop needs its leases.
    pub fn extend_forever(&self) -> impl Future<Output = ()> + Send + use<> {
        let inner = Arc::downgrade(&self.inner);
        async move {
            let mut pause = EXTEND_EVERY;
            loop {
                tokio::time::sleep(pause).await;
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                pause = match (Self { inner }).extend_all().await {
                    Ok(()) => EXTEND_EVERY,
                    Err(error) => {
                        tracing::warn!(%error, "leases could not be extended; retrying");
                        RETRY_DELAY
                    }
                };
            }
        }
    }

    /// One round: extends all kept leases. A lease whose extension is refused is lost. An extension that fails leaves the
    /// others alone, because each is a request of its own; the writer groups them into few commits.
    pub async fn extend_all(&self) -> Result<(), Error> {
        let leases: Vec<(u64, Lease)> = {
            let kept = self.inner.kept();
            let leases = kept.leases.iter();
            leases
                .map(|(number, (lease, _))| (*number, lease.clone()))
                .collect()
        };
        let mut failed = Ok(());
        for piece in leases.chunks(LEASES_AT_ONCE_MAX) {
            let mut extensions = JoinSet::new();
            for (number, lease) in piece.iter().cloned() {
                let engine = self.inner.engine.clone();
                extensions.spawn(async move {
                    (number, engine.extend(lease.extend(KEPT_LEASE_US)).await)
                });
            }
            while let Some(extended) = extensions.join_next().await {
                match extended {
                    Ok((_, Ok(_))) => {}
                    Ok((number, Err(Error::Refused(_)))) => self.report_lost(number),
                    Ok((_, Err(error))) => failed = Err(error),
                    Err(panicked) => failed = Err(Error::Internal(panicked.to_string())),
                }
            }
        }
        failed
    }

    fn report_lost(&self, number: u64) {
        if let Some((_, lost)) = self.inner.kept().leases.get(&number) {
            lost.send_replace(true);
        }
    }
}
