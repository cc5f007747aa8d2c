//! The retention and the check for orphans, once a day on one of the nodes.
//!
//! Invariant: the start of a run is recorded before it, in a record that all nodes share, so two nodes do not run on the same
//! day. A node whose clock is wrong does not run, because nothing is known to be expired.

use std::time::Duration;

use consign_engine::{Error, Operator};
use consign_kernel::ids::{DAY_US, FactSeq};
use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};

use super::{Broker, BrokerError};

/// After a start, an operator who started with a wrong clock has this long to notice.
const START_GRACE: Duration = Duration::from_mins(1);
const CHECK_EVERY: Duration = Duration::from_mins(10);

/// The last run. Times are microseconds of the wall clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NightlyRun {
    pub started_at: i64,
    /// Absent while it runs, and after a run that did not finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<i64>,
    pub messages_pruned: u64,
    pub dedupe_expired: u64,
    pub ids_checked: u64,
    pub orphans_found: u64,
}

impl Broker {
    /// Looks every ten minutes whether a run is due, until the process ends.
    pub async fn run_nightly(self) {
        let mut facts_seen = FactSeq(0);
        tokio::time::sleep(START_GRACE).await;
        loop {
            if let Err(error) = self.run_if_due(&mut facts_seen).await {
                tracing::warn!(%error, "the daily retention of the mesh failed; the next one is tomorrow");
            }
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }

    /// Runs if the last run, of any node, began a day ago. `facts_seen` is where the last run of this node stopped.
    pub async fn run_if_due(
        &self,
        facts_seen: &mut FactSeq,
    ) -> Result<Option<NightlyRun>, BrokerError> {
        let engine = self.engine();
        if engine.has_wrong_clock() {
            return Ok(None);
        }
        let now = engine.wall().0;
        let is_due = engine
            .update(run_key(), |run: &mut NightlyRun| {
                // A clock that was set back must not stop the runs.
                let is_due = run.started_at > now || now - run.started_at >= DAY_US;
                if is_due {
                    *run = NightlyRun {
                        started_at: now,
                        ..NightlyRun::default()
                    };
                }
                Ok::<_, Error>(is_due)
            })
            .await?;
        if !is_due {
            return Ok(None);
        }
        self.run(facts_seen).await.map(Some)
    }

    async fn run(&self, facts_seen: &mut FactSeq) -> Result<NightlyRun, BrokerError> {
        let operator = Operator::vouched();
        let engine = self.engine();
        let swept = self.sweep(operator, engine.wall(), false).await?;
        let orphans = self.check_orphans(operator, false).await?;
        self.forget_old_facts(operator, facts_seen).await?;
        self.note_misconfigured(operator).await?;
        let finished_at = engine.wall().0;
        let run = engine
            .update(run_key(), |run: &mut NightlyRun| {
                run.finished_at = Some(finished_at);
                run.messages_pruned = swept.messages_pruned;
                run.dedupe_expired = swept.dedupe_expired;
                run.ids_checked = orphans.checked;
                run.orphans_found = orphans.found;
                Ok::<_, Error>(run.clone())
            })
            .await?;
        tracing::info!(
            messages_pruned = run.messages_pruned,
            dedupe_expired = run.dedupe_expired,
            orphans = run.orphans_found,
            "the daily retention of the mesh is done"
        );
        Ok(run)
    }

    /// The last run of any node.
    pub async fn last_nightly_run(&self) -> Result<Option<NightlyRun>, BrokerError> {
        let found = self.engine().load(run_key()).await?;
        Ok(found.map(|run| run.value))
    }
}

fn run_key() -> Key {
    Key {
        kind: Kind::Site,
        owner: String::new(),
        name: "mesh.nightly".to_owned(),
    }
}
