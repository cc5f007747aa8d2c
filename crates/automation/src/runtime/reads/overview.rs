//! The status of the service as a whole.

use std::collections::BTreeMap;

use consign_engine::{Error, Outline};
use consign_kernel::ids::DAY_US;
use consign_kernel::record::Kind;
use consign_kernel::state::State;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::checks::{left_out, plugin_check};
use super::jobs::job_summary;
use super::{put, timestamp_json};
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

impl Runtime {
    /// The five fields that every health response has.
    pub async fn health(&self) -> Result<Map<String, Value>, Error> {
        let count = self.counts_by_state().await?;
        let mut open = 0;
        for plugin in self.program().plugins() {
            open +=
                usize::from(self.breaker_of(&plugin.name).await? == breaker::BreakerState::Open);
        }
        let mut health = Map::new();
        put(&mut health, "status", Some("ok"));
        put(&mut health, "uptime_seconds", Some(self.uptime_seconds()));
        let depth = count(State::Queued) + count(State::Dispatched);
        put(&mut health, "queue_depth", Some(depth));
        let loaded = self.program().plugins().count();
        put(&mut health, "plugins_loaded", Some(loaded));
        put(&mut health, "plugins_circuit_open", Some(open));
        Ok(health)
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

    pub async fn queue_figures(&self) -> Result<Value, Error> {
        let count = self.counts_by_state().await?;
        let work = self.engine().work().await?;
        let delayed: u64 = work.iter().map(|work| work.delayed).sum();
        let lanes = work.iter().map(|work| {
            let plugin = work.capability.as_deref().unwrap_or_default();
            let limit = self.program().parallelism(plugin);
            json!({"plugin": plugin, "queued": work.queued, "running": work.running, "parallelism": limit})
        });
        let running = Some(State::Dispatched);
        let running = self.engine().queue(running, ACTIVE_MAX).await?;
        Ok(json!({
            "queue_depth": count(State::Queued),
            "running_count": count(State::Dispatched),
            "delayed_count": delayed,
            "dead_count": count(State::DeadLetter),
            "active_jobs": running.iter().map(job_summary).collect::<Vec<_>>(),
            "plugin_lanes": lanes.collect::<Vec<_>>(),
        }))
    }

    /// The number of jobs of the last day per status; only of the newest ones if `capped` is set.
    pub async fn summary(&self) -> Result<Value, Error> {
        let since = self.engine().now().plus(-DAY_US);
        let mut stats: BTreeMap<&str, u64> = BTreeMap::new();
        let count = |job: &Outline| {
            let recent = job.created_at >= since;
            if recent {
                *stats.entry(JobStatus::of(job).as_str()).or_default() += 1;
            }
            recent
        };
        let is_capped = self.each_job(None, None, count).await?;
        let mut summary = json!({"window": "24h", "stats": stats});
        if is_capped {
            summary["capped"] = true.into();
        }
        Ok(summary)
    }

    pub async fn status(&self) -> Result<Value, Error> {
        let program = self.program();
        let count = self.counts_by_state().await?;
        let mut last_runs: BTreeMap<String, Value> = BTreeMap::new();
        let known = program.plugins().count();
        self.each_log(LAST_RUNS_AMONG, |log| {
            // Switches and removed plugins have logs as well.
            if program.plugin(&log.plugin).is_some() {
                last_runs.entry(log.plugin.clone()).or_insert_with(|| {
                    json!({"job_id": log.job_id, "status": log.status.as_str(), "completed_at": timestamp_json(log.completed_at)})
                });
            }
            last_runs.len() < known
        })
        .await?;
        let mut plugins = Vec::new();
        let mut checks = vec![json!({"name": "ledger", "ok": true})];
        for plugin in program.plugins() {
            let state: Option<records::PluginState> =
                self.stored(records::state_key(&plugin.name)).await?;
            let unhealthy_reason = self.plugin_unhealthy_reason(&plugin.name).await?;
            let healthy = unhealthy_reason.is_none();
            if unhealthy_reason.is_some() {
                checks.push(plugin_check(&plugin.name, unhealthy_reason));
            }
            let mut shown = Map::new();
            put(&mut shown, "name", Some(plugin.name.clone()));
            put(&mut shown, "version", plugin.manifest.version.clone());
            put(&mut shown, "healthy", Some(healthy));
            let circuit = self.breaker_of(&plugin.name).await?;
            put(&mut shown, "breaker", Some(circuit.as_str()));
            if let Some(state) = state {
                put(
                    &mut shown,
                    "state_updated_at",
                    state.updated_at.map(timestamp_json),
                );
                add_state(&mut shown, state.state);
            }
            put(&mut shown, "last_run", last_runs.remove(&plugin.name));
            plugins.push(Value::Object(shown));
        }
        checks.extend(left_out(&program));
        checks.extend(self.stranded_checks().await?);
        let healthy = checks.iter().all(|check| check["ok"] == true);
        Ok(json!({
            "healthy": healthy,
            "uptime_seconds": self.uptime_seconds(),
            "config_path": program.config().path.display().to_string(),
            "queue": {
                "queued": count(State::Queued), "running": count(State::Dispatched),
                "failed": count(State::Failed), "dead": count(State::DeadLetter),
            },
            "running": self.running(),
            "plugins": plugins,
            "checks": checks,
        }))
    }

    /// The newest facts of a plugin, newest first.
    pub async fn facts(
        &self,
        plugin: &str,
        fact_type: Option<&str>,
        limit: usize,
    ) -> Result<Value, Error> {
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
        Ok(json!({"plugin": plugin, "facts": facts}))
    }

    pub(super) async fn stored<T: serde::de::DeserializeOwned>(
        &self,
        key: consign_kernel::record::Key,
    ) -> Result<Option<T>, Error> {
        let record = self.engine().record(key).await?;
        Ok(record.and_then(|record| serde_json::from_str(&record.value).ok()))
    }
}

/// Adds the state of a plugin, with secrets masked by name. An empty state is left out.
fn add_state(shown: &mut Map<String, Value>, state: Map<String, Value>) {
    if state.is_empty() {
        return;
    }
    let state = masked(&Value::Object(state), MASK);
    let bytes = state.to_string().len();
    if bytes > STATE_BYTES_MAX {
        put(shown, "state_left_out", Some(true));
        put(shown, "state_bytes", Some(bytes));
    } else {
        put(shown, "state", Some(state));
    }
}
