//! Cancels the queued jobs of plugins that are disabled or removed.
//!
//! A plugin counts as removed if the configuration disables it, or if a reload found it gone. For the latter the ledger keeps a
//! note until none of its jobs is open, so that a restart continues the work. A name that is merely unknown here is not removed,
//! because another node may run it: its jobs wait, and `system doctor` reports them.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use consign_engine::{Error, UnitOfWork};
use consign_kernel::command::{Command, Operate};
use consign_kernel::error::Refusal;
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;
use consign_kernel::state::State;
use serde_json::json;

use super::lifecycle::{Runtime, RuntimeInner};
use super::records;
use crate::plugin::discovery::MANIFEST;
use crate::program::{Plugin, Program};

/// Jobs per commit.
const PIECE_JOBS: u32 = 200;
/// More plugins than are ever removed before their jobs have ended.
const NOTES_MAX: u32 = 10_000;
const REMOVED: &str = "its plugin was removed or disabled";

/// By name; the value says whether the ledger has a note.
pub(super) type RemovedPlugins = BTreeMap<String, bool>;

impl RuntimeInner {
    pub(super) fn removed(&self) -> MutexGuard<'_, RemovedPlugins> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the notes of earlier starts and the plugins that the configuration disables.
    pub(super) async fn load_removed(&self, program: &Program) -> Result<(), Error> {
        let owner = records::removals_owner(self.node());
        let kind = Kind::PluginSetup;
        let notes = self.engine.records(kind, &owner, "", NOTES_MAX).await?;
        let notes = notes.into_iter().map(|note| (note.key.name, true));
        self.removed().extend(notes);
        self.record_removed(program, &[]).await
    }

    /// Marks `gone` as removed, and unmarks plugins that this program wants again.
    pub(super) async fn record_removed(
        &self,
        program: &Program,
        gone: &[String],
    ) -> Result<(), Error> {
        let configured = &program.config().plugins;
        let mut removed = self.removed().clone();
        let mut unit = UnitOfWork::default();
        // A disabled plugin is in the configuration and needs no note.
        for name in gone.iter().filter(|name| !configured.contains_key(*name)) {
            let key = records::removal_key(self.node(), name);
            unit.put(key, &json!({}));
            removed.insert(name.clone(), true);
        }
        removed.retain(|name, noted| {
            let is_back = is_wanted(program, name);
            if is_back && *noted {
                unit.delete(records::removal_key(self.node(), name));
            }
            !is_back
        });
        let disabled = configured.iter().filter(|(_, one)| !one.enabled);
        for (name, _) in disabled {
            removed.entry(name.clone()).or_insert(false);
        }
        if !unit.is_empty() {
            self.engine.commit(unit).await?;
        }
        *self.removed() = removed;
        Ok(())
    }

    /// Cancels the queued jobs of removed plugins. Later rounds find jobs that were running and have failed since.
    pub(super) async fn cancel_removed_jobs(&self, ended: &mut usize) -> Result<(), Error> {
        let removed = self.removed().clone();
        for (plugin, noted) in removed {
            let (ended_now, is_over) = self.cancel_jobs_of(&plugin).await?;
            *ended += ended_now;
            if ended_now > 0 {
                let message = "queued jobs of a disabled or removed plugin were cancelled";
                tracing::warn!(component = "reload", plugin, jobs = ended_now, "{message}");
            }
            if noted && is_over {
                let mut unit = UnitOfWork::default();
                unit.delete(records::removal_key(self.node(), &plugin));
                self.engine.commit(unit).await?;
                // It may be back, or removed once more.
                if let Some(noted) = self.removed().get_mut(&plugin) {
                    *noted = false;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of cancelled jobs, and whether none is open any more.
    async fn cancel_jobs_of(&self, plugin: &str) -> Result<(usize, bool), Error> {
        let mut ended = 0;
        loop {
            let open = self.engine.open_jobs(plugin, None, PIECE_JOBS).await?;
            if open.is_empty() {
                return Ok((ended, true));
            }
            let is_last = open.len() < PIECE_JOBS as usize;
            let waiting = open.into_iter().filter(|job| job.state == State::Queued);
            let ends: Vec<Command> = waiting
                .map(|job| {
                    Command::Cancel(Operate {
                        id: job.id,
                        face: Face::Automation,
                        reason: REMOVED.to_owned(),
                    })
                })
                .collect();
            let is_stuck = ends.is_empty();
            for answer in self.engine.execute(None, ends).await? {
                match answer {
                    Ok(_) => ended += 1,
                    // Claimed or ended meanwhile.
                    Err(Refusal::IllegalState | Refusal::NotFound) => {}
                    Err(refusal) => return Err(refusal.into()),
                }
            }
            // There are hardly more running jobs than workers.
            if is_last || is_stuck {
                return Ok((ended, false));
            }
        }
    }
}

impl Runtime {
    /// Logs queued jobs of plugins that do not run here and are not marked as removed.
    pub(super) async fn log_stranded_jobs(&self) {
        let stranded = match self.stranded_jobs().await {
            Ok(stranded) => stranded,
            Err(error) => {
                tracing::warn!(component = "recovery", %error, "queued jobs of unknown plugins could not be listed");
                return;
            }
        };
        for (plugin, jobs) in stranded {
            if !self.inner.removed().contains_key(&plugin) {
                let message = "queued jobs wait for a plugin that this node does not run; see `system doctor`";
                tracing::warn!(component = "recovery", plugin, jobs, "{message}");
            }
        }
    }
}

/// Whether the plugin should run, even if it cannot at the moment.
fn is_wanted(program: &Program, name: &str) -> bool {
    let configured = program.config().plugins.get(name);
    program.plugin(name).is_some()
        || configured.is_some_and(|configured| configured.enabled)
        || program.left_out().any(|(left_out, _)| left_out == name)
}

/// Whether a plugin that ran until now is removed. A plugin that is broken or being edited keeps its jobs.
pub(super) fn is_removed(plugin: &Plugin, program: &Program) -> bool {
    if is_wanted(program, &plugin.name) {
        return false;
    }
    let is_disabled = program.config().plugins.contains_key(&plugin.name);
    // An alias exists only in the configuration. A file that cannot be examined may still be there.
    let is_gone = || matches!(plugin.directory.join(MANIFEST).try_exists(), Ok(false));
    is_disabled || plugin.base.is_some() || is_gone()
}
