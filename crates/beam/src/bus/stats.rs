//! Counters of the bus.

use std::collections::BTreeMap;

use consign_engine::{Error, MessagesOf, Operator, SeqPage};
use consign_kernel::ids::DAY_US;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;

use super::NAMESPACE;
use crate::service::Beam;

/// Pairs of sender and recipient that the statistics show.
const PAIRS_MAX: u32 = 10_000;
const PAGE_ROWS: u32 = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusStats {
    pub by_state: BTreeMap<State, u64>,
    pub by_agent: BTreeMap<String, AgentTraffic>,
    /// Messages that were created in the last day, as far as a read reaches.
    pub last_day: u64,
}

/// How many messages an agent has sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentTraffic {
    pub sent: u64,
    pub received: u64,
}

impl Beam {
    pub async fn bus_stats(&self) -> Result<BusStats, Error> {
        let turn = self.inner.bus.stats.acquire().await;
        let _turn = turn.map_err(|_| Error::Internal("the bus has ended".to_owned()))?;
        let mut stats = BusStats::default();
        let counts = self.engine().counts(Operator::vouched(), Face::Beam);
        for count in counts.await? {
            if count.namespace == NAMESPACE {
                *stats.by_state.entry(count.state).or_default() += count.count;
            }
        }
        let pairs = self.engine().message_counts(ProfileId::BeamBus, PAIRS_MAX);
        for pair in pairs.await? {
            stats.by_agent.entry(pair.sender).or_default().sent += pair.count;
            stats.by_agent.entry(pair.recipient).or_default().received += pair.count;
        }
        let day_ago = self.engine().now().minus(DAY_US);
        let after = self.position_before(&MessagesOf::All, day_ago).await?;
        let count = |row: consign_kernel::intent::Intent| {
            stats.last_day += u64::from(row.created_at > day_ago);
            true
        };
        self.visit_messages(&MessagesOf::All, SeqPage::After(after), PAGE_ROWS, count)
            .await?;
        Ok(stats)
    }
}
