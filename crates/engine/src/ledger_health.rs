//! Whether the ledger can be read and written, for those who watch over this server.
//!
//! Invariant: however many ask, the ledger is read once a second at most and nobody waits for it longer than twice
//! [`PROBE_TIMEOUT`]. Whether it can be written is known from the commits of others; only when there were none for a while, or when
//! one failed, a small record is written to find out, at most once a second while it fails and every [`COMMIT_AGE_MAX`] otherwise.

use std::time::Duration;

use consign_kernel::command::Command;
use consign_kernel::record::{Key, Kind, Put};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::{Engine, Error, StoreError};

const SAMPLE_AGE_MAX: Duration = Duration::from_secs(1);
/// Less than most of those who ask wait themselves.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// A commit that is older says nothing about the disk of now.
const COMMIT_AGE_MAX: Duration = Duration::from_secs(5);

/// What the ledger is fit for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerHealth {
    Healthy,
    /// It does not answer a read.
    Unreadable,
    /// It answers reads, but commits fail.
    Unwritable,
}

impl LedgerHealth {
    /// The word for it, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "ok",
            Self::Unreadable => "unreadable",
            Self::Unwritable => "unwritable",
        }
    }

    /// What happened and what to do about it, for people.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Healthy => "the ledger answers and takes commits",
            Self::Unreadable => {
                "the ledger does not answer; look at its database or disk, and at the log of this server"
            }
            Self::Unwritable => {
                "the ledger cannot be written; look at the space on its disk, at its permissions, at programs that lock it, and \
                 at the log of this server"
            }
        }
    }
}

/// What was found out last.
#[derive(Debug, Default)]
pub(crate) struct HealthProbe(Mutex<Option<HealthSample>>);

#[derive(Clone, Copy, Debug)]
struct HealthSample {
    at: Instant,
    health: LedgerHealth,
    commits: u64,
    failed_commits: u64,
    /// When the last commit was known to have succeeded.
    written_at: Instant,
}

impl Engine {
    /// Whether the ledger can be read and written, as it was at most a second ago.
    pub async fn ledger_is_healthy(&self) -> bool {
        self.ledger_health().await == LedgerHealth::Healthy
    }

    /// What the ledger is fit for, as it was at most a second ago.
    pub async fn ledger_health(&self) -> LedgerHealth {
        // Whoever comes while one asks waits, and then has the same answer.
        let mut last = self.inner.health_probe.0.lock().await;
        if let Some(sample) = last.filter(|sample| sample.at.elapsed() < SAMPLE_AGE_MAX) {
            return sample.health;
        }
        let sample = self.sample_health(*last).await;
        let before = last.map_or(LedgerHealth::Healthy, |sample| sample.health);
        if sample.health != before {
            let ledger = sample.health.name();
            if sample.health == LedgerHealth::Healthy {
                tracing::info!("the ledger answers and takes commits again");
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
                tracing::debug!(%error, "the ledger does not answer a read");
                LedgerHealth::Unreadable
            }
            // Others wrote, and nobody failed.
            (Ok(()), Some((true, _))) => {
                written_at = Some(Instant::now());
                LedgerHealth::Healthy
            }
            // A server that is asked for the first time has written when it started.
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
                    tracing::debug!(%error, "the ledger does not take a commit");
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

    /// Writes over the same record each time.
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
        // It has much to do, and says so.
        Ok(Ok(()) | Err(Error::Store(StoreError::Busy))) => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(_elapsed) => Err(StoreError::Unavailable(format!(
            "no answer within {} seconds",
            PROBE_TIMEOUT.as_secs()
        ))
        .into()),
    }
}
