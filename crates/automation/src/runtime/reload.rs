//! Another configuration while the service runs: it holds from the next dispatch on, and jobs under way keep theirs.
//!
//! What was opened at start (the ledger, the listeners) cannot change this way; such a configuration is refused as a whole.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};

use consign_engine::Error;
use consign_kernel::command::{Command, Operate};
use consign_kernel::error::Refusal;
use consign_kernel::profile::Face;
use consign_kernel::state::State;

use super::service::{Inner, Runtime};
use super::setup;
use crate::config::Config;
use crate::plugin::discovery::MANIFEST;
use crate::program::{Plugin, Program};

/// Jobs per commit.
const PIECE_JOBS: u32 = 200;
const REMOVED: &str = "its plugin was removed or disabled";

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    pub added: Vec<String>,
    /// Disabled, or gone from the configuration and the disk alike.
    pub removed: Vec<String>,
    /// There, and not fit to run at the moment; their jobs wait.
    pub left_out: Vec<String>,
    /// Queued jobs of removed plugins that are dead now.
    pub ended_jobs: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("`{0}` has changed; restart the service to change it")]
    NeedsRestart(&'static str),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Runtime {
    /// From now on this configuration holds, unless the error says that it needs a restart.
    pub async fn reload(&self, program: Arc<Program>) -> Result<Reloaded, ReloadError> {
        let old = self.program();
        if let Some(key) = fixed(old.config(), program.config()) {
            return Err(ReloadError::NeedsRestart(key));
        }
        let names = |program: &Program| -> BTreeSet<String> {
            program
                .plugins()
                .map(|plugin| plugin.name.clone())
                .collect()
        };
        let (before, after) = (names(&old), names(&program));
        let missing = old.plugins().filter(|plugin| !after.contains(&plugin.name));
        let (removed, left_out): (Vec<&Plugin>, Vec<&Plugin>) =
            missing.partition(|plugin| is_removed(plugin, &program));
        let named = |plugins: Vec<&Plugin>| -> Vec<String> {
            plugins.iter().map(|plugin| plugin.name.clone()).collect()
        };
        let (removed, left_out) = (named(removed), named(left_out));
        {
            let mut all_removed = self.inner.removed();
            all_removed.extend(removed.iter().cloned());
            all_removed.retain(|name| !is_wanted(&program, name));
        }
        self.adopt(Arc::clone(&program));
        setup::set_up(&self.inner, &program).await?;
        let ended_jobs = self.inner.end_removed().await?;
        self.inner.loose_ends.notify_one();
        self.inner.until_served().await;
        let added = after.difference(&before).cloned().collect();
        let reloaded = Reloaded {
            added,
            removed,
            left_out,
            ended_jobs,
        };
        tracing::info!(
            component = "reload",
            ?reloaded,
            "the configuration was reloaded"
        );
        Ok(reloaded)
    }
}

/// The first key that differs and must not.
fn fixed(old: &Config, new: &Config) -> Option<&'static str> {
    let webhooks = |config: &Config| {
        let webhooks = config.webhooks.as_ref();
        webhooks.and_then(|webhooks| webhooks.listen.clone())
    };
    let differing = [
        ("state.path", old.state_path != new.state_path),
        ("api.enabled", old.api.enabled != new.api.enabled),
        ("api.listen", old.api.listen != new.api.listen),
        ("webhooks.listen", webhooks(old) != webhooks(new)),
    ];
    let mut differing = differing.into_iter().filter(|(_, differs)| *differs);
    differing.next().map(|(key, _)| key)
}

/// Whether somebody means to run it, even if that cannot be done at the moment.
fn is_wanted(program: &Program, name: &str) -> bool {
    let configured = program.config().plugins.get(name);
    program.plugin(name).is_some()
        || configured.is_some_and(|configured| configured.enabled)
        || program.left_out().any(|(left_out, _)| left_out == name)
}

/// Whether a plugin that ran until now is not to run any more. One that is broken, or just being worked on, keeps its jobs.
fn is_removed(plugin: &Plugin, program: &Program) -> bool {
    if is_wanted(program, &plugin.name) {
        return false;
    }
    let is_disabled = program.config().plugins.contains_key(&plugin.name);
    // An alias is nothing but its configuration. What cannot be looked at may still be there.
    let is_gone = || matches!(plugin.directory.join(MANIFEST).try_exists(), Ok(false));
    is_disabled || plugin.base.is_some() || is_gone()
}

impl Inner {
    pub(super) fn removed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what waits for plugins that are not to run any more. Later rounds find what still ran then and has failed since.
    pub(super) async fn end_removed(&self) -> Result<usize, Error> {
        let removed: Vec<String> = self.removed().iter().cloned().collect();
        let mut ended = 0;
        for plugin in removed {
            loop {
                let open = self.engine.open_jobs(&plugin, None, PIECE_JOBS).await?;
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
                        // Taken or ended by somebody else meanwhile.
                        Err(Refusal::IllegalState | Refusal::NotFound) => {}
                        Err(refusal) => return Err(refusal.into()),
                    }
                }
                // Those that run are not many more than workers.
                if is_last || is_stuck {
                    break;
                }
            }
        }
        Ok(ended)
    }
}
