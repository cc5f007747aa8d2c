//! How many agents and directories are known.

use std::time::Duration;

use consign_engine::Error;
use consign_kernel::record::{Kind, Record};
use serde::Deserialize;
use tokio::time::Instant;

use crate::directory::records::PAGE;
use crate::service::Beam;

/// How many records of peers are counted; beyond that, the count is this number.
const COUNTED_MAX: u64 = 100_000;
/// An agent that was seen within this time is live.
const LIVE_MS: i64 = 60 * 60 * 1_000;
/// An agent or a directory that was not seen for this time is stale.
const STALE_MS: i64 = 24 * 60 * 60 * 1_000;
/// Counts of very many agents are kept for this long, because anyone may ask for them.
const KEPT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounts {
    pub total: u64,
    pub verified: u64,
    pub live: u64,
    pub stale: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    pub total: u64,
    /// Not active, or not seen for a day.
    pub stale: u64,
    pub remote_agents: u64,
}

/// The last counts of agents.
#[derive(Debug, Default)]
pub(crate) struct KeptAgentCounts(tokio::sync::Mutex<Option<(Instant, AgentCounts)>>);

/// The parts of a directory that are counted.
#[derive(Deserialize)]
struct LastSeen {
    #[serde(default)]
    last_seen: Option<i64>,
    #[serde(default)]
    status: Option<String>,
}

impl Beam {
    /// The agents of this directory. Concurrent requests share one count.
    pub async fn agent_counts(&self) -> Result<AgentCounts, Error> {
        let mut kept = self.inner.agent_counts.0.lock().await;
        if let Some((at, counts)) = *kept
            && at.elapsed() < KEPT
        {
            return Ok(counts);
        }
        let now_ms = self.now_ms();
        self.refresh_agent_index().await?;
        let counted = self.inner.agent_index.visit(move |briefs| {
            let mut counts = AgentCounts::default();
            for (_, agent) in briefs.iter() {
                let age_ms = now_ms.saturating_sub(agent.last_seen);
                counts.total += 1;
                counts.verified += u64::from(agent.is_verified());
                counts.live += u64::from(age_ms <= LIVE_MS);
                counts.stale += u64::from(age_ms > STALE_MS);
            }
            counts
        });
        let counts = counted.await?;
        *kept = (counts.total >= u64::from(PAGE)).then(|| (Instant::now(), counts));
        Ok(counts)
    }

    pub(crate) async fn peer_counts(&self) -> Result<PeerCounts, Error> {
        let now_ms = self.now_ms();
        let mut counts = PeerCounts::default();
        self.each_record(Kind::BeamPeer, |record| {
            let seen = last_seen(record);
            let is_current = seen.is_some_and(|seen| {
                seen.status.as_deref() == Some("active")
                    && seen.last_seen.is_some_and(|at| now_ms - at <= STALE_MS)
            });
            counts.total += 1;
            counts.stale += u64::from(!is_current);
        })
        .await?;
        self.each_record(Kind::BeamRemoteAgent, |_| counts.remote_agents += 1)
            .await?;
        Ok(counts)
    }

    async fn each_record(&self, kind: Kind, mut each: impl FnMut(&Record)) -> Result<(), Error> {
        let (mut after, mut counted) = (String::new(), 0);
        while counted < COUNTED_MAX {
            let page = self.engine().records(kind, "", &after, PAGE).await?;
            page.iter().for_each(&mut each);
            counted += page.len() as u64;
            match page.last() {
                Some(last) if page.len() == PAGE as usize => after.clone_from(&last.key.name),
                _ => break,
            }
        }
        Ok(())
    }
}

fn last_seen(record: &Record) -> Option<LastSeen> {
    serde_json::from_str(&record.value).ok()
}
