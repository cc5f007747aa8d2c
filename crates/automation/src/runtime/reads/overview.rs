//! The status of the service as a whole.

use std::collections::BTreeMap;

use consign_engine::{Error, JobCount, Outline};
use consign_kernel::ids::DAY_US;
use consign_kernel::record::Kind;
use consign_kernel::state::State;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::checks::{ServiceCheck, left_out, plugin_check};
use super::jobs::JobInfo;
use crate::breaker;
use crate::config::{MASK, masked};
use crate::runtime::job_status::JobStatus;
use crate::runtime::lifecycle::Runtime;
use crate::runtime::records;

/// More commands than a plugin has.
const COMMANDS_MAX: u32 = 1_000;
/// How many attempts are searched for the last one of each plugin.
const LAST_RUNS_AMONG: usize = 1_000;
/// The state of a plugin may have a megabyte, and there may be many plugins.
const STATE_BYTES_MAX: usize = 16 << 10;
/// The maximum number of open jobs that are listed.
const ACTIVE_MAX: u32 = 100;
/// A fact may be as large as the state of a plugin.
const FACTS_PER_PAGE: u32 = 50;
const FACT_PAGES_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub uptime_seconds: i64,
    /// Queued and running jobs.
    pub queue_depth: u64,
    pub plugins_loaded: usize,
    pub plugins_circuit_open: usize,
}

#[derive(Clone, Debug)]
pub struct QueueFigures {
    pub queued: u64,
    pub running: u64,
    /// Queued jobs that are not due yet.
    pub delayed: u64,
    pub dead: u64,
    /// Some of the running jobs.
    pub active: Vec<JobInfo>,
    pub lanes: Vec<PluginLane>,
}

/// The open jobs of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginLane {
    pub plugin: String,
    pub queued: u64,
    pub running: u64,
    /// `None` if the plugin does not run here.
    pub parallelism: Option<usize>,
}

/// The jobs of the last day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStats {
    pub counts: BTreeMap<JobStatus, u64>,
    /// Only the newest jobs were counted.
    pub is_capped: bool,
}

#[derive(Clone, Debug)]
pub struct ServiceStatus {
    pub uptime_seconds: i64,
    pub config_path: String,
    pub queued: u64,
    pub dispatched: u64,
    pub failed: u64,
    pub dead: u64,
    /// The jobs that run in this process.
    pub running_here: usize,
    pub plugins: Vec<PluginStatus>,
    pub checks: Vec<ServiceCheck>,
}

impl ServiceStatus {
    pub fn is_healthy(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }
}

#[derive(Clone, Debug)]
pub struct PluginStatus {
    pub name: String,
    pub version: Option<String>,
    pub healthy: bool,
    /// The worst state among the breakers of the plugin.
    pub breaker: breaker::BreakerState,
    pub state_updated_at: Option<Timestamp>,
    /// `None` if it is empty.
    pub state: Option<PluginStateInfo>,
    pub last_run: Option<LastRun>,
}

/// The state of a plugin as it may be shown.
#[derive(Clone, Debug, PartialEq)]
pub enum PluginStateInfo {
    /// Secrets are masked by name.
    Masked(Value),
    TooLarge {
        bytes: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRun {
    pub job_id: String,
    pub status: JobStatus,
    pub completed_at: Timestamp,
}

impl Runtime {
    pub async fn health(&self) -> Result<Health, Error> {
        let count = self.counts_by_state().await?;
        let mut open = 0;
        for plugin in self.program().plugins() {
            open +=
                usize::from(self.breaker_of(&plugin.name).await? == breaker::BreakerState::Open);
        }
        Ok(Health {
            uptime_seconds: self.uptime_seconds(),
            queue_depth: count(State::Queued) + count(State::Dispatched),
            plugins_loaded: self.program().plugins().count(),
            plugins_circuit_open: open,
        })
    }

    /// Wall-clock time.
    pub fn now(&self) -> Timestamp {
        self.inner.wall_time()
    }

    pub fn uptime_seconds(&self) -> i64 {
        let up = self.now().duration_since(self.started_at());
        up.as_secs().max(0)
    }

    /// The breakers of a plugin, by command.
    pub(in crate::runtime) async fn breakers(
        &self,
        plugin: &str,
    ) -> Result<BTreeMap<String, records::BreakerRecord>, Error> {
        let records = self
            .engine()
            .records(Kind::Breaker, plugin, "", COMMANDS_MAX)
            .await?;
        let breakers = records.into_iter().filter_map(|record| {
            let circuit = serde_json::from_str(&record.value).ok()?;
            Some((record.key.name, circuit))
        });
        Ok(breakers.collect())
    }

    /// The worst state among the breakers of a plugin.
    pub(super) async fn breaker_of(&self, plugin: &str) -> Result<breaker::BreakerState, Error> {
        let breakers = self.breakers(plugin).await?;
        let states = breakers.values().map(|circuit| circuit.breaker.state);
        let states: Vec<breaker::BreakerState> = states.collect();
        let worst = [breaker::BreakerState::Open, breaker::BreakerState::HalfOpen];
        let worst = worst.into_iter().find(|state| states.contains(state));
        Ok(worst.unwrap_or_default())
    }

    /// How many plugins have their breakers in which state.
    pub async fn breaker_counts(&self) -> Result<[(breaker::BreakerState, u64); 3], Error> {
        let mut counts = [
            breaker::BreakerState::Closed,
            breaker::BreakerState::HalfOpen,
            breaker::BreakerState::Open,
        ]
        .map(|state| (state, 0));
        for plugin in self.program().plugins() {
            let state = self.breaker_of(&plugin.name).await?;
            let counted = counts.iter_mut().find(|(known, _)| *known == state);
            if let Some((_, count)) = counted {
                *count += 1;
            }
        }
        Ok(counts)
    }

    pub async fn queue_figures(&self) -> Result<QueueFigures, Error> {
        let count = self.counts_by_state().await?;
        let work = self.engine().job_counts().await?;
        let running = Some(State::Dispatched);
        let running = self.engine().jobs_by_state(running, ACTIVE_MAX).await?;
        Ok(QueueFigures {
            queued: count(State::Queued),
            running: count(State::Dispatched),
            delayed: work.iter().map(|work| work.delayed).sum(),
            dead: count(State::DeadLetter),
            active: running.iter().map(JobInfo::summary).collect(),
            lanes: work.into_iter().map(|work| self.lane(work)).collect(),
        })
    }

    fn lane(&self, work: JobCount) -> PluginLane {
        let plugin = work.capability.unwrap_or_default();
        PluginLane {
            parallelism: self.program().parallelism(&plugin),
            plugin,
            queued: work.queued,
            running: work.running,
        }
    }

    /// The number of jobs of the last day per status.
    pub async fn summary(&self) -> Result<JobStats, Error> {
        let since = self.engine().now().plus(-DAY_US);
        let mut counts: BTreeMap<JobStatus, u64> = BTreeMap::new();
        let count = |job: &Outline| {
            let recent = job.created_at >= since;
            if recent {
                *counts.entry(JobStatus::of(job)).or_default() += 1;
            }
            recent
        };
        let is_capped = self.each_job(None, None, count).await?;
        Ok(JobStats { counts, is_capped })
    }

    pub async fn status(&self) -> Result<ServiceStatus, Error> {
        let program = self.program();
        let count = self.counts_by_state().await?;
        let mut last_runs: BTreeMap<String, LastRun> = BTreeMap::new();
        let known = program.plugins().count();
        self.each_log(LAST_RUNS_AMONG, |log| {
            // Switches and removed plugins have logs as well.
            if program.plugin(&log.plugin).is_some() {
                last_runs
                    .entry(log.plugin.clone())
                    .or_insert_with(|| LastRun {
                        job_id: log.job_id.clone(),
                        status: log.status,
                        completed_at: log.completed_at,
                    });
            }
            last_runs.len() < known
        })
        .await?;
        let mut plugins = Vec::new();
        let mut checks = vec![ServiceCheck::passed("ledger")];
        for plugin in program.plugins() {
            let state: Option<records::PluginState> =
                self.stored(records::state_key(&plugin.name)).await?;
            let unhealthy_reason = self.plugin_unhealthy_reason(&plugin.name).await?;
            let healthy = unhealthy_reason.is_none();
            if unhealthy_reason.is_some() {
                checks.push(plugin_check(&plugin.name, unhealthy_reason));
            }
            plugins.push(PluginStatus {
                name: plugin.name.clone(),
                version: plugin.manifest.version.clone(),
                healthy,
                breaker: self.breaker_of(&plugin.name).await?,
                state_updated_at: state.as_ref().and_then(|state| state.updated_at),
                state: state.and_then(|state| shown_state(state.state)),
                last_run: last_runs.remove(&plugin.name),
            });
        }
        checks.extend(left_out(&program));
        checks.extend(self.stranded_checks().await?);
        Ok(ServiceStatus {
            uptime_seconds: self.uptime_seconds(),
            config_path: program.config().path.display().to_string(),
            queued: count(State::Queued),
            dispatched: count(State::Dispatched),
            failed: count(State::Failed),
            dead: count(State::DeadLetter),
            running_here: self.running(),
            plugins,
            checks,
        })
    }

    /// The newest facts of a plugin, newest first.
    pub async fn facts(
        &self,
        plugin: &str,
        fact_type: Option<&str>,
        limit: usize,
    ) -> Result<Vec<records::PluginFact>, Error> {
        let mut facts = Vec::new();
        let mut before = String::new();
        for _ in 0..FACT_PAGES_MAX {
            let page = self
                .engine()
                .last_records(Kind::PluginFact, plugin, &before, FACTS_PER_PAGE)
                .await?;
            let Some(last) = page.last() else { break };
            before.clone_from(&last.key.name);
            let found = page.iter().filter_map(|record| {
                serde_json::from_str::<records::PluginFact>(&record.value).ok()
            });
            let wanted = found.filter(|fact| fact_type.is_none_or(|kind| fact.fact_type == kind));
            facts.extend(wanted.take(limit - facts.len()));
            if facts.len() == limit {
                break;
            }
        }
        Ok(facts)
    }

    pub(super) async fn stored<T: serde::de::DeserializeOwned>(
        &self,
        key: consign_kernel::record::Key,
    ) -> Result<Option<T>, Error> {
        let record = self.engine().record(key).await?;
        Ok(record.and_then(|record| serde_json::from_str(&record.value).ok()))
    }
}

/// `None` for an empty state.
fn shown_state(state: Map<String, Value>) -> Option<PluginStateInfo> {
    if state.is_empty() {
        return None;
    }
    let state = masked(&Value::Object(state), MASK);
    let bytes = state.to_string().len();
    Some(if bytes > STATE_BYTES_MAX {
        PluginStateInfo::TooLarge { bytes }
    } else {
        PluginStateInfo::Masked(state)
    })
}
