//! Health of the ledger: whether it can be read and written.
//!
//! Invariant: the ledger is read at most once a second, however often health is requested, and a health request waits
//! at most twice [`PROBE_TIMEOUT`]. Whether the ledger can be written follows from the commits of other requests. A
//! probe record is written only if there was no commit for [`COMMIT_AGE_MAX`] or a commit failed, at most once a
//! second.

use std::time::Duration;

use consign_kernel::command::Command;
use consign_kernel::record::{Key, Kind, Put};
use consign_store::TypedReads as _;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::{Engine, Error, StoreError};

const SAMPLE_AGE_MAX: Duration = Duration::from_secs(1);
/// Shorter than the timeout of most health checks.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// An older commit proves nothing about the disk.
const COMMIT_AGE_MAX: Duration = Duration::from_secs(5);

/// The health of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerHealth {
    Healthy,
    /// Reads fail or time out.
    Unreadable,
    /// Reads work, but commits fail.
    Unwritable,
}

impl LedgerHealth {
    /// The name in responses and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "ok",
            Self::Unreadable => "unreadable",
            Self::Unwritable => "unwritable",
        }
    }

    /// The cause and what to do, for operators.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Healthy => "the ledger can be read and written",
            Self::Unreadable => {
                "the ledger cannot be read; check its database or disk, and the log of this server"
            }
            Self::Unwritable => {
                "the ledger cannot be written; check the free space of its disk, its permissions, programs that lock it, and \
                 the log of this server"
            }
        }
    }
}

/// The last sample.
#[derive(Debug, Default)]
pub(crate) struct HealthProbe(Mutex<Option<HealthSample>>);

#[derive(Clone, Copy, Debug)]
struct HealthSample {
    at: Instant,
    health: LedgerHealth,
    commits: u64,
    failed_commits: u64,
    /// When a commit last succeeded.
    written_at: Instant,
}

impl Engine {
    /// Whether the ledger can be read and written; at most a second old.
    pub async fn ledger_is_healthy(&self) -> bool {
        self.ledger_health().await == LedgerHealth::Healthy
    }

    /// The health of the ledger; at most a second old.
    pub async fn ledger_health(&self) -> LedgerHealth {
        // Concurrent requests wait here and share one sample.
        let mut last = self.inner.health_probe.0.lock().await;
        if let Some(sample) = last.filter(|sample| sample.at.elapsed() < SAMPLE_AGE_MAX) {
            return sample.health;
        }
        let sample = self.sample_health(*last).await;
        let before = last.map_or(LedgerHealth::Healthy, |sample| sample.health);
        if sample.health != before {
            let ledger = sample.health.name();
            if sample.health == LedgerHealth::Healthy {
                tracing::info!("the ledger can be read and written again");
            } else {
                tracing::error!(ledger, "{}", sample.health.reason());
            }
        }
        *last = Some(sample);
        sample.health
    }

    async fn sample_health(&self, last: Option<HealthSample>) -> HealthSample {
        let read = self.read_probe().await;
        let stats = self.stats();
        let mut written_at = last.map(|last| last.written_at);
        let others = last.map(|last| {
            let failed = stats.failed_commits != last.failed_commits;
            (stats.commits != last.commits && !failed, failed)
        });
        let health = match (read, others) {
            (Err(error), _) => {
                tracing::debug!(%error, "a read of the ledger failed");
                LedgerHealth::Unreadable
            }
            // Other requests committed, and no commit failed.
            (Ok(()), Some((true, _))) => {
                written_at = Some(Instant::now());
                LedgerHealth::Healthy
            }
            // At the first sample the server has just written during its start.
            (Ok(()), None) => LedgerHealth::Healthy,
            (Ok(()), Some((_, false)))
                if last.is_some_and(|last| {
                    last.health == LedgerHealth::Healthy
                        && last.written_at.elapsed() < COMMIT_AGE_MAX
                }) =>
            {
                LedgerHealth::Healthy
            }
            (Ok(()), _) => match self.write_probe().await {
                Ok(()) => {
                    written_at = Some(Instant::now());
                    LedgerHealth::Healthy
                }
                Err(error) => {
                    tracing::debug!(%error, "a commit to the ledger failed");
                    LedgerHealth::Unwritable
                }
            },
        };
        let at = Instant::now();
        let stats = self.stats();
        HealthSample {
            at,
            health,
            commits: stats.commits,
            failed_commits: stats.failed_commits,
            written_at: written_at.unwrap_or(at),
        }
    }

    async fn read_probe(&self) -> Result<(), Error> {
        within(async { Ok(self.inner.store.highest_fact().await.map(drop)?) }).await
    }

    /// Overwrites the same record each time.
    async fn write_probe(&self) -> Result<(), Error> {
        let put = Put {
            key: Key {
                kind: Kind::Watermark,
                owner: "health".to_owned(),
                name: "written".to_owned(),
            },
            value: self.now().0.to_string(),
            expires_at: None,
            expect: None,
        };
        within(async { self.apply(None, Command::Put(put)).await.map(drop) }).await
    }
}

async fn within(probe: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    match timeout(PROBE_TIMEOUT, probe).await {
        // A busy ledger is healthy.
        Ok(Ok(()) | Err(Error::Store(StoreError::Busy))) => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(_elapsed) => Err(StoreError::Unavailable(format!(
            "no answer within {} seconds",
            PROBE_TIMEOUT.as_secs()
        ))
        .into()),
    }
}
