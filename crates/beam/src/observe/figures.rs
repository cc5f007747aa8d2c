//! The figures of the overview, from the ledger.

use consign_engine::{Error, MessagesOf, Operator};
use consign_kernel::ids::Seq;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;

use super::agents::{AgentCounts, PeerCounts};
use super::alerts::{self, AlertInput, BeamAlert};
use super::scan::{ScanEnd, ScanWindow};
use crate::lifecycle::OutcomeBucket;
use crate::overview::{self, ErrorTally, IntentSample, IntentTally, OutcomeCounts, TimelineBucket};
use crate::relay::{IntentRow, NAMESPACE};
use crate::service::Beam;

/// An intent that is in flight for longer counts as stuck.
const STUCK_MS: i64 = 15 * 60 * 1_000;
/// How many intents in each state are examined for stuck ones.
const STUCK_ROWS_MAX: u32 = 1_000;

#[derive(Clone, Debug)]
pub struct BeamOverview {
    pub window_hours: u32,
    pub agents: AgentCounts,
    pub peers: PeerCounts,
    pub counts: OutcomeCounts,
    pub average_latency_ms: Option<f64>,
    pub p95_latency_ms: Option<f64>,
    pub in_flight_older_than_15m: u64,
    pub timeline: Vec<TimelineBucket>,
    pub top_intents: Vec<IntentTally>,
    pub top_errors: Vec<ErrorTally>,
    pub alerts: Vec<BeamAlert>,
    pub end: ScanEnd,
}

/// Rows of the ledger in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCount {
    pub state: State,
    pub intents: u64,
    pub messages: u64,
}

impl Beam {
    /// The figures of the last `hours`, which are at most [`overview::WINDOW_HOURS_MAX`].
    pub async fn overview(&self, hours: u32) -> Result<BeamOverview, Error> {
        let (rows, end) = self.window_rows(hours).await?;
        let samples: Vec<IntentSample<'_>> = rows.iter().map(IntentRow::sample).collect();
        let latencies: Vec<f64> = samples
            .iter()
            .filter_map(|sample| sample.latency_ms)
            .collect();
        let stuck = self.stuck_intents(&rows).await?;
        let mut overview = BeamOverview {
            window_hours: hours,
            agents: self.agent_counts().await?,
            peers: self.peer_counts().await?,
            counts: OutcomeCounts::of(&samples),
            average_latency_ms: overview::average(&latencies),
            p95_latency_ms: overview::p95(&latencies),
            in_flight_older_than_15m: stuck,
            timeline: overview::timeline(&samples, hours),
            top_intents: overview::top_intents(&samples),
            top_errors: overview::top_errors(&samples),
            alerts: Vec::new(),
            end,
        };
        overview.alerts = alerts::raise(&AlertInput {
            counts: overview.counts,
            p95_latency_ms: overview.p95_latency_ms,
            stuck,
            stale_peers: overview.peers.stale,
            top_error: overview.top_errors.first(),
            now_ms: self.now_ms(),
        });
        Ok(overview)
    }

    pub(super) async fn window_rows(&self, hours: u32) -> Result<(Vec<IntentRow>, ScanEnd), Error> {
        let window = ScanWindow {
            of: MessagesOf::All,
            since_ms: Some(self.window_start_ms(hours)),
        };
        let mut rows = Vec::new();
        let end = self.scan(window, |row| rows.push(row)).await?;
        Ok((rows, end))
    }

    /// Intents of any age that are in flight for too long. Those in a queue are known from the window alone.
    async fn stuck_intents(&self, window: &[IntentRow]) -> Result<u64, Error> {
        let before_ms = self.now_ms() - STUCK_MS;
        let is_stuck = |row: &IntentRow| row.requested_at_ms < before_ms;
        let queued = window.iter().filter(|row| row.state == State::Queued);
        let mut stuck = queued.filter(|row| is_stuck(row)).count() as u64;
        let states = State::ALL.iter().copied().filter(|state| {
            OutcomeBucket::of(*state) == OutcomeBucket::InFlight && *state != State::Queued
        });
        for state in states {
            let profile = ProfileId::BeamDirectory;
            let rows = self
                .engine()
                .active_rows(profile, state, Seq(0), STUCK_ROWS_MAX)
                .await?;
            let views = rows.iter().filter_map(IntentRow::of);
            stuck += views.filter(is_stuck).count() as u64;
        }
        Ok(stuck)
    }

    /// All rows by their state, from the counters of the ledger.
    pub async fn state_counts(&self, operator: Operator) -> Result<Vec<StateCount>, Error> {
        let counts = self.engine().counts(operator, Face::Beam).await?;
        let sum = |state: State, is_intent: bool| {
            let counts = counts.iter().filter(|count| {
                count.state == state && (count.namespace == NAMESPACE) == is_intent
            });
            counts.map(|count| count.count).sum()
        };
        let states = State::ALL.iter().map(|state| StateCount {
            state: *state,
            intents: sum(*state, true),
            messages: sum(*state, false),
        });
        Ok(states.collect())
    }
}
